//! The file system of a job.
//!
//! ```text
//! /usr /bin /lib …      the machine's, read-only          /program   the job's files, read-only
//! /etc                  five small files of our own       /box       where it starts, HOME ┐ one file system in
//! /dev                  null zero full random urandom     /tmp       TMPDIR                ├ memory, as large as
//! /proc                 of its own process namespace      /dev/shm                         ┘ the limit on files
//! ```
//!
//! Everything is made in memory, so nothing can be left behind. Folders of the machine are opened as detached mounts
//! *before* the process gives up its identity, because the interpreter may live where only its owner may look (a home
//! folder), and attached after.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind, mount_change,
    move_mount, open_tree, unmount,
};

use super::allow::AllowList;
use super::job::ProgramFile;

/// Folders every program may need. Those that are links on this machine become the same links inside.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/etc/alternatives"];
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Existing folders that may serve as the place to build on; the one used is hidden by what is built.
const BUILDING_SITES: &[&str] = &["/tmp", "/mnt", "/var", "/usr"];
/// Files and folders that can be alive at once in the writable space.
const MAX_FILES: u32 = 65_536;

const ETC: &[(&str, &str)] = &[
    ("passwd", "root:x:0:0:root:/:/bin/false\njob:x:1000:1000:job:/box:/bin/sh\n"),
    ("group", "root:x:0:\njob:x:1000:\n"),
    ("hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("hostname", "sandbox\n"),
];

/// Where a job finds its folders, in its own view.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Where it starts; also its home.
    pub work: PathBuf,
    pub temporary: PathBuf,
    /// A file that its mode lets anyone read and that no rule allows: only Landlock refuses it.
    pub sealed: PathBuf,
    pub allowed: AllowList,
    /// Whether the first process can see the others, to add up what they use.
    pub has_proc: bool,
}

/// Folders and devices of the machine as detached mounts.
pub(super) struct Sources {
    folders: Vec<(PathBuf, OwnedFd)>,
    links: Vec<(PathBuf, PathBuf)>,
    devices: Vec<(PathBuf, OwnedFd)>,
}

impl Sources {
    /// Opens what a job may read: the system's folders and the given ones.
    ///
    /// # Errors
    /// When a given folder cannot be opened, or the kernel refuses detached mounts.
    pub fn open(readable: &[PathBuf]) -> io::Result<Sources> {
        let mut sources = Sources { folders: Vec::new(), links: Vec::new(), devices: Vec::new() };
        for path in SYSTEM.iter().map(Path::new).filter(|path| path.symlink_metadata().is_ok()) {
            match fs::read_link(path) {
                Ok(target) => sources.links.push((path.to_path_buf(), target)),
                Err(_) => sources.folders.push((path.to_path_buf(), detached(path)?)),
            }
        }
        for path in readable.iter().filter(|path| !is_below(path, SYSTEM)) {
            sources.folders.push((path.clone(), detached(path)?));
        }
        for path in DEVICES.iter().map(Path::new) {
            let device = detach(path)?;
            let flags = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
            set_attributes(&device, flags, Reach::Alone)?;
            sources.devices.push((path.to_path_buf(), device));
        }
        Ok(sources)
    }
}

/// Builds the private root and moves this process into it.
///
/// Needs a mount namespace of its own and the right to mount in it.
pub(super) fn build(sources: Sources, files: &[ProgramFile], space_bytes: u64) -> io::Result<Place> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let site = BUILDING_SITES.iter().map(Path::new).find(|path| path.is_dir());
    let root = site.ok_or_else(|| io::Error::other("no folder to build a root on"))?;
    mount_memory(root, "size=64m,nr_inodes=4096,mode=0755")?;

    let mut readable = vec![PathBuf::from("/etc"), "/program".into(), "/dev".into()];
    readable.extend(sources.folders.iter().map(|(path, _)| path.clone()));
    attach(&sources, root)?;
    write_etc(&root.join("etc"))?;
    make_folder(&root.join("program"))?;
    write_files(&root.join("program"), files)?;
    make_space(root, space_bytes)?;
    let has_proc = mount_proc(root).is_ok();
    if has_proc {
        readable.push("/proc".into());
        link_descriptors(&root.join("dev"))?;
    }
    fs::write(root.join("sealed"), "")?;

    enter(root)?;
    Ok(Place {
        work: "/box".into(),
        temporary: "/tmp".into(),
        sealed: "/sealed".into(),
        allowed: AllowList {
            readable,
            writable: vec!["/box".into(), "/tmp".into(), "/dev/shm".into()],
            devices: DEVICES.iter().map(PathBuf::from).collect(),
        },
        has_proc,
    })
}

/// The folders of a job that has no private root: below one folder of the machine, bounded by Landlock alone.
pub(super) fn bare(folder: &Path, readable: &[PathBuf], files: &[ProgramFile]) -> io::Result<Place> {
    for name in ["box", "tmp", "program"] {
        make_folder(&folder.join(name))?;
    }
    write_files(&folder.join("program"), files)?;
    fs::write(folder.join("sealed"), "")?;
    let mut allowed: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    allowed.extend(readable.iter().cloned());
    allowed.push(folder.join("program"));
    Ok(Place {
        work: folder.join("box"),
        temporary: folder.join("tmp"),
        sealed: folder.join("sealed"),
        allowed: AllowList {
            readable: allowed,
            writable: vec![folder.join("box"), folder.join("tmp")],
            devices: DEVICES.iter().map(PathBuf::from).collect(),
        },
        has_proc: Path::new("/proc/self/stat").exists(),
    })
}

