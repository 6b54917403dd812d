//! The last steps of the child that becomes the program: each takes a right away, the last one is `exec`.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use landlock::RulesetStatus;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::init::Setup;
use super::job::{Job, Limits};
use super::protocol::{self, Refusal, Work};
use super::root::Place;
use super::{Layer, Layers, descriptor, filter, probe};

/// Descriptor of the report in the program.
const REPORT: libc::c_int = 3;
const STACK_BYTES: u64 = 10 << 20;
const OPEN_FILES: u64 = 1024;
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What the child tells the first process before it becomes the program.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sealing {
    Layers(Layers),
    Failed(Refusal),
}

/// Gives up every right and becomes the program, or says on `messages` why not.
pub(super) fn become_program(setup: &mut Setup<'_>, place: &Place, report: Option<&OwnedFd>, messages: OwnedFd) -> ! {
    let mut messages = fs::File::from(messages);
    let Err(refusal) = seal_and_run(setup, place, report, &mut messages);
    // When the first process is gone nobody is left to hear why.
    let _ = protocol::send(&mut messages, &Sealing::Failed(refusal));
    // SAFETY: ends this copy of the launcher at once; nothing of it may run twice.
    unsafe { libc::_exit(127) }
}

fn seal_and_run(
    setup: &mut Setup<'_>,
    place: &Place,
    report: Option<&OwnedFd>,
    messages: &mut fs::File,
) -> Result<std::convert::Infallible, Refusal> {
    let broken = |error: io::Error| Refusal::other(format!("cannot set up the program's process: {error}"));
    let before = matches!(setup.request.work, Work::Probe).then(probe::before_sealing);
    arrange_descriptors(report, messages).map_err(broken)?;
    arrange_signals();
    rustix::process::setsid().map_err(|error| broken(error.into()))?;
    rustix::process::setpriority_process(None, setup.niceness).map_err(|error| broken(error.into()))?;
    std::env::set_current_dir(&place.work).map_err(broken)?;

    let limits = setup.limits;
    let has_group = setup.layers.held.contains_key(&Layer::Memory);
    settle(setup, Layer::Limits, || {
        set_limits(&limits).map(|()| "CPU time, file size, open files, stack, core".into())
    })?;
    settle_processes(setup)?;
    if !has_group {
        settle(setup, Layer::Memory, || {
            set(Resource::As, limits.memory_bytes, limits.memory_bytes)?;
            let means = if place.has_proc {
                "address space of each process, total sampled"
            } else {
                "address space of each process"
            };
            Ok(means.into())
        })?;
    }
    drop_capabilities().map_err(|error| Refusal::layer(Layer::Identity, error.to_string()))?;
    settle(setup, Layer::NoNewPrivileges, || {
        rustix::thread::set_no_new_privs(true)?;
        Ok("set".into())
    })?;
    settle(setup, Layer::Landlock, || match place.allowed.restrict().map_err(io::Error::other)? {
        RulesetStatus::FullyEnforced => Ok("files, TCP, signals".into()),
        RulesetStatus::PartiallyEnforced => Ok("in part, older kernel".into()),
        RulesetStatus::NotEnforced => Err(io::Error::other("this kernel has no Landlock")),
    })?;
    let sockets = if setup.is_isolated { filter::Sockets::Internet } else { filter::Sockets::None };
    settle(setup, Layer::Seccomp, || {
        filter::install(sockets).map_err(io::Error::other)?;
        Ok("no sockets that lead anywhere, mounts, tracing, kernel interfaces".into())
    })?;
    protocol::send(messages, &Sealing::Layers(setup.layers.clone())).map_err(broken)?;

    match &setup.request.work {
        Work::Probe => probe::attempt(setup, place, before.unwrap_or_default()),
        Work::Run(job) => run(job, place),
    }
}

/// Applies one layer, or notes that it is missing where the user allows that.
fn settle(setup: &mut Setup<'_>, layer: Layer, apply: impl FnOnce() -> io::Result<String>) -> Result<(), Refusal> {
    let applied = match setup.request.simulate_missing.contains(&layer) {
        true => Err(io::Error::other("switched off")),
        false => apply(),
    };
    match applied {
        Ok(means) => setup.layers.hold(layer, means),
        Err(error) if setup.request.allow_missing.contains(&layer) => setup.layers.miss(layer, error.to_string()),
        Err(error) => return Err(Refusal::layer(layer, error.to_string())),
    }
    Ok(())
}

