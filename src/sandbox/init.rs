//! The first process of a job: builds its world, starts the program, watches it, ends everything.
//!
//! It is not the program itself, because the first process of a namespace ignores signals it has no handler for and
//! must bury orphans. It answers the launcher once and exits; in a process namespace nothing outlives it.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, Mode, OFlags, ResolveFlags};

use super::job::{Clock, Collected, Ending, Job, Limits, Spent};
use super::launcher::{self, INSIDE_ID};
use super::protocol::{self, Finished, Refusal, Request, Response, Work};
use super::root::{self, Place, Sources};
use super::seal::{self, Sealing};
use super::{Layer, Layers, descriptor, process};

/// How often the job is looked at while it runs.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Longest report or collected file that is brought back.
const MAX_RETURNED_BYTES: u64 = 8 << 20;
/// How long killed processes may take to be gone.
const BURIAL_PATIENCE: Duration = Duration::from_millis(400);

/// What the launcher hands to the first process.
#[derive(Clone)]
pub(super) struct Setup<'a> {
    pub request: &'a Request,
    pub limits: Limits,
    /// Scheduling priority of the caller, which the program gets back.
    pub niceness: i32,
    /// The id that the job's user has outside.
    pub outside_id: u32,
    pub is_root: bool,
    /// Whether this process has namespaces of its own.
    pub is_isolated: bool,
    /// A folder of the machine, for when there is no private root.
    pub folder: Option<&'a Path>,
    /// Device and inode of the machine's root folder.
    pub machine_root: (u64, u64),
    pub layers: Layers,
}

/// Runs the job and answers on the pipe; never returns into the launcher's code.
pub(super) fn main(setup: Setup<'_>, life: OwnedFd, answer: OwnedFd) -> ! {
    let response = run(setup, &life).unwrap_or_else(Response::Refused);
    launcher::answer(answer, &response);
    // SAFETY: ends this copy of the launcher at once; nothing of it may run twice.
    unsafe { libc::_exit(0) }
}

fn run(mut setup: Setup<'_>, life: &OwnedFd) -> Result<Response, Refusal> {
    let (files, readable) = match &setup.request.work {
        Work::Run(job) => (job.files.as_slice(), job.readable.as_slice()),
        Work::Probe => (&[][..], &[][..]),
    };
    let wants_root = setup.is_isolated && !setup.request.simulate_missing.contains(&Layer::Filesystem);
    let sources = wants_root.then(|| Sources::open(readable));
    if !is_released(life) {
        return Err(Refusal::other("stopped before it started"));
    }
    take_identity(&mut setup)?;
    let place = match sources {
        Some(sources) => match sources.and_then(|sources| root::build(sources, files, setup.limits.files_bytes)) {
            Ok(place) => {
                setup.layers.hold(Layer::Filesystem, "private root in memory");
                place
            }
            Err(error) => bare_place(&mut setup, error.to_string(), files, readable)?,
        },
        None => bare_place(&mut setup, "switched off".into(), files, readable)?,
    };
    if setup.is_isolated {
        setup.layers.hold(Layer::Namespaces, "user, process, network, IPC, host name");
        rustix::system::sethostname(b"sandbox")
            .map_err(|error| Refusal::layer(Layer::Namespaces, error.to_string()))?;
    }
    let report = match &setup.request.work {
        Work::Run(Job { report: Some(first), .. }) => Some(make_report(first)?),
        Work::Run(_) => None,
        Work::Probe => Some(make_report("")?),
    };

    let program = start_program(&mut setup, &place, report.as_ref())?;
    let watched = watch(&setup, &program, life);
    end_everything(&setup);
    let ending = name_ending(&setup, &place, &watched);
    Ok(Response::Finished(Finished {
        ending,
        layers: setup.layers,
        spent: watched.spent,
        report: report.map(|report| read_back(fs::File::from(report))),
        collected: collect(setup.request, &place),
    }))
}

/// Waits for the launcher's word that identity and control group are set.
fn is_released(life: &OwnedFd) -> bool {
    let mut word = [0; 1];
    rustix::io::read(life, &mut word).is_ok_and(|count| count == 1)
}

