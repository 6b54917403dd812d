//! The launcher: what the hidden subcommand `sandbox-exec` runs.
//!
//! A process with many threads must not fork, so the sandbox starts this program anew for each job. It makes the
//! namespaces, gives the first process in them ([`super::init`]) its identity and its control group, waits, and cleans
//! up what only the outside can. It keeps its own privileges: no process of the job can see it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::bare::BareFolder;
use super::descriptor;
use super::group::Group;
use super::init::{self, Setup};
use super::job::{Clock, Ending, Spent};
use super::protocol::{self, Finished, Refusal, Request, Response, Work};
use super::{Layer, Layers, probe};

/// The id a job's user has inside its user namespace.
pub(super) const INSIDE_ID: u32 = 1000;
/// Ids from here on are given out by no system; the launcher's process id is added so that no two jobs share one.
const FIRST_UNUSED_ID: u32 = 1_900_000_000;
/// How long the first process may take past the wall limit before it is killed from outside.
const OVERTIME: Duration = Duration::from_millis(500);
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// Serves one request on standard input and ends the process.
pub fn main() -> ! {
    let code = match serve() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("sandbox-exec: {error}; this is an internal command, started by `lifelong` itself");
            2
        }
    };
    std::process::exit(code)
}

fn serve() -> io::Result<()> {
    let mut control = take_control()?;
    let request: Request = protocol::receive(&mut control)?;
    let response = launch(&request, &control).unwrap_or_else(Response::Refused);
    protocol::send(&mut control, &response)
}

/// Moves the socket away from standard input, which becomes empty, and lets go of every other inherited descriptor.
fn take_control() -> io::Result<UnixStream> {
    let stdin = io::stdin();
    let control = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    control.peer_addr().map_err(|_| io::Error::other("standard input is not the socket of a sandbox"))?;
    let kept = control.as_raw_fd();
    descriptor::close_range(3, kept - 1)?;
    descriptor::close_range(kept + 1, RawFd::MAX)?;
    let nothing = fs::File::open("/dev/null")?;
    // SAFETY: both descriptors are open; number 0 stays owned by the process as a whole.
    if unsafe { libc::dup2(nothing.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Ok(control)
}

fn launch(request: &Request, control: &UnixStream) -> Result<Response, Refusal> {
    let limits = match &request.work {
        Work::Run(job) => job.limits,
        Work::Probe => probe::LIMITS,
    };
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        rustix::thread::set_thread_groups(&[])
            .map_err(|error| Refusal::layer(Layer::Identity, format!("cannot leave root's groups: {error}")))?;
    }
    let outside_id = match is_root {
        true => FIRST_UNUSED_ID + std::process::id(),
        false => rustix::process::geteuid().as_raw(),
    };
    let folder = BareFolder::make(request, is_root.then_some(outside_id))
        .map_err(|error| Refusal::other(format!("cannot make a work folder: {error}")))?;
    let mut layers = Layers::default();
    let group =
        if request.simulate_missing.contains(&Layer::Memory) { None } else { Group::create(limits.memory_bytes) };
    if let Some(group) = &group {
        layers.hold(Layer::Memory, group.means());
    }

    // On a crowded machine the watchers must not wait behind the watched. Only root may ask for that; others do
    // without.
    let niceness = rustix::process::getpriority_process(None).unwrap_or(0);
    let _ = rustix::process::setpriority_process(None, niceness - 10);
    let setup = Setup {
        niceness,
        request,
        limits,
        outside_id,
        is_root,
        is_isolated: true,
        folder: folder.as_ref().map(|folder| folder.path.as_path()),
        machine_root: root_identity().map_err(|error| Refusal::other(format!("/: {error}")))?,
        layers,
    };
    match attempt(setup.clone(), group.as_ref(), control) {
        Err(Refusal { layer: Some(Layer::Namespaces), why }) => {
            let setup = without_namespaces(setup, format!("{why}{}", user_namespace_hint()))?;
            attempt(setup, group.as_ref(), control)
        }
        outcome => outcome,
    }
}

/// Runs the job once, in namespaces of its own or without.
fn attempt(setup: Setup<'_>, group: Option<&Group>, control: &UnixStream) -> Result<Response, Refusal> {
    if setup.is_isolated && setup.request.simulate_missing.contains(&Layer::Namespaces) {
        return Err(Refusal::layer(Layer::Namespaces, "switched off"));
    }
    let limit = Duration::from_secs_f64(setup.limits.wall_s) + OVERTIME;
    let mut first = FirstProcess::start(setup, group)?;
    let started = Instant::now();
    let answer = first.wait(control, limit);
    conclude(answer, group, started.elapsed())
}

fn root_identity() -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/").map(|root| (root.dev(), root.ino()))
}