/// The kernel counts processes by user and user namespace: ours alone, except without either.
fn settle_processes(setup: &mut Setup<'_>) -> Result<(), Refusal> {
    let counts_ours_alone = setup.is_isolated || setup.is_root;
    // The first process counts as well.
    let bound = u64::from(setup.limits.processes) + 1;
    settle(setup, Layer::Processes, || {
        if !counts_ours_alone {
            return Err(io::Error::other("without namespaces the kernel's count includes the user's other processes"));
        }
        set(Resource::Nproc, bound, bound)?;
        Ok("kernel limit of the job's user".into())
    })
}

fn set_limits(limits: &Limits) -> io::Result<()> {
    let cpu_s = limits.cpu_s.ceil() as u64;
    set(Resource::Cpu, cpu_s, cpu_s + 1)?;
    set(Resource::Fsize, limits.files_bytes, limits.files_bytes)?;
    set(Resource::Nofile, OPEN_FILES, OPEN_FILES)?;
    set(Resource::Stack, STACK_BYTES, STACK_BYTES)?;
    set(Resource::Core, 0, 0)
}

fn set(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })?)
}

fn drop_capabilities() -> rustix::io::Result<()> {
    let none = rustix::thread::CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)
}

/// Keeps the three standard streams and the report; `messages` closes by itself at `exec`.
fn arrange_descriptors(report: Option<&OwnedFd>, messages: &mut fs::File) -> io::Result<()> {
    // SAFETY: duplicates an open descriptor to a number above those used here, which the file then owns.
    let moved = unsafe { libc::fcntl(messages.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) };
    if moved < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `moved` was just made and nothing else owns it.
    let old = std::mem::replace(messages, unsafe { std::os::fd::FromRawFd::from_raw_fd(moved) });
    drop(old);
    let kept = match report {
        Some(report) if report.as_raw_fd() == REPORT => {
            // SAFETY: lets the open descriptor pass `exec`.
            unsafe { libc::fcntl(REPORT, libc::F_SETFD, 0) };
            REPORT
        }
        Some(report) => {
            // SAFETY: the number belongs to this copy of the launcher, whose values are never dropped.
            if unsafe { libc::dup2(report.as_raw_fd(), REPORT) } < 0 {
                return Err(io::Error::last_os_error());
            }
            REPORT
        }
        None => REPORT - 1,
    };
    descriptor::close_range(kept + 1, moved - 1)?;
    descriptor::close_range(moved + 1, i32::MAX)
}

/// The runtime of this program ignores SIGPIPE; others expect the default.
fn arrange_signals() {
    // SAFETY: restores the default action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn run(job: &Job, place: &Place) -> Result<std::convert::Infallible, Refusal> {
    let program = job.argv.first().ok_or_else(|| Refusal::other("the job has no program"))?;
    let argv = strings(job.argv.iter().cloned())?;
    let environment = strings(environment(job, place))?;
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv_pointers, environment_pointers) = (pointers(&argv), pointers(&environment));
    // SAFETY: both arrays end in null and point into strings that live until the call; it returns only on failure.
    unsafe { libc::execve(argv[0].as_ptr(), argv_pointers.as_ptr(), environment_pointers.as_ptr()) };
    Err(Refusal::other(format!("cannot run `{program}` in the sandbox: {}", io::Error::last_os_error())))
}

/// The whole environment of a job: built here, never inherited.
fn environment(job: &Job, place: &Place) -> Vec<String> {
    let mut path: Vec<String> = job.search_path.iter().map(|folder| folder.display().to_string()).collect();
    path.push(SYSTEM_PATH.into());
    vec![
        format!("HOME={}", place.work.display()),
        "LANG=C.UTF-8".into(),
        format!("PATH={}", path.join(":")),
        "PYTHONHASHSEED=0".into(),
        format!("TMPDIR={}", place.temporary.display()),
        "TZ=UTC".into(),
    ]
}

fn strings(texts: impl IntoIterator<Item = String>) -> Result<Vec<CString>, Refusal> {
    let convert = |text: String| CString::new(text).map_err(|_| Refusal::other("an argument holds a zero byte"));
    texts.into_iter().map(convert).collect()
}