/// Becomes a user that owns nothing, for good.
fn take_identity(setup: &mut Setup<'_>) -> Result<(), Refusal> {
    // A security module may let a user namespace be made and then give no rights in it: that shows here first.
    let layer = if setup.is_isolated { Layer::Namespaces } else { Layer::Identity };
    let refuse = |error: rustix::io::Errno| Refusal::layer(layer, format!("becoming the job's user: {error}"));
    let inside = match (setup.is_isolated, setup.is_root) {
        (true, _) => Some(INSIDE_ID),
        (false, true) => Some(setup.outside_id),
        (false, false) => None,
    };
    if let Some(id) = inside {
        let (group, user) = (rustix::process::Gid::from_raw(id), rustix::process::Uid::from_raw(id));
        rustix::thread::set_thread_res_gid(group, group, group).map_err(refuse)?;
        rustix::thread::set_thread_res_uid(user, user, user).map_err(refuse)?;
    }
    setup.layers.hold(Layer::Identity, if setup.is_root { "unused user" } else { "the caller, who is not root" });
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(refuse)?;
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).map_err(refuse)?;
    // Memory and environment of this process are nothing for the job to read.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).map_err(refuse)
}

fn bare_place(
    setup: &mut Setup<'_>,
    why: String,
    files: &[super::ProgramFile],
    readable: &[PathBuf],
) -> Result<Place, Refusal> {
    let Some(folder) = setup.folder else { return Err(Refusal::layer(Layer::Filesystem, why)) };
    setup.layers.miss(Layer::Filesystem, why);
    root::bare(folder, readable, files).map_err(|error| Refusal::other(format!("cannot make a work folder: {error}")))
}

/// A file in memory that the job gets as descriptor 3 and may seal against later changes.
fn make_report(first: &str) -> Result<OwnedFd, Refusal> {
    let make = || -> rustix::io::Result<OwnedFd> {
        let report = rustix::fs::memfd_create("report", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::io::pwrite(&report, first.as_bytes(), 0)?;
        Ok(report)
    };
    make().map_err(|error| Refusal::other(format!("cannot make a report file: {error}")))
}

/// The program's process.
struct Program {
    id: i32,
    handle: OwnedFd,
}

/// Forks, seals the child and lets it become the program; returns when it has.
fn start_program(setup: &mut Setup<'_>, place: &Place, report: Option<&OwnedFd>) -> Result<Program, Refusal> {
    let broken = |error: std::io::Error| Refusal::other(format!("cannot start a process: {error}"));
    let (read, write) = descriptor::pipe().map_err(broken)?;
    // SAFETY: this process has one thread, so the child's copy of memory is consistent.
    let id = unsafe { libc::fork() };
    if id < 0 {
        return Err(broken(std::io::Error::last_os_error()));
    }
    if id == 0 {
        drop(read);
        seal::become_program(setup, place, report, write);
    }
    drop(write);
    let known = rustix::process::Pid::from_raw(id).expect("a child has a positive id");
    let handle = rustix::process::pidfd_open(known, rustix::process::PidfdFlags::empty());
    let handle = handle.map_err(|error| broken(error.into()))?;

    let mut messages = fs::File::from(read);
    while let Ok(message) = protocol::receive(&mut messages) {
        match message {
            Sealing::Layers(layers) => setup.layers = layers,
            Sealing::Failed(refusal) => return Err(refusal),
        }
    }
    Ok(Program { id, handle })
}

/// What watching the job showed.
#[derive(Default)]
struct Watched {
    /// Why the job was ended from here; `None` when the program ended by itself.
    stopped: Option<Ending>,
    /// Wait status of the program.
    status: Option<i32>,
    most_tasks: u32,
    spent: Spent,
}

/// Looks at the job until its program ends, a limit is reached, or the launcher lets go.
fn watch(setup: &Setup<'_>, program: &Program, life: &OwnedFd) -> Watched {
    let started = Instant::now();
    let wall = Duration::from_secs_f64(setup.limits.wall_s);
    let mut watched = Watched::default();
    loop {
        let left = wall.saturating_sub(started.elapsed()).min(WATCH_INTERVAL);
        let ready = descriptor::poll(program.handle.as_fd(), Some(life.as_fd()), left);
        bury(program.id, &mut watched.status);
        watched.spent.wall_s = started.elapsed().as_secs_f64();
        if watched.status.is_some() {
            break;
        }
        watched.stopped = if ready.second {
            Some(Ending::Killed(libc::SIGKILL))
        } else if started.elapsed() >= wall {
            Some(Ending::Timeout(Clock::Wall))
        } else {
            inspect(setup, &mut watched)
        };
        if watched.stopped.is_some() {
            break;
        }
    }
    watched.spent.cpu_s = watched.spent.cpu_s.max(buried_cpu_s());
    watched
}

/// Takes one sample of the job; tells which limit it has passed.
fn inspect(setup: &Setup<'_>, watched: &mut Watched) -> Option<Ending> {
    let sample = process::descendants_of(std::process::id() as i32);
    watched.most_tasks = watched.most_tasks.max(sample.tasks);
    watched.spent.cpu_s = watched.spent.cpu_s.max(sample.cpu_s + buried_cpu_s());
    if watched.spent.cpu_s > setup.limits.cpu_s {
        return Some(Ending::Timeout(Clock::Cpu));
    }
    let mut bytes = sample.resident_bytes;
    if bytes > setup.limits.memory_bytes {
        bytes = process::proportional_bytes(&sample.processes);
    }
    watched.spent.peak_memory_bytes = watched.spent.peak_memory_bytes.max(bytes);
    if bytes > setup.limits.memory_bytes {
        return Some(Ending::Memory);
    }
    // Where the kernel bounds the number this is never seen; elsewhere it is the bound.
    (sample.tasks > setup.limits.processes).then_some(Ending::Processes)
}

/// Takes in every dead child; notes the program's own status.
fn bury(program: i32, status_of_program: &mut Option<i32>) {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one status.
        let id = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if id <= 0 {
            return;
        }
        if id == program {
            *status_of_program = Some(status);
        }
    }
}

