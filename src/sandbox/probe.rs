//! Trying each layer by doing what it must refuse.
//!
//! A layer that was "applied" may still not hold: a security module may have undone it, a kernel may lack the part we
//! count on. So once, before anything hostile runs, a harmless process goes through all the steps of a job and then
//! attempts, for each layer, something that only this layer refuses.

use std::io;

use super::Layer;
use super::init::Setup;
use super::job::Limits;
use super::protocol::Refusal;
use super::root::Place;

/// Small, so that filling them takes milliseconds.
pub(super) const LIMITS: Limits = Limits {
    cpu_s: 5.0,
    wall_s: 10.0,
    memory_bytes: 64 << 20,
    processes: 8,
    output_bytes: 65_536,
    files_bytes: 1 << 20,
};

/// What was tried before the filters closed.
#[derive(Default)]
pub(super) struct Before {
    has_route: bool,
}

/// Asks for a route out of the machine; connecting a datagram socket sends nothing.
pub(super) fn before_sealing() -> Before {
    // 192.0.2.0/24 is reserved for documentation (RFC 5737).
    let connect = || std::net::UdpSocket::bind("0.0.0.0:0")?.connect("192.0.2.1:9");
    Before { has_route: connect().is_ok() }
}

/// Attempts everything, writes which layers failed to refuse as a JSON object into the report, and ends the process.
pub(super) fn attempt(setup: &Setup<'_>, place: &Place, before: Before) -> Result<std::convert::Infallible, Refusal> {
    let mut failures = std::collections::BTreeMap::new();
    for layer in setup.layers.held.keys() {
        if let Err(what) = try_layer(*layer, setup, place, &before) {
            failures.insert(*layer, what);
        }
    }
    let text = serde_json::to_vec(&failures).map_err(|error| Refusal::other(error.to_string()))?;
    // SAFETY: descriptor 3 is the report; the process ends right after.
    unsafe {
        libc::pwrite(3, text.as_ptr().cast(), text.len(), 0);
        libc::_exit(0)
    }
}

fn try_layer(layer: Layer, setup: &Setup<'_>, place: &Place, before: &Before) -> Result<(), String> {
    match layer {
        Layer::Identity => expect_refusal("becoming root", rustix::thread::set_thread_uid(rustix::process::Uid::ROOT)),
        Layer::Namespaces => {
            let is_second = rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == 1);
            check(is_second, "the job sees processes of the machine")?;
            check(!before.has_route, "the job has a route out of the machine")
        }
        Layer::Filesystem => {
            let root = rustix::fs::stat("/").map_err(|error| error.to_string())?;
            check((root.st_dev, root.st_ino) != setup.machine_root, "the job sees the root of the machine")
        }
        Layer::Limits => try_file_size(setup.limits.files_bytes),
        Layer::Processes => try_processes(setup.limits.processes),
        Layer::Memory => try_memory(setup.limits.memory_bytes as usize),
        Layer::NoNewPrivileges => {
            check(rustix::thread::no_new_privs() == Ok(true), "set-user-id programs still give rights")
        }
        Layer::Landlock => expect_refusal("opening a file outside the list", std::fs::File::open(&place.sealed)),
        Layer::Seccomp => expect_refusal("making a socket", std::os::unix::net::UnixDatagram::unbound()),
    }
}

fn check(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_string()) }
}

fn expect_refusal<T, E>(what: &str, result: Result<T, E>) -> Result<(), String> {
    check(result.is_err(), &format!("{what} was not refused"))
}

fn try_file_size(limit: u64) -> Result<(), String> {
    // SAFETY: the signal would end this process before it can tell that the write was refused.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let write = || -> io::Result<()> {
        let file = std::fs::File::create("probe")?;
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", limit)
    };
    let refused = write();
    // The work folder goes with the job; removing early only keeps it tidy for later attempts.
    let _ = std::fs::remove_file("probe");
    expect_refusal("writing past the file size limit", refused)
}

/// Starts idle processes until the kernel refuses.
fn try_processes(limit: u32) -> Result<(), String> {
    let mut children = Vec::new();
    let mut is_refused = false;
    for _ in 0..=limit {
        // SAFETY: this process has one thread; the child only waits for its end.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            },
            child if child > 0 => children.push(child),
            _ => {
                is_refused = true;
                break;
            }
        }
    }
    for child in children {
        end(child);
    }
    check(is_refused, "starting more processes than the limit was not refused")
}

/// Touches twice the limit in a process of its own, which must not survive that.
fn try_memory(limit: usize) -> Result<(), String> {
    // SAFETY: this process has one thread; the child touches only memory it maps itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let length = 2 * limit;
        // SAFETY: a fresh private mapping, written within its length; the child ends right after.
        unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let memory = libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0);
            if memory == libc::MAP_FAILED {
                libc::_exit(1);
            }
            for offset in (0..length).step_by(4096) {
                memory.cast::<u8>().add(offset).write_volatile(1);
            }
            libc::_exit(0);
        }
    }
    check(child > 0, "no process could be started")?;
    let mut status = 0;
    // SAFETY: the kernel writes one status of our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    let survived = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    check(!survived, "filling twice the memory limit was not refused")
}

fn end(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: signals and takes in our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
    }
}