/// Whether the space a job may write is full, in bytes or in number of files.
pub(super) fn is_space_full(work: &Path) -> bool {
    rustix::fs::statvfs(work).is_ok_and(|space| space.f_bavail == 0 || space.f_ffree == 0)
}

fn is_below(path: &Path, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// A copy of the mounts at a path, read-only, with no devices and no set-user-id programs.
fn detached(path: &Path) -> io::Result<OwnedFd> {
    let tree = detach(path)?;
    set_attributes(&tree, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV, Reach::AndBelow)?;
    Ok(tree)
}

fn detach(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags).map_err(|error| about(path, error.into()))
}

/// Which mounts an attribute is set on.
enum Reach {
    Alone,
    AndBelow,
}

fn set_attributes(mount: &OwnedFd, flags: u64, reach: Reach) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: flags, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let at = match reach {
        Reach::Alone => libc::AT_EMPTY_PATH,
        Reach::AndBelow => libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
    };
    // SAFETY: the descriptor is open, the path is a constant, and the kernel reads `attributes` within its stated size.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            at,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn attach(sources: &Sources, root: &Path) -> io::Result<()> {
    for (path, tree) in &sources.folders {
        let target = inside(root, path);
        make_target(path, &target)?;
        put(tree, &target)?;
    }
    for (path, target) in &sources.links {
        make_parents(&inside(root, path))?;
        symlink(target, inside(root, path))?;
    }
    for (path, device) in &sources.devices {
        let target = inside(root, path);
        make_parents(&target)?;
        fs::write(&target, "")?;
        put(device, &target)?;
    }
    Ok(())
}

fn put(tree: &OwnedFd, target: &Path) -> io::Result<()> {
    move_mount(tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| about(target, error.into()))
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// An empty file or folder to mount on, the kind of what is mounted.
fn make_target(source: &Path, target: &Path) -> io::Result<()> {
    make_parents(target)?;
    if source.is_file() { fs::write(target, "") } else { make_folder(target) }
}

/// Folders above a mount can be passed through but not listed: they are no part of what the job was given.
fn make_parents(path: &Path) -> io::Result<()> {
    let parent = path.parent().expect("paths inside a root have a parent");
    if parent.is_dir() {
        return Ok(());
    }
    make_parents(parent)?;
    fs::create_dir(parent)?;
    fs::set_permissions(parent, fs::Permissions::from_mode(0o111))
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(about(path, error)),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(0o755)),
    }
}

fn write_etc(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    ETC.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
}

fn write_files(folder: &Path, files: &[ProgramFile]) -> io::Result<()> {
    for file in files {
        let is_plain = Path::new(&file.name).file_name().is_some_and(|name| name == file.name.as_str());
        if !is_plain {
            return Err(io::Error::other(format!("`{}` is not a plain file name", file.name)));
        }
        fs::write(folder.join(&file.name), &file.text)?;
    }
    Ok(())
}

/// One file system in memory for everything the job can write, seen in three places.
fn make_space(root: &Path, space_bytes: u64) -> io::Result<()> {
    let space = root.join("space");
    make_folder(&space)?;
    mount_memory(&space, &format!("size={space_bytes},nr_inodes={MAX_FILES},mode=0755"))?;
    for (name, target, mode) in [("box", "box", 0o755), ("tmp", "tmp", 0o1777), ("shm", "dev/shm", 0o1777)] {
        let source = space.join(name);
        let target = root.join(target);
        fs::create_dir(&source)?;
        fs::set_permissions(&source, fs::Permissions::from_mode(mode))?;
        make_parents(&target)?;
        make_folder(&target)?;
        mount_bind(&source, &target)?;
    }
    unmount(&space, UnmountFlags::DETACH)?;
    fs::remove_dir(&space)
}

fn mount_memory(target: &Path, options: &str) -> io::Result<()> {
    let options = CString::new(options).expect("options are written here, without zeros");
    mount("tmpfs", target, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
        .map_err(|error| about(target, error.into()))
}

fn mount_proc(root: &Path) -> io::Result<()> {
    let target = root.join("proc");
    make_folder(&target)?;
    mount("proc", &target, "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    Ok(())
}

fn link_descriptors(devices: &Path) -> io::Result<()> {
    symlink("/proc/self/fd", devices.join("fd"))?;
    for (number, name) in ["stdin", "stdout", "stderr"].iter().enumerate() {
        symlink(format!("/proc/self/fd/{number}"), devices.join(name))?;
    }
    Ok(())
}

/// Makes `root` the root of this process, read-only, and lets go of the old one.
fn enter(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    let root =
        rustix::fs::open("/", rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    set_attributes(&root, libc::MOUNT_ATTR_RDONLY, Reach::Alone)
}

fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