/// The setup for doing without namespaces, where the user allows that and all that stands on them.
fn without_namespaces(mut setup: Setup<'_>, why: String) -> Result<Setup<'_>, Refusal> {
    let allowed = &setup.request.allow_missing;
    if !allowed.contains(&Layer::Namespaces) {
        return Err(Refusal::layer(Layer::Namespaces, why));
    }
    if !allowed.contains(&Layer::Filesystem) {
        return Err(Refusal::layer(Layer::Filesystem, "a private root needs the missing layer `namespaces`"));
    }
    setup.is_isolated = false;
    setup.layers.miss(Layer::Namespaces, why);
    setup.layers.miss(Layer::Filesystem, "needs namespaces");
    Ok(setup)
}

/// What to do where a security module denies user namespaces to programs it does not know.
fn user_namespace_hint() -> String {
    let setting = fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").unwrap_or_default();
    if setting.trim() != "1" {
        return String::new();
    }
    let program = std::env::current_exe().map_or_else(|_| "lifelong".into(), |path| path.display().to_string());
    format!(
        "; AppArmor denies user namespaces here: put `abi <abi/4.0>, profile lifelong {program} flags=(unconfined) \
         {{ userns, }}` into /etc/apparmor.d/lifelong and run `apparmor_parser -r /etc/apparmor.d/lifelong`"
    )
}

/// The first process of a job and the two pipes to it.
struct FirstProcess {
    id: i32,
    handle: OwnedFd,
    /// Open while the job may live: when it closes, the first process ends the job.
    life: Option<OwnedFd>,
    answer: fs::File,
}

/// How the first process ended.
struct Answer {
    text: Vec<u8>,
    was_forced: bool,
    signal: Option<i32>,
}

impl FirstProcess {
    fn start(setup: Setup<'_>, group: Option<&Group>) -> Result<FirstProcess, Refusal> {
        let broken = |error: io::Error| Refusal::other(format!("cannot start a process: {error}"));
        let flags = if setup.is_isolated { NAMESPACES } else { 0 };
        let identity = setup.is_isolated.then_some((setup.is_root, setup.outside_id));
        let (life_read, life_write) = descriptor::pipe().map_err(broken)?;
        let (answer_read, answer_write) = descriptor::pipe().map_err(broken)?;
        // SAFETY: this process has one thread, so the child's copy of memory is consistent; no stack is given, so the
        // call behaves as fork.
        let id = unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) } as i32;
        if id < 0 {
            let error = io::Error::last_os_error();
            return Err(if flags == 0 { broken(error) } else { Refusal::layer(Layer::Namespaces, error.to_string()) });
        }
        if id == 0 {
            drop((life_write, answer_read));
            init::main(setup, life_read, answer_write);
        }
        let known = rustix::process::Pid::from_raw(id).expect("a child has a positive id");
        let handle = rustix::process::pidfd_open(known, rustix::process::PidfdFlags::empty());
        let handle = handle.map_err(|error| broken(error.into()))?;
        let first = FirstProcess { id, handle, life: Some(life_write), answer: fs::File::from(answer_read) };
        first.release(identity, group).inspect_err(|_| {
            first.kill();
            first.reap();
        })?;
        Ok(first)
    }

    /// Gives the first process its identity and its group, then lets it run.
    fn release(&self, identity: Option<(bool, u32)>, group: Option<&Group>) -> Result<(), Refusal> {
        if let Some((is_root, outside_id)) = identity {
            let mapped = self.map_identity(is_root, outside_id);
            mapped.map_err(|error| Refusal::layer(Layer::Namespaces, format!("mapping the job's user: {error}")))?;
        }
        if let Some(group) = group {
            group.add(self.id as u32).map_err(|error| Refusal::layer(Layer::Memory, error.to_string()))?;
        }
        let life = self.life.as_ref().expect("the life line is open until the job is stopped");
        rustix::io::write(life, b"g").map(drop).map_err(|error| Refusal::other(error.to_string()))
    }

    fn map_identity(&self, is_root: bool, outside_id: u32) -> io::Result<()> {
        if !is_root {
            fs::write(format!("/proc/{}/setgroups", self.id), "deny")?;
        }
        let group_id = if is_root { outside_id } else { rustix::process::getegid().as_raw() };
        fs::write(format!("/proc/{}/uid_map", self.id), format!("{INSIDE_ID} {outside_id} 1"))?;
        fs::write(format!("/proc/{}/gid_map", self.id), format!("{INSIDE_ID} {group_id} 1"))
    }

    /// Waits for the answer; stops the job when `control` closes and kills it when `limit` has passed.
    fn wait(&mut self, control: &UnixStream, limit: Duration) -> Answer {
        let mut text = Vec::new();
        let mut deadline = Instant::now() + limit;
        let mut was_forced = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let asks = self.life.as_ref().map(|_| control.as_fd());
            let ready = descriptor::poll(self.answer.as_fd(), asks, left);
            if ready.first && read_some(&mut self.answer, &mut text) == 0 {
                break;
            }
            if ready.second {
                self.life = None;
                deadline = deadline.min(Instant::now() + OVERTIME / 2);
            }
            if Instant::now() >= deadline {
                was_forced = true;
                self.kill();
                break;
            }
        }
        Answer { text, was_forced, signal: self.reap() }
    }

    fn kill(&self) {
        // A process that is already gone needs no signal.
        let _ = rustix::process::pidfd_send_signal(&self.handle, rustix::process::Signal::KILL);
    }

    /// Waits for the process itself and tells the signal that ended it, if one did.
    fn reap(&self) -> Option<i32> {
        let status = rustix::process::waitid(
            rustix::process::WaitId::PidFd(self.handle.as_fd()),
            rustix::process::WaitIdOptions::EXITED,
        );
        status.ok().flatten().and_then(|status| status.terminating_signal())
    }
}