/// CPU seconds of all children taken in so far, and of theirs.
fn buried_cpu_s() -> f64 {
    // SAFETY: the kernel fills the structure, for which all zeros are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Kills whatever is left of the job and waits until it is gone.
fn end_everything(setup: &Setup<'_>) {
    let ours = std::process::id() as i32;
    let started = Instant::now();
    let owns_all = setup.is_isolated || setup.is_root;
    while started.elapsed() < BURIAL_PATIENCE {
        if owns_all {
            // Reaches every process of the namespace, or of the user that only this job has.
            // SAFETY: sends a signal, and never to this process.
            unsafe { libc::kill(-1, libc::SIGKILL) };
        } else {
            for process in process::descendants_of(ours).processes {
                // SAFETY: sends a signal to a descendant; it cannot have been replaced, since only we bury it.
                unsafe { libc::kill(process, libc::SIGKILL) };
            }
        }
        bury(0, &mut None);
        // SAFETY: asks whether a child is left, without taking it in.
        let is_childless = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) < 0
        };
        if is_childless {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The one word for how the job ended: a limit that was reached, else what the program did.
fn name_ending(setup: &Setup<'_>, place: &Place, watched: &Watched) -> Ending {
    let own = match (watched.stopped, watched.status) {
        (Some(stopped), _) => stopped,
        (None, Some(status)) if libc::WIFSIGNALED(status) => match libc::WTERMSIG(status) {
            libc::SIGXCPU => Ending::Timeout(Clock::Cpu),
            libc::SIGXFSZ => Ending::Files,
            libc::SIGKILL if watched.spent.cpu_s >= setup.limits.cpu_s => Ending::Timeout(Clock::Cpu),
            signal => Ending::Killed(signal),
        },
        (None, Some(status)) => Ending::Exited(libc::WEXITSTATUS(status)),
        (None, None) => Ending::Killed(libc::SIGKILL),
    };
    let is_at_process_limit = watched.most_tasks >= setup.limits.processes;
    match own {
        Ending::Exited(0) | Ending::Memory | Ending::Processes | Ending::Files => own,
        _ if is_at_process_limit => Ending::Processes,
        Ending::Exited(_) | Ending::Killed(_) if root::is_space_full(&place.work) => Ending::Files,
        _ => own,
    }
}

fn collect(request: &Request, place: &Place) -> Vec<(String, Collected)> {
    let Work::Run(job) = &request.work else { return Vec::new() };
    job.collect.iter().map(|name| (name.clone(), collect_one(&place.work, name))).collect()
}

fn collect_one(work: &Path, name: &str) -> Collected {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let folder = match fs::File::open(work) {
        Ok(folder) => folder,
        Err(error) => return Collected::Refused(error.to_string()),
    };
    let file = match rustix::fs::openat2(&folder, name, flags, Mode::empty(), beneath) {
        Ok(file) => fs::File::from(file),
        Err(rustix::io::Errno::LOOP) => return Collected::Refused("not a regular file".into()),
        Err(error) => return Collected::Refused(error.to_string()),
    };
    match file.metadata() {
        Ok(data) if !data.is_file() => Collected::Refused("not a regular file".into()),
        Ok(data) if data.len() > MAX_RETURNED_BYTES => {
            Collected::Refused(format!("{} bytes, more than {MAX_RETURNED_BYTES}", data.len()))
        }
        Ok(_) => {
            let mut text = String::new();
            match file.take(MAX_RETURNED_BYTES).read_to_string(&mut text) {
                Ok(_) => Collected::Text(text),
                Err(error) => Collected::Refused(error.to_string()),
            }
        }
        Err(error) => Collected::Refused(error.to_string()),
    }
}

fn read_back(report: fs::File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    while (bytes.len() as u64) < MAX_RETURNED_BYTES {
        match report.read_at(&mut buffer, bytes.len() as u64) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
