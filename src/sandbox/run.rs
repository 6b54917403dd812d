//! The side of the sandbox that lives in the program: starts launchers, drains what they print, reads how it ended.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::group::Group;
use super::job::{Clock, Ending, Job, Outcome, Spent};
use super::protocol::{self, Refusal, Request, Response, Work};
use super::{Layer, Layers, SandboxError, probe};

/// The hidden subcommand that `main` hands to [`super::launcher_main`].
pub const SUBCOMMAND: &str = "sandbox-exec";
/// How long after the wall limit a launcher that does not answer is killed.
const PATIENCE: Duration = Duration::from_millis(850);

static PROGRAM: OnceLock<Launcher> = OnceLock::new();

/// How a launcher is started: a command to which the request is given on standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl Launcher {
    /// The launcher inside a `lifelong` binary.
    pub fn of_binary(program: impl Into<PathBuf>) -> Launcher {
        Launcher { program: program.into(), arguments: vec![SUBCOMMAND.into()] }
    }

    /// Names the launcher for the rest of the process: for programs that use the library and are not `lifelong`
    /// themselves. The first call wins.
    pub fn use_for_process(self) {
        let _ = PROGRAM.set(self);
    }

    fn default_of_process() -> Launcher {
        // The link stays right when the file of the running program is replaced by a new build.
        PROGRAM.get().cloned().unwrap_or_else(|| Launcher::of_binary("/proc/self/exe"))
    }
}

/// What a sandbox may do without, and how it is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxOptions {
    /// Layers that may be missing: the user's explicit word.
    pub allow_missing: Vec<Layer>,
    /// Layers to treat as if this machine refused them, to see what happens then.
    pub simulate_missing: Vec<Layer>,
    /// How to start the launcher; `None` for this program itself.
    pub launcher: Option<Launcher>,
}

/// Runs hostile programs. Every layer was tried when it was made.
#[derive(Clone, Debug)]
pub struct Sandbox {
    options: SandboxOptions,
    launcher: Launcher,
    layers: Layers,
}

impl Sandbox {
    /// Tries every layer by doing what it must refuse.
    ///
    /// # Errors
    /// [`SandboxError::LayerMissing`] when a layer does not hold and [`SandboxOptions::allow_missing`] does not name
    /// it; [`SandboxError::Failed`] when the launcher itself cannot be run.
    pub fn start(options: SandboxOptions) -> Result<Sandbox, SandboxError> {
        let launcher = options.launcher.clone().unwrap_or_else(Launcher::default_of_process);
        let mut sandbox = Sandbox { options, launcher, layers: Layers::default() };
        let outcome = sandbox.submit(Work::Probe, &probe::LIMITS)?;
        let report = outcome.report.unwrap_or_default();
        let failures: BTreeMap<Layer, String> = serde_json::from_str(&report)
            .map_err(|_| SandboxError::Failed(format!("trying the layers ended with {}", outcome.ending)))?;
        sandbox.layers = outcome.layers;
        for (layer, what) in failures {
            if !sandbox.options.allow_missing.contains(&layer) {
                return Err(SandboxError::LayerMissing { layer, why: what });
            }
            sandbox.layers.miss(layer, what);
        }
        Ok(sandbox)
    }

    /// The layers as they were found at the start.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Runs a program to its end, which comes at most one second after its wall limit.
    ///
    /// Any number of jobs may run at once.
    ///
    /// # Errors
    /// When *we* failed: a layer could not be set, the program does not exist in the sandbox, no process could be
    /// started. What the program does is never an error.
    pub fn run(&self, job: &Job) -> Result<Outcome, SandboxError> {
        self.submit(Work::Run(job.clone()), &job.limits)
    }

    fn submit(&self, work: Work, limits: &super::Limits) -> Result<Outcome, SandboxError> {
        let request = Request {
            work,
            allow_missing: self.options.allow_missing.clone(),
            simulate_missing: self.options.simulate_missing.clone(),
        };
        let failed = |error: io::Error| {
            let program = self.launcher.program.display();
            SandboxError::Failed(format!("launcher {program}: {error}"))
        };
        let mut running = Running::start(&self.launcher, limits.output_bytes).map_err(failed)?;
        protocol::send(&mut running.control, &request).map_err(failed)?;
        running.drain(Duration::from_secs_f64(limits.wall_s) + PATIENCE).map_err(failed)?;
        running.finish()
    }
}

/// A launcher at work, with the three streams it writes to.
struct Running {
    child: Child,
    control: UnixStream,
    answer: Vec<u8>,
    stdout: Captured<ChildStdout>,
    stderr: Captured<ChildStderr>,
    is_flooded: bool,
    is_killed: bool,
    started: Instant,
}

