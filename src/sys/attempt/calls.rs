//! The calls, by their numbers in docs/threats.md. The head of [`super`] says why they are harmless.

use super::{TestCall, TextCall, text};

/// Above the 32 bits that the kernel reads of an `int`.
const HIGH: u64 = 1 << 32;
const BAD: u64 = u64::MAX;
/// Above every pid (PID_MAX_LIMIT).
const NOBODY: u64 = 0x7fff_fff0;

const fn flags(name: &'static str, number: libc::c_long, flags: u64) -> TestCall {
    TestCall::new(name, number, [flags, 0, 0, 0, 0])
}

/// S01
pub const IO_URING: &[TestCall] = &[
    TestCall::new("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]),
    TestCall::new(
        "io_uring_enter",
        libc::SYS_io_uring_enter,
        [999, 0, 0, 0, 0],
    ),
    TestCall::new(
        "io_uring_register",
        libc::SYS_io_uring_register,
        [999, 0, 0, 0, 0],
    ),
];

/// S02
pub const OTHERS: &[TestCall] = &[
    TestCall::new(
        "ptrace(PTRACE_ATTACH)",
        libc::SYS_ptrace,
        [16, NOBODY, 0, 0, 0],
    ),
    TestCall::new(
        "ptrace(PTRACE_SEIZE)",
        libc::SYS_ptrace,
        [0x4206, NOBODY, 0, 0, 0],
    ),
    TestCall::new(
        "process_vm_readv",
        libc::SYS_process_vm_readv,
        [NOBODY, 0, 0, 0, 0],
    ),
    TestCall::new(
        "process_vm_writev",
        libc::SYS_process_vm_writev,
        [NOBODY, 0, 0, 0, 0],
    ),
    TestCall::new("pidfd_getfd", libc::SYS_pidfd_getfd, [BAD, 0, 0, 0, 0]),
    TestCall::new("kcmp", libc::SYS_kcmp, [NOBODY, NOBODY, 0, 0, 0]),
];

/// S03
pub const PROGRAMMABLE: &[TestCall] = &[
    flags("bpf", libc::SYS_bpf, 0),
    TestCall::new(
        "perf_event_open",
        libc::SYS_perf_event_open,
        [0, 0, BAD, BAD, 0],
    ),
    flags("userfaultfd", libc::SYS_userfaultfd, 0xfff0),
];

/// S04
pub const NAMESPACES: &[TestCall] = &[
    flags(
        "unshare(CLONE_NEWUSER)",
        libc::SYS_unshare,
        libc::CLONE_NEWUSER as u64,
    ),
    flags(
        "unshare(CLONE_NEWNS)",
        libc::SYS_unshare,
        libc::CLONE_NEWNS as u64,
    ),
    flags(
        "unshare(CLONE_NEWNET)",
        libc::SYS_unshare,
        libc::CLONE_NEWNET as u64,
    ),
    flags(
        "unshare(CLONE_NEWPID)",
        libc::SYS_unshare,
        libc::CLONE_NEWPID as u64,
    ),
    flags(
        "unshare(CLONE_NEWIPC)",
        libc::SYS_unshare,
        libc::CLONE_NEWIPC as u64,
    ),
    flags(
        "unshare(CLONE_NEWUTS)",
        libc::SYS_unshare,
        libc::CLONE_NEWUTS as u64,
    ),
    flags(
        "unshare(CLONE_NEWCGROUP)",
        libc::SYS_unshare,
        libc::CLONE_NEWCGROUP as u64,
    ),
    TestCall::new("setns", libc::SYS_setns, [BAD, 0, 0, 0, 0]),
    TestCall::new(
        "setns, with high bits",
        libc::SYS_setns,
        [BAD | HIGH, 0, 0, 0, 0],
    ),
    // A null pointer and size 0: EINVAL on every kernel that has the call.
    TestCall::new("clone3", libc::SYS_clone3, [0, 0, 0, 0, 0]),
];

/// S05
pub const MOUNTS: &[TestCall] = &[
    TestCall::new("mount", libc::SYS_mount, [0, 0, 0, 0, 0]),
    TestCall::new("pivot_root", libc::SYS_pivot_root, [0, 0, 0, 0, 0]),
    TestCall::new("open_tree", libc::SYS_open_tree, [BAD, 0, 0, 0, 0]),
    TestCall::new("move_mount", libc::SYS_move_mount, [BAD, 0, BAD, 0, 0]),
    TestCall::new("fsopen", libc::SYS_fsopen, [0, 0, 0, 0, 0]),
    TestCall::new("fsconfig", libc::SYS_fsconfig, [BAD, 0, 0, 0, 0]),
    TestCall::new("fsmount", libc::SYS_fsmount, [BAD, 0, 0, 0, 0]),
    TestCall::new("fspick", libc::SYS_fspick, [BAD, 0, 0, 0, 0]),
    TestCall::new("mount_setattr", libc::SYS_mount_setattr, [BAD, 0, 0, 0, 0]),
];
/// S05
pub const UNMOUNT: TextCall = TextCall {
    name: "umount2",
    number: libc::SYS_umount2,
    text: text(c"/nonexistent/agentbox-verify"),
    second: 0,
};

/// S06
pub const KEYS: &[TestCall] = &[
    TestCall::new(
        "keyctl(KEYCTL_GET_KEYRING_ID)",
        libc::SYS_keyctl,
        [0, BAD - 2, 0, 0, 0],
    ),
    TestCall::new("add_key", libc::SYS_add_key, [0, 0, 0, 0, 0]),
    TestCall::new("request_key", libc::SYS_request_key, [0, 0, 0, 0, 0]),
];

/// S07
pub const HANDLES: &[TestCall] = &[
    TestCall::new(
        "open_by_handle_at",
        libc::SYS_open_by_handle_at,
        [BAD, 0, 0, 0, 0],
    ),
    TestCall::new(
        "name_to_handle_at",
        libc::SYS_name_to_handle_at,
        [BAD, 0, 0, 0, 0],
    ),
];

/// S08: READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE
pub const PERSONALITY: &[TestCall] = &[
    flags(
        "personality(READ_IMPLIES_EXEC)",
        libc::SYS_personality,
        0x040_0000,
    ),
    flags(
        "personality(ADDR_NO_RANDOMIZE)",
        libc::SYS_personality,
        0x004_0000,
    ),
    flags(
        "personality, with high bits",
        libc::SYS_personality,
        0x040_0000 | HIGH,
    ),
];

/// S09: with arguments that every kernel refuses.
pub const ADMINISTRATION: &[TestCall] = &[
    TestCall::new("swapon", libc::SYS_swapon, [0, 0, 0, 0, 0]),
    // The first magic number is wrong.
    TestCall::new("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0]),
    TestCall::new("kexec_load", libc::SYS_kexec_load, [0, 0, 0, 0xfff0, 0]),
    TestCall::new(
        "kexec_file_load",
        libc::SYS_kexec_file_load,
        [BAD, BAD, 0, 0, 0xfff0],
    ),
    TestCall::new("init_module", libc::SYS_init_module, [0, 0, 0, 0, 0]),
    TestCall::new("finit_module", libc::SYS_finit_module, [BAD, 0, 0, 0, 0]),
    TestCall::new("clock_settime", libc::SYS_clock_settime, [0, 0, 0, 0, 0]),
    TestCall::new("settimeofday", libc::SYS_settimeofday, [1, 0, 0, 0, 0]),
    TestCall::new("syslog", libc::SYS_syslog, [10, 0, 0, 0, 0]),
    TestCall::new("sethostname", libc::SYS_sethostname, [0, BAD, 0, 0, 0]),
    TestCall::new("quotactl", libc::SYS_quotactl, [BAD, 0, 0, 0, 0]),
    TestCall::new(
        "fanotify_init",
        libc::SYS_fanotify_init,
        [0xffff_ffff, 0, 0, 0, 0],
    ),
    TestCall::new("iopl", libc::SYS_iopl, [0, 0, 0, 0, 0]),
];

/// S10: on a descriptor that does not exist.
pub const TERMINALS: &[TestCall] = &[
    TestCall::new(
        "ioctl(TIOCSTI)",
        libc::SYS_ioctl,
        [BAD, libc::TIOCSTI, 0, 0, 0],
    ),
    TestCall::new(
        "ioctl(TIOCSTI), with high bits",
        libc::SYS_ioctl,
        [BAD, libc::TIOCSTI | HIGH, 0, 0, 0],
    ),
    TestCall::new("ioctl(TIOCLINUX)", libc::SYS_ioctl, [BAD, 0x541c, 0, 0, 0]),
    TestCall::new(
        "ioctl(TIOCLINUX), with high bits",
        libc::SYS_ioctl,
        [BAD, 0x541c | HIGH, 0, 0, 0],
    ),
    TestCall::new(
        "ioctl(TIOCSETD), with high bits",
        libc::SYS_ioctl,
        [BAD, 0x5423 | HIGH, 0, 0, 0],
    ),
];

/// S11: getpid by x32's number.
pub const X32: TestCall = flags("getpid by x32", 0x4000_0000 | libc::SYS_getpid, 0);

/// S12, N13
pub const FAMILIES: &[TestCall] = &[
    TestCall::new("socket(AF_ALG)", libc::SYS_socket, [38, 5, 0, 0, 0]),
    TestCall::new(
        "socket(AF_ALG), with high bits",
        libc::SYS_socket,
        [38 | HIGH, 5, 0, 0, 0],
    ),
    TestCall::new("socket(AF_VSOCK)", libc::SYS_socket, [40, 1, 0, 0, 0]),
    TestCall::new("socket(AF_PACKET)", libc::SYS_socket, [17, 3, 0, 0, 0]),
    TestCall::new("socket(AF_BLUETOOTH)", libc::SYS_socket, [31, 3, 0, 0, 0]),
    TestCall::new("socket(AF_KEY)", libc::SYS_socket, [15, 3, 2, 0, 0]),
];
/// S12, N13: raw sockets, and protocols that are neither TCP nor UDP.
pub const RAW: &[TestCall] = &[
    TestCall::new(
        "socket(AF_INET, SOCK_RAW)",
        libc::SYS_socket,
        [2, 3, 1, 0, 0],
    ),
    TestCall::new(
        "socket(AF_INET, SOCK_RAW), with high bits",
        libc::SYS_socket,
        [2 | HIGH, 3 | HIGH, 1, 0, 0],
    ),
    TestCall::new(
        "socket(AF_INET6, SOCK_RAW)",
        libc::SYS_socket,
        [10, 3, 58, 0, 0],
    ),
    TestCall::new(
        "socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)",
        libc::SYS_socket,
        [2, 2, 1, 0, 0],
    ),
    TestCall::new(
        "socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP)",
        libc::SYS_socket,
        [2, 1, 262, 0, 0],
    ),
];
/// N17: every netlink protocol except the one for routes.
pub const NETLINK: &[TestCall] = &[
    TestCall::new(
        "socket(AF_NETLINK, NETLINK_NETFILTER)",
        libc::SYS_socket,
        [16, 3, 12, 0, 0],
    ),
    TestCall::new(
        "socket(AF_NETLINK, NETLINK_AUDIT)",
        libc::SYS_socket,
        [16, 3, 9, 0, 0],
    ),
    TestCall::new(
        "socket(AF_NETLINK, NETLINK_KOBJECT_UEVENT)",
        libc::SYS_socket,
        [16, 3, 15, 0, 0],
    ),
];

/// S13: SECCOMP_SET_MODE_FILTER with a listener, without a program.
pub const LISTENER: &[TestCall] = &[
    TestCall::new(
        "seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)",
        libc::SYS_seccomp,
        [1, 8, 0, 0, 0],
    ),
    TestCall::new(
        "seccomp, with high bits",
        libc::SYS_seccomp,
        [1, 8 | HIGH, 0, 0, 0],
    ),
];

/// S14: with last arguments that the kernel refuses before it checks capabilities.
pub const PRCTL: &[TestCall] = &[
    TestCall::new("prctl(PR_SET_MM)", libc::SYS_prctl, [35, 0, 0, 0, 1]),
    TestCall::new(
        "prctl(PR_SET_SECUREBITS)",
        libc::SYS_prctl,
        [28, 0, 0, 0, 0],
    ),
    TestCall::new(
        "prctl(PR_SET_SECUREBITS), with high bits",
        libc::SYS_prctl,
        [28 | HIGH, 0, 0, 0, 0],
    ),
    // Switched off, as it is already.
    TestCall::new(
        "prctl(PR_SET_SYSCALL_USER_DISPATCH)",
        libc::SYS_prctl,
        [59, 0, 0, 0, 0],
    ),
];

/// F21: a set-user-ID mode, on a descriptor that does not exist.
pub const SET_ID: &[TestCall] = &[
    TestCall::new("fchmod(04755)", libc::SYS_fchmod, [BAD, 0o4755, 0, 0, 0]),
    TestCall::new(
        "fchmod(02755), with high bits",
        libc::SYS_fchmod,
        [BAD, 0o2755 | HIGH, 0, 0, 0],
    ),
];

/// S16 and S17, under `paranoid`: no existing memory is touched, and no descriptor and no segment exists.
pub const EXECUTED_MEMORY: &[TestCall] = &[
    TestCall::new(
        "mmap(PROT_WRITE | PROT_EXEC)",
        libc::SYS_mmap,
        [0, 4096, 7, 0x22, BAD],
    ),
    TestCall::new(
        "mmap(PROT_EXEC, MAP_ANONYMOUS)",
        libc::SYS_mmap,
        [0, 4096, 5, 0x22, BAD],
    ),
    TestCall::new("mprotect(PROT_EXEC)", libc::SYS_mprotect, [0, 0, 5, 0, 0]),
    TestCall::new(
        "pkey_mprotect(PROT_EXEC)",
        libc::SYS_pkey_mprotect,
        [0, 0, 5, BAD, 0],
    ),
    TestCall::new("shmat(SHM_EXEC)", libc::SYS_shmat, [BAD, 0, 0x8000, 0, 0]),
    TestCall::new("memfd_create(0)", libc::SYS_memfd_create, [0, 0, 0, 0, 0]),
    TestCall::new(
        "memfd_create(MFD_EXEC)",
        libc::SYS_memfd_create,
        [0, 0x10, 0, 0, 0],
    ),
];

/// S23, under `paranoid`: refused like an unknown request.
pub const UNLISTED: &[TestCall] = &[
    TestCall::new("ioctl(TIOCEXCL)", libc::SYS_ioctl, [BAD, 0x540c, 0, 0, 0]),
    TestCall::new(
        "ioctl(FS_IOC_GETFLAGS)",
        libc::SYS_ioctl,
        [BAD, 0x8008_6601, 0, 0, 0],
    ),
    TestCall::new("prctl(PR_GET_TIMING)", libc::SYS_prctl, [13, 0, 0, 0, 0]),
    TestCall::new("fcntl(F_SETSIG)", libc::SYS_fcntl, [BAD, 10, 0, 0, 0]),
    TestCall::new("fcntl(F_NOTIFY)", libc::SYS_fcntl, [BAD, 1026, 0, 0, 0]),
];
