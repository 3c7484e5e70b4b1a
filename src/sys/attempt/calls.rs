//! The calls, by their numbers in docs/threats.md. The head of [`super`] says why they are harmless.

use super::{TestCall, TextCall, number, text};

/// Above the 32 bits that the kernel reads of an `int`.
const HIGH: u64 = 1 << 32;
const BAD: u64 = u64::MAX;
/// Above every pid (PID_MAX_LIMIT).
const NOBODY: u64 = 0x7fff_fff0;

/// A call with its first arguments; the others are 0.
const fn call<const N: usize>(name: &'static str, first: [u64; N]) -> TestCall {
    TestCall::new(name, number(name), first)
}

/// S01
pub const IO_URING: &[TestCall] = &[
    call("io_uring_setup", [1]),
    call("io_uring_enter", [999]),
    call("io_uring_register", [999]),
];

/// S02
pub const OTHERS: &[TestCall] = &[
    call("ptrace(PTRACE_ATTACH)", [16, NOBODY]),
    call("ptrace(PTRACE_SEIZE)", [0x4206, NOBODY]),
    call("process_vm_readv", [NOBODY]),
    call("process_vm_writev", [NOBODY]),
    call("pidfd_getfd", [BAD]),
    call("kcmp", [NOBODY, NOBODY]),
];

/// S03
pub const PROGRAMMABLE: &[TestCall] = &[
    call("bpf", []),
    call("perf_event_open", [0, 0, BAD, BAD]),
    call("userfaultfd", [0xfff0]),
];

/// S04
pub const NAMESPACES: &[TestCall] = &[
    call("unshare(CLONE_NEWUSER)", [libc::CLONE_NEWUSER as u64]),
    call("unshare(CLONE_NEWNS)", [libc::CLONE_NEWNS as u64]),
    call("unshare(CLONE_NEWNET)", [libc::CLONE_NEWNET as u64]),
    call("unshare(CLONE_NEWPID)", [libc::CLONE_NEWPID as u64]),
    call("unshare(CLONE_NEWIPC)", [libc::CLONE_NEWIPC as u64]),
    call("unshare(CLONE_NEWUTS)", [libc::CLONE_NEWUTS as u64]),
    call("unshare(CLONE_NEWCGROUP)", [libc::CLONE_NEWCGROUP as u64]),
    call("setns", [BAD]),
    call("setns, with high bits", [BAD | HIGH]),
    // A null pointer and size 0: EINVAL on every kernel that has the call.
    call("clone3", []),
];

/// S05
pub const MOUNTS: &[TestCall] = &[
    call("mount", []),
    call("pivot_root", []),
    call("open_tree", [BAD]),
    call("move_mount", [BAD, 0, BAD]),
    call("fsopen", []),
    call("fsconfig", [BAD]),
    call("fsmount", [BAD]),
    call("fspick", [BAD]),
    call("mount_setattr", [BAD]),
];
/// S05
pub const UNMOUNT: TextCall = TextCall {
    name: "umount2",
    number: number("umount2"),
    text: text(c"/nonexistent/agentbox-verify"),
    second: 0,
};

/// S06
pub const KEYS: &[TestCall] = &[
    call("keyctl(KEYCTL_GET_KEYRING_ID)", [0, BAD - 2]),
    call("add_key", []),
    call("request_key", []),
];

/// S07
pub const HANDLES: &[TestCall] = &[
    call("open_by_handle_at", [BAD]),
    call("name_to_handle_at", [BAD]),
];

/// S08: READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE
pub const PERSONALITY: &[TestCall] = &[
    call("personality(READ_IMPLIES_EXEC)", [0x040_0000]),
    call("personality(ADDR_NO_RANDOMIZE)", [0x004_0000]),
    call("personality, with high bits", [0x040_0000 | HIGH]),
];

/// S09: with arguments that every kernel refuses.
pub const ADMINISTRATION: &[TestCall] = &[
    call("swapon", []),
    // The first magic number is wrong.
    call("reboot", []),
    call("kexec_load", [0, 0, 0, 0xfff0]),
    call("kexec_file_load", [BAD, BAD, 0, 0, 0xfff0]),
    call("init_module", []),
    call("finit_module", [BAD]),
    call("clock_settime", []),
    call("settimeofday", [1]),
    call("syslog", [10]),
    call("sethostname", [0, BAD]),
    call("quotactl", [BAD]),
    call("fanotify_init", [0xffff_ffff]),
    call("iopl", []),
];

