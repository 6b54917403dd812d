//! Watching the processes of a job through `/proc`: their CPU time, memory and number.

use std::collections::HashMap;
use std::fs;

/// The job at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// CPU seconds of the living, and of the dead they waited for.
    pub cpu_s: f64,
    /// Sum of resident memory; shared pages count once for each process.
    pub resident_bytes: u64,
    /// Threads of all processes.
    pub tasks: u32,
    /// Process ids, as this process sees them.
    pub processes: Vec<i32>,
}

/// What `/proc/PID/stat` says of one process.
struct Stat {
    parent: i32,
    is_dead: bool,
    cpu_ticks: u64,
    tasks: u32,
    resident_pages: u64,
}

/// All living descendants of a process, itself left out. Empty where there is no `/proc`.
pub(super) fn descendants_of(ancestor: i32) -> Sample {
    let stats = read_all();
    let mut sample = Sample::default();
    let mut cpu_ticks = 0;
    for (process, stat) in &stats {
        if *process == ancestor || stat.is_dead || !descends(&stats, *process, ancestor) {
            continue;
        }
        cpu_ticks += stat.cpu_ticks;
        sample.resident_bytes += stat.resident_pages * system_value(libc::_SC_PAGESIZE);
        sample.tasks += stat.tasks;
        sample.processes.push(*process);
    }
    sample.cpu_s = cpu_ticks as f64 / system_value(libc::_SC_CLK_TCK) as f64;
    sample
}

/// Memory with shared pages divided among those who share them.
pub(super) fn proportional_bytes(processes: &[i32]) -> u64 {
    let proportional = |process: &i32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    processes.iter().filter_map(proportional).sum::<u64>() * 1024
}

fn system_value(name: libc::c_int) -> u64 {
    // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).expect("page size and clock tick are always known")
}

fn read_all() -> HashMap<i32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return HashMap::new() };
    entries
        .filter_map(|entry| {
            let process: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            Some((process, parse(&text)?))
        })
        .collect()
}

/// Fields by their number in proc_pid_stat(5). The name in field 2 may hold anything, so reading starts after its
/// last parenthesis, at field 3.
fn parse(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |index: usize| -> Option<u64> { field(index)?.parse().ok() };
    Some(Stat {
        parent: field(4)?.parse().ok()?,
        is_dead: matches!(field(3)?, "Z" | "X"),
        cpu_ticks: number(14)? + number(15)? + number(16)? + number(17)?,
        tasks: field(20)?.parse().ok()?,
        resident_pages: number(24)?,
    })
}

fn descends(stats: &HashMap<i32, Stat>, process: i32, ancestor: i32) -> bool {
    let mut current = process;
    for _ in 0..stats.len() {
        let Some(stat) = stats.get(&current) else { return false };
        if stat.parent == ancestor {
            return true;
        }
        current = stat.parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_fields() {
        let text = "7 (a ) b) S 3 7 7 0 -1 4194560 100 0 0 0 5 6 7 8 20 0 2 0 100 1000000 250 18446744073709551615";
        let stat = parse(text).unwrap();
        assert_eq!((stat.parent, stat.cpu_ticks, stat.tasks, stat.resident_pages), (3, 26, 2, 250));
        assert!(!stat.is_dead);
    }

    #[test]
    fn a_child_is_a_descendant_and_we_are_not_our_own() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let ours = std::process::id() as i32;
        let sample = descendants_of(ours);
        assert!(sample.processes.contains(&(child.id() as i32)));
        assert!(!sample.processes.contains(&ours));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
