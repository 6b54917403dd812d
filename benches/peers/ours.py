"""`lifelong bench` as a program that is timed: it times itself, and says so in JSON."""

import json
import subprocess


class Failed(Exception):
    """The program said no; the text is its own."""


class Ours:
    def __init__(self, program, model, threads, scale):
        """Without `model` the program's own default: its encoder is always the same."""
        self.command = [str(program), "bench", "--json", "--runs", "1", "--threads", str(threads)]
        self.command += ["--model", str(model)] if model else []
        self.command += ["--quick"] if scale.is_quick else []
        self.device = None

    def rate(self, workload):
        """Tokens or sentences a second of one run after a warm-up."""
        done = subprocess.run([*self.command, "--only", workload], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
        said = json.loads(done.stdout)
        self.device = said["device"]
        (measured,) = said["workloads"]
        return measured["median"]
