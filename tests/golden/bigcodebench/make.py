"""Verdicts of the official evaluator, for tests/bigcodebench_official.rs.

    python make.py DATA solutions verdicts.json
    python make.py DATA replies RUN_FOLDER verdicts.json

DATA is the published file v0.1.4 (.jsonl.gz). Needs the package `bigcodebench` 0.2.5 with numpy, matplotlib and
tree-sitter-python. Its checks run in this Python with no isolation worth the name: run it as a user without rights, as
the official image does (root may write everywhere, and four published solutions then fail), on a machine that can be lost.

`solutions` judges the published solution and one spoilt solution of every task that imports the standard library alone.
`replies` judges what a model wrote in the zero-shot part of a run of ours (the config that the test holds), cleaned by the
official sanitizer, and adds the letters and a digest of the replies. What the programs print goes to standard output.
"""

import ast
import concurrent.futures
import gzip
import hashlib
import json
import re
import sys
import types

import bigcodebench.eval
from bigcodebench.eval import untrusted_check

# The package waits 240 s; a solution that runs for a minute is taken to be endless.
bigcodebench.eval.TIMEOUT_LIMIT = 60.0
# Its own defaults.
LIMITS = dict(max_as_limit=30 * 1024, max_data_limit=30 * 1024, max_stack_limit=10, min_time_limit=1, gt_time_limit=20)


def standard_library_only(record):
    program = record["code_prompt"] + record["canonical_solution"] + "\n" + record["test"]
    found = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.split(".")[0])
    return found <= set(sys.stdlib_module_names) | {"__future__", "asyncore", "smtpd", "distutils", "imp"}


def spoilt(number, body):
    """A solution changed in one place, by a rule that the task's number chooses."""
    lines = body.rstrip("\n").split("\n")
    rule = number % 6
    if rule == 1 and len(lines) > 1:
        return "\n".join(lines[:-1]) + "\n"
    if rule == 2 and " == " in body:
        return body.replace(" == ", " != ", 1)
    if rule == 3 and ("True" in body or "False" in body):
        return body.replace("True", "False", 1) if "True" in body else body.replace("False", "True", 1)
    if rule == 4 and re.search("[0-9]", body):
        return re.sub("[0-9]", lambda digit: str((int(digit.group()) + 1) % 10), body, count=1)
    if rule == 5 and " if " in body:
        return body.replace(" if ", " if not ", 1)
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].strip().startswith("return"):
            indent = lines[index][: len(lines[index]) - len(lines[index].lstrip())]
            lines[index] = indent + "return None"
            break
    return "\n".join(lines) + "\n"


def judge(job):
    record, solution = job
    status, _ = untrusted_check(
        record["code_prompt"] + "\n    pass\n" + solution, record["test"], record["entry_point"], **LIMITS
    )
    return status[0]


def judged(jobs):
    # Processes, as in the package: its checks fork, and threads would deadlock them.
    with concurrent.futures.ProcessPoolExecutor(4) as pool:
        letters = ""
        for letter in pool.map(judge, jobs):
            letters += letter
            print(len(letters), "of", len(jobs), file=sys.stderr)
        return letters


def main():
    with gzip.open(sys.argv[1], "rt") as file:
        records = [json.loads(line) for line in file]
    records = [record for record in records if standard_library_only(record)]
    if sys.argv[2] == "solutions":
        number = lambda record: int(record["task_id"].rsplit("/", 1)[1])
        whole = [(record, record["code_prompt"] + record["canonical_solution"]) for record in records]
        broken = [
            (record, record["code_prompt"] + spoilt(number(record), record["canonical_solution"])) for record in records
        ]
        verdicts = {"canonical": judged(whole), "spoilt": judged(broken)}
        with open(sys.argv[3], "w") as out:
            print(json.dumps(verdicts, indent=1), file=out)
        return
    # The sanitizer's module also loads data sets, which nothing here needs.
    sys.modules.setdefault("datasets", types.SimpleNamespace(load_dataset=None))
    from bigcodebench.sanitize import sanitize

    named = {"bigcodebench/" + record["task_id"].rsplit("/", 1)[1]: record for record in records}
    with open(sys.argv[3] + "/attempts.jsonl") as file:
        attempts = [json.loads(line)["record"] for line in file]
    attempts = [a for a in attempts if a["coord"]["sequence"] == 0]
    attempts.sort(key=lambda a: a["coord"]["step"])
    replies = [a["attempt"]["turns"][-1]["content"] for a in attempts]
    jobs = []
    for attempt, reply in zip(attempts, replies):
        record = named[attempt["task"]]
        jobs.append((record, sanitize(reply, record["entry_point"])))
    with open(sys.argv[4]) as file:
        verdicts = json.load(file)
    verdicts["written"] = judged(jobs)
    verdicts["replies"] = hashlib.sha256("\0".join(replies).encode()).hexdigest()
    with open(sys.argv[4], "w") as out:
        print(json.dumps(verdicts, indent=1), file=out)


main()