/// Puts together what the first process answered and what only the outside saw.
fn conclude(answer: Answer, group: Option<&Group>, wall: Duration) -> Result<Response, Refusal> {
    let kills = group.map_or(0, Group::kills);
    let mut finished = match protocol::parse(&answer.text) {
        Ok(Response::Finished(finished)) => finished,
        Ok(Response::Refused(refusal)) => return Err(refusal),
        Err(_) => match (answer.was_forced, kills) {
            (true, _) => forced(Ending::Timeout(Clock::Wall), wall),
            (false, 1..) => forced(Ending::Memory, wall),
            (false, 0) => {
                return Err(Refusal::other(match answer.signal {
                    Some(signal) => format!("the sandbox's first process was killed by signal {signal}"),
                    None => "the sandbox's first process ended without an answer".to_string(),
                }));
            }
        },
    };
    if kills > 0 {
        finished.ending = Ending::Memory;
    }
    if let Some(peak) = group.and_then(Group::peak_bytes) {
        finished.spent.peak_memory_bytes = peak;
    }
    Ok(Response::Finished(finished))
}

fn forced(ending: Ending, wall: Duration) -> Finished {
    let spent = Spent { wall_s: wall.as_secs_f64(), ..Spent::default() };
    Finished { ending, layers: Layers::default(), spent, report: None, collected: Vec::new() }
}

fn read_some(file: &mut fs::File, text: &mut Vec<u8>) -> usize {
    let mut buffer = [0; 65536];
    match file.read(&mut buffer) {
        Ok(count) => {
            text.extend_from_slice(&buffer[..count]);
            count
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 1,
        Err(_) => 0,
    }
}

/// Writes a whole message and closes the pipe.
pub(super) fn answer(pipe: OwnedFd, response: &Response) {
    if let Ok(text) = serde_json::to_vec(response) {
        // When nobody listens any more there is nobody to tell.
        let _ = fs::File::from(pipe).write_all(&text);
    }
}