/// S10: on a descriptor that does not exist.
pub const TERMINALS: &[TestCall] = &[
    call("ioctl(TIOCSTI)", [BAD, libc::TIOCSTI]),
    call(
        "ioctl(TIOCSTI), with high bits",
        [BAD, libc::TIOCSTI | HIGH],
    ),
    call("ioctl(TIOCLINUX)", [BAD, 0x541c]),
    call("ioctl(TIOCLINUX), with high bits", [BAD, 0x541c | HIGH]),
    call("ioctl(TIOCSETD), with high bits", [BAD, 0x5423 | HIGH]),
];

/// S11: getpid by x32's number.
pub const X32: TestCall = TestCall::new("getpid by x32", 0x4000_0000 | libc::SYS_getpid, []);

/// S12, N13
pub const FAMILIES: &[TestCall] = &[
    call("socket(AF_ALG)", [38, 5]),
    call("socket(AF_ALG), with high bits", [38 | HIGH, 5]),
    call("socket(AF_VSOCK)", [40, 1]),
    call("socket(AF_PACKET)", [17, 3]),
    call("socket(AF_BLUETOOTH)", [31, 3]),
    call("socket(AF_KEY)", [15, 3, 2]),
];
/// S12, N13: raw sockets, and protocols that are neither TCP nor UDP.
pub const RAW: &[TestCall] = &[
    call("socket(AF_INET, SOCK_RAW)", [2, 3, 1]),
    call(
        "socket(AF_INET, SOCK_RAW), with high bits",
        [2 | HIGH, 3 | HIGH, 1],
    ),
    call("socket(AF_INET6, SOCK_RAW)", [10, 3, 58]),
    call("socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)", [2, 2, 1]),
    call("socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP)", [2, 1, 262]),
];
/// N17: every netlink protocol except the one for routes.
pub const NETLINK: &[TestCall] = &[
    call("socket(AF_NETLINK, NETLINK_NETFILTER)", [16, 3, 12]),
    call("socket(AF_NETLINK, NETLINK_AUDIT)", [16, 3, 9]),
    call("socket(AF_NETLINK, NETLINK_KOBJECT_UEVENT)", [16, 3, 15]),
];

/// S13: SECCOMP_SET_MODE_FILTER with a listener, without a program.
pub const LISTENER: &[TestCall] = &[
    call("seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)", [1, 8]),
    call("seccomp, with high bits", [1, 8 | HIGH]),
];

/// S14: with last arguments that the kernel refuses before it checks capabilities.
pub const PRCTL: &[TestCall] = &[
    call("prctl(PR_SET_MM)", [35, 0, 0, 0, 1]),
    call("prctl(PR_SET_SECUREBITS)", [28]),
    call("prctl(PR_SET_SECUREBITS), with high bits", [28 | HIGH]),
    // Switched off, as it is already.
    call("prctl(PR_SET_SYSCALL_USER_DISPATCH)", [59]),
];

/// F21: a set-user-ID mode, on a descriptor that does not exist.
pub const SET_ID: &[TestCall] = &[
    call("fchmod(04755)", [BAD, 0o4755]),
    call("fchmod(02755), with high bits", [BAD, 0o2755 | HIGH]),
];

/// S16 and S17, under `paranoid`: no existing memory is touched, and no descriptor and no segment exists.
pub const EXECUTED_MEMORY: &[TestCall] = &[
    call("mmap(PROT_WRITE | PROT_EXEC)", [0, 4096, 7, 0x22, BAD]),
    call("mmap(PROT_EXEC, MAP_ANONYMOUS)", [0, 4096, 5, 0x22, BAD]),
    call("mprotect(PROT_EXEC)", [0, 0, 5]),
    call("pkey_mprotect(PROT_EXEC)", [0, 0, 5, BAD]),
    call("shmat(SHM_EXEC)", [BAD, 0, 0x8000]),
    call("memfd_create(0)", []),
    call("memfd_create(MFD_EXEC)", [0, 0x10]),
];

/// S23, under `paranoid`: refused like an unknown request.
pub const UNLISTED: &[TestCall] = &[
    call("ioctl(TIOCEXCL)", [BAD, 0x540c]),
    call("ioctl(FS_IOC_GETFLAGS)", [BAD, 0x8008_6601]),
    call("prctl(PR_GET_TIMING)", [13]),
    call("fcntl(F_SETSIG)", [BAD, 10]),
    call("fcntl(F_NOTIFY)", [BAD, 1026]),
];
