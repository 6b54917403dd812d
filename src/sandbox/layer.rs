//! The layers a job is isolated by, and the record of which of them held.
//!
//! A layer is named so that a user can waive exactly one of them (`allow_missing_isolation = ["landlock"]`) and so that every
//! stored result says what stood between the program and the machine.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One means of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The program runs as a user that owns nothing.
    Identity,
    /// Own user, process, network, IPC and host-name namespaces.
    Namespaces,
    /// A private root: read-only system folders, one small writable space in memory.
    Filesystem,
    /// Kernel limits of each process: CPU time, file size, open files, stack, core.
    Limits,
    /// A bound on the processes of the job.
    Processes,
    /// A bound on the memory of the job.
    Memory,
    /// `no_new_privs`: no set-user-id program helps.
    NoNewPrivileges,
    /// Landlock: files by an allow list, no TCP, no signals out of the job.
    Landlock,
    /// A system-call filter: no sockets, mounts, tracing, kernel interfaces.
    Seccomp,
}

impl Layer {
    /// Every layer, in the order of the record.
    pub const ALL: [Layer; 9] = [
        Layer::Identity,
        Layer::Namespaces,
        Layer::Filesystem,
        Layer::Limits,
        Layer::Processes,
        Layer::Memory,
        Layer::NoNewPrivileges,
        Layer::Landlock,
        Layer::Seccomp,
    ];

    /// The name used in configs and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Layer::Identity => "identity",
            Layer::Namespaces => "namespaces",
            Layer::Filesystem => "filesystem",
            Layer::Limits => "limits",
            Layer::Processes => "processes",
            Layer::Memory => "memory",
            Layer::NoNewPrivileges => "no_new_privileges",
            Layer::Landlock => "landlock",
            Layer::Seccomp => "seccomp",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Which layers held and by what means, and which did not and why.
///
/// A layer is in exactly one of the two maps once a job has run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    pub held: BTreeMap<Layer, String>,
    pub missing: BTreeMap<Layer, String>,
}

impl Layers {
    /// Notes that a layer holds.
    pub fn hold(&mut self, layer: Layer, means: impl Into<String>) {
        self.held.insert(layer, means.into());
    }

    /// Notes that a layer does not hold, whatever was noted before.
    pub fn miss(&mut self, layer: Layer, why: impl Into<String>) {
        self.held.remove(&layer);
        self.missing.insert(layer, why.into());
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: Vec<String> = self.held.iter().map(|(layer, means)| format!("{layer} ({means})")).collect();
        write!(formatter, "{}", held.join(", "))?;
        if !self.missing.is_empty() {
            let missing: Vec<&str> = self.missing.keys().map(|layer| layer.as_str()).collect();
            write!(formatter, "; without {}", missing.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_records_and_in_configs_are_the_same() {
        for layer in Layer::ALL {
            let written = serde_json::to_string(&layer).unwrap();
            assert_eq!(written, format!("\"{layer}\""));
        }
    }

    #[test]
    fn a_missed_layer_no_longer_holds() {
        let mut layers = Layers::default();
        layers.hold(Layer::Landlock, "abi 7");
        layers.hold(Layer::Seccomp, "filter");
        layers.miss(Layer::Landlock, "refused");
        assert_eq!(layers.to_string(), "seccomp (filter); without landlock");
    }
}
