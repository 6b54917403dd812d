//! How much memory this machine has.

/// What is kept free beside a model's weights when it is asked whether they fit: the cache of a few thousand tokens of a
/// model that fills the machine, activations, and the program.
pub const HEADROOM_BYTES: u64 = 1 << 30;

/// Bytes of memory in all; `None` where the system does not say.
pub fn memory_bytes() -> Option<u64> {
    field("MemTotal:")
}

/// Bytes that are free now or can be freed; `None` where the system does not say.
pub fn available_bytes() -> Option<u64> {
    field("MemAvailable:")
}

/// Whether weights of that many bytes fit into that much memory.
pub fn fits(weight_bytes: u64, memory_bytes: u64) -> bool {
    weight_bytes.checked_add(HEADROOM_BYTES).is_some_and(|needed| needed <= memory_bytes)
}

fn field(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_fit_with_a_gibibyte_to_spare() {
        assert!(fits(3 << 30, 4 << 30) && !fits((3 << 30) + 1, 4 << 30));
        assert!(!fits(u64::MAX, u64::MAX), "no overflow");
    }

    #[test]
    fn what_is_available_is_a_part_of_what_there_is() {
        if let (Some(all), Some(free)) = (memory_bytes(), available_bytes()) {
            assert!(free <= all && all > 1 << 20);
        }
    }
}
