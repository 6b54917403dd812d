//! The system-call filter of a job.
//!
//! A deny list, not an allow list: scientific Python uses hundreds of calls, and the other layers already bound what
//! an allowed call can reach. What is refused is what opens a way around them: sockets, mounts and namespaces,
//! tracing, programs for the kernel, and its rarely used interfaces.
//!
//! In a network namespace of its own a job may *make* internet sockets, which lead nowhere there: tests of programs
//! that try a connection expect that it fails, not that there are no sockets (BigCodeBench/147).

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

/// Which sockets a job may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// Internet sockets: the network namespace has no way out.
    Internet,
    None,
}

/// Calls refused with `EPERM` whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    // mounts and namespaces
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // programs for the kernel, and its bookkeeping
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_memfd_secret,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_quotactl,
    // the machine
    libc::SYS_acct,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_vhangup,
];

/// Flags of `clone` that make a namespace.
const NAMESPACE_FLAGS: &[libc::c_int] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Installs the filters on this thread, for it and everything it starts. There is no way back.
///
/// # Errors
/// When the kernel takes no filter or the processor is not one we have filters for.
pub(super) fn install(sockets: Sockets) -> Result<(), seccompiler::Error> {
    let architecture: TargetArch = std::env::consts::ARCH.try_into().map_err(seccompiler::Error::Backend)?;
    for program in [foreign_numbers(), no_clone3(architecture)?, refused(sockets, architecture)?] {
        if !program.is_empty() {
            apply_filter(&program)?;
        }
    }
    Ok(())
}

fn refused(sockets: Sockets, architecture: TargetArch) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let new_namespace = |flag: &libc::c_int| {
        let flag = *flag as u64;
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![condition])
    };
    let clone_rules: Result<Vec<SeccompRule>, _> = NAMESPACE_FLAGS.iter().map(new_namespace).collect();
    rules.insert(libc::SYS_clone, clone_rules.map_err(seccompiler::Error::Backend)?);
    rules.insert(libc::SYS_socket, refused_sockets(sockets).map_err(seccompiler::Error::Backend)?);
    compile(rules, libc::EPERM, architecture)
}

fn refused_sockets(sockets: Sockets) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    if sockets == Sockets::None {
        return Ok(Vec::new());
    }
    let is_not =
        |family: libc::c_int| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family as u64);
    Ok(vec![SeccompRule::new(vec![is_not(libc::AF_INET)?, is_not(libc::AF_INET6)?])?])
}

/// `clone3` takes its flags in memory, where a filter cannot look: the C library falls back to `clone` when it is told
/// that there is no such call.
fn no_clone3(architecture: TargetArch) -> Result<BpfProgram, seccompiler::Error> {
    compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS, architecture)
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: libc::c_int,
    architecture: TargetArch,
) -> Result<BpfProgram, seccompiler::Error> {
    let refuse = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture);
    filter.and_then(BpfProgram::try_from).map_err(seccompiler::Error::Backend)
}

/// x86-64 kernels may answer a second set of call numbers (x32, bit 30 set) which the lists above do not name.
fn foreign_numbers() -> BpfProgram {
    if !cfg!(target_arch = "x86_64") {
        return Vec::new();
    }
    const FIRST_X32_CALL: u32 = 0x4000_0000;
    let load_number = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump_if_at_least = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let give_back = (libc::BPF_RET | libc::BPF_K) as u16;
    vec![
        sock_filter { code: load_number, jt: 0, jf: 0, k: 0 },
        sock_filter { code: jump_if_at_least, jt: 0, jf: 1, k: FIRST_X32_CALL },
        sock_filter { code: give_back, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32 },
        sock_filter { code: give_back, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ]
}
