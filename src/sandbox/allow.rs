//! The Landlock rules of a job: an allow list of files, and nothing else of what Landlock can hand out.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};

/// The newest rules we know how to ask for; older kernels enforce the part they have.
const NEWEST: ABI = ABI::V7;

/// What a job may do with which paths. Paths that do not exist are passed over.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowList {
    /// Read and run, everything below.
    pub readable: Vec<PathBuf>,
    /// Read, write, run, make and remove, everything below.
    pub writable: Vec<PathBuf>,
    /// Device files to read and write.
    pub devices: Vec<PathBuf>,
}

impl AllowList {
    /// Restricts this thread and everything it starts to the list; also no TCP, no signals or abstract sockets out of
    /// the job. There is no way back.
    ///
    /// # Returns
    /// Whether the kernel enforces all of it, a part, or nothing.
    pub fn restrict(&self) -> Result<RulesetStatus, RulesetError> {
        let everything = AccessFs::from_all(NEWEST);
        let devices = make_bitflags!(AccessFs::{MakeChar | MakeBlock});
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(everything)?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        rules = allow(rules, &self.readable, AccessFs::from_read(NEWEST))?;
        rules = allow(rules, &self.writable, everything & !devices)?;
        rules = allow(rules, &self.devices, make_bitflags!(AccessFs::{ReadFile | WriteFile}))?;
        Ok(rules.restrict_self()?.ruleset)
    }
}

fn allow(
    mut rules: RulesetCreated,
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for path in paths {
        let Ok(opened) = PathFd::new(path) else { continue };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        rules = rules.add_rule(PathBeneath::new(opened, access))?;
    }
    Ok(rules)
}