impl Running {
    fn start(launcher: &Launcher, output_bytes: u64) -> io::Result<Running> {
        let started = Instant::now();
        let (control, theirs) = UnixStream::pair()?;
        let mut child = Command::new(&launcher.program)
            .args(&launcher.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = Captured::new(child.stdout.take().expect("standard output is piped"), output_bytes)?;
        let stderr = Captured::new(child.stderr.take().expect("standard error is piped"), output_bytes)?;
        Ok(Running { child, control, answer: Vec::new(), stdout, stderr, is_flooded: false, is_killed: false, started })
    }

    /// Reads all three streams until the launcher has ended; ends the job when one goes past its limit.
    fn drain(&mut self, limit: Duration) -> io::Result<()> {
        self.control.set_nonblocking(true)?;
        let deadline = self.started + limit;
        let mut is_answered = false;
        while !is_answered || self.stdout.is_open || self.stderr.is_open {
            let entry = |fd: RawFd, is_open: bool| libc::pollfd {
                fd: if is_open { fd } else { -1 },
                events: libc::POLLIN,
                revents: 0,
            };
            let mut entries = [
                entry(self.control.as_raw_fd(), !is_answered),
                entry(self.stdout.stream.as_raw_fd(), self.stdout.is_open),
                entry(self.stderr.stream.as_raw_fd(), self.stderr.is_open),
            ];
            let left = deadline.saturating_duration_since(Instant::now());
            let milliseconds = left.as_micros().div_ceil(1000) as libc::c_int;
            // SAFETY: the array outlives the call and its length is given.
            let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, milliseconds) };
            if ready == 0 && Instant::now() >= deadline {
                self.is_killed = true;
                self.child.kill()?;
                break;
            }
            if entries[0].revents != 0 {
                is_answered = read_available(&mut self.control, &mut self.answer, u64::MAX)?.is_closed;
            }
            if entries[1].revents != 0 {
                self.stdout.read()?;
            }
            if entries[2].revents != 0 {
                self.stderr.read()?;
            }
            if !self.is_flooded && (self.stdout.is_full || self.stderr.is_full) {
                self.is_flooded = true;
                // The launcher takes this as the word to end the job; its answer still arrives.
                self.control.shutdown(Shutdown::Write)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Outcome, SandboxError> {
        let status = self.child.wait().map_err(|error| SandboxError::Failed(error.to_string()))?;
        let mut outcome = Outcome {
            ending: Ending::Timeout(Clock::Wall),
            stdout: std::mem::take(&mut self.stdout.bytes),
            stderr: std::mem::take(&mut self.stderr.bytes),
            report: None,
            collected: Vec::new(),
            layers: Layers::default(),
            spent: Spent { wall_s: self.started.elapsed().as_secs_f64(), ..Spent::default() },
        };
        if self.is_killed {
            Group::remove_of(self.child.id());
            return Ok(outcome);
        }
        match protocol::receive(&mut self.answer.as_slice()) {
            Ok(Response::Finished(finished)) => {
                outcome.ending = if self.is_flooded { Ending::Output } else { finished.ending };
                outcome.report = finished.report;
                outcome.collected = finished.collected;
                outcome.layers = finished.layers;
                outcome.spent = finished.spent;
                Ok(outcome)
            }
            Ok(Response::Refused(Refusal { layer: Some(layer), why })) => {
                Err(SandboxError::LayerMissing { layer, why })
            }
            Ok(Response::Refused(Refusal { layer: None, why })) => Err(SandboxError::Failed(why)),
            Err(_) => {
                Group::remove_of(self.child.id());
                let said = String::from_utf8_lossy(&outcome.stderr).trim().to_string();
                Err(SandboxError::Failed(format!("the launcher ended with {status} and no answer: {said}")))
            }
        }
    }
}

/// One stream of the job, kept up to a limit and read no further.
struct Captured<S> {
    stream: S,
    bytes: Vec<u8>,
    limit: u64,
    is_open: bool,
    is_full: bool,
}

impl<S: Read + AsRawFd> Captured<S> {
    fn new(stream: S, limit: u64) -> io::Result<Captured<S>> {
        // SAFETY: changes a flag of an open descriptor.
        let status = unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Captured { stream, bytes: Vec::new(), limit, is_open: true, is_full: false })
    }

    fn read(&mut self) -> io::Result<()> {
        let got = read_available(&mut self.stream, &mut self.bytes, self.limit)?;
        self.is_full |= got.is_over;
        self.is_open = !got.is_closed && !self.is_full;
        Ok(())
    }
}

struct Got {
    is_closed: bool,
    /// More came than the limit allows; the rest was thrown away.
    is_over: bool,
}

fn read_available(stream: &mut impl Read, bytes: &mut Vec<u8>, limit: u64) -> io::Result<Got> {
    let mut buffer = [0; 65536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(Got { is_closed: true, is_over: false }),
            Ok(count) => {
                let room = limit.saturating_sub(bytes.len() as u64).min(count as u64) as usize;
                bytes.extend_from_slice(&buffer[..room]);
                if room < count {
                    return Ok(Got { is_closed: false, is_over: true });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Got { is_closed: false, is_over: false });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Ok(Got { is_closed: true, is_over: false });
            }
            Err(error) => return Err(error),
        }
    }
}
