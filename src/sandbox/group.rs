//! A control group that bounds the memory of a whole job, where the system lets us make one.
//!
//! Version 1 and version 2 hierarchies are both used as found. Nothing is reconfigured: a group is made below the one
//! we are in, and when that is refused the sandbox bounds each process instead and says so in the record.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the kernel may take to forget the processes of a finished job.
const REMOVAL_PATIENCE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The control group of one job; removed when dropped.
pub(super) struct Group {
    path: PathBuf,
    version: Version,
}

impl Group {
    /// A new group with a bound on memory, or `None` where the system offers no memory controller we may use.
    pub fn create(memory_bytes: u64) -> Option<Group> {
        let (parent, version) = parent_folder()?;
        let group = Group { path: parent.join(name(std::process::id())), version };
        fs::create_dir(&group.path).ok()?;
        group.limit(memory_bytes).ok()?;
        Some(group)
    }

    /// Removes what a launcher that was killed may have left.
    pub fn remove_of(launcher: u32) {
        if let Some((parent, version)) = parent_folder() {
            drop(Group { path: parent.join(name(launcher)), version });
        }
    }

    pub fn means(&self) -> &'static str {
        match self.version {
            Version::One => "control group v1",
            Version::Two => "control group v2",
        }
    }

    /// Moves a process in; its later children follow.
    pub fn add(&self, process: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), process.to_string())
    }

    /// How many processes the kernel killed for want of memory.
    pub fn kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// The most memory the group ever held.
    pub fn peak_bytes(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.max_usage_in_bytes",
            Version::Two => "memory.peak",
        };
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }

    fn limit(&self, memory_bytes: u64) -> io::Result<()> {
        let bytes = memory_bytes.to_string();
        match self.version {
            Version::One => {
                fs::write(self.path.join("memory.limit_in_bytes"), &bytes)?;
                let with_swap = self.path.join("memory.memsw.limit_in_bytes");
                if with_swap.exists() { fs::write(with_swap, &bytes) } else { Ok(()) }
            }
            Version::Two => {
                fs::write(self.path.join("memory.max"), &bytes)?;
                let swap = self.path.join("memory.swap.max");
                if swap.exists() { fs::write(swap, "0") } else { Ok(()) }
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let started = Instant::now();
        while let Err(error) = fs::remove_dir(&self.path) {
            if error.kind() == io::ErrorKind::NotFound || started.elapsed() > REMOVAL_PATIENCE {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn name(launcher: u32) -> String {
    format!("lifelong-{launcher}")
}

/// The group this process is in, as a folder below which groups with a memory bound can be made.
fn parent_folder() -> Option<(PathBuf, Version)> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let one = mount_point(&mounts, "cgroup", Some("memory")).zip(group_path(&membership, Some("memory")));
    if let Some((mount, path)) = one {
        return Some((join(mount, path), Version::One));
    }
    let (mount, path) = mount_point(&mounts, "cgroup2", None).zip(group_path(&membership, None))?;
    let folder = join(mount, path);
    let enabled = fs::read_to_string(folder.join("cgroup.subtree_control")).ok()?;
    enabled.split_whitespace().any(|controller| controller == "memory").then_some((folder, Version::Two))
}

fn join(mount: &str, path: &str) -> PathBuf {
    Path::new(mount).join(path.trim_start_matches('/'))
}

/// Where a control group file system is mounted: lines are `device point type options …`.
fn mount_point<'a>(mounts: &'a str, kind: &str, controller: Option<&str>) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, point, found, options, ..] = fields[..] else { return None };
        let has_controller = controller.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
        (found == kind && has_controller).then_some(point)
    })
}

/// Our group in one hierarchy: lines are `id:controllers:path`, with no controllers for version 2.
fn group_path<'a>(membership: &'a str, controller: Option<&str>) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_wanted = match controller {
            Some(wanted) => controllers.split(',').any(|found| found == wanted),
            None => controllers.is_empty(),
        };
        is_wanted.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hierarchies_are_read_from_their_tables() {
        let mounts =
            "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount_point(mounts, "cgroup", Some("memory")), Some("/sys/fs/cgroup/memory"));
        assert_eq!(mount_point(mounts, "cgroup", Some("pids")), None);
        assert_eq!(mount_point(mounts, "cgroup2", None), Some("/sys/fs/cgroup/unified"));
        let membership = "9:name=systemd:/\n4:cpu,memory:/a/b:c\n0::/user.slice\n";
        assert_eq!(group_path(membership, Some("memory")), Some("/a/b:c"));
        assert_eq!(group_path(membership, None), Some("/user.slice"));
    }
}
