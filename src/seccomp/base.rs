//! Generated from `policies/syscalls/base.toml`, with its reasons; a test holds that both are equal. Parsing the TOML
//! at every start would take longer than compiling the filter.
//!
//! `AGENTBOX_BLESS=1 cargo test base_rs_is_what_base_toml_says` writes this file.

use std::borrow::Cow;

use super::rule::{Case, Condition, Op, Rule, SyscallVerdict, Width};

/// The rule of one call.
pub(super) struct BaseRule {
    pub number: u16,
    /// An index into [`REASONS`].
    pub reason: u16,
    pub rule: Rule,
}

const fn allow(number: u16, reason: u16) -> BaseRule {
    BaseRule { number, reason, rule: Rule::always(SyscallVerdict::Allow) }
}

const fn deny(number: u16, reason: u16, errno: u16) -> BaseRule {
    BaseRule { number, reason, rule: Rule::always(SyscallVerdict::Errno(errno)) }
}

const fn check(number: u16, reason: u16, cases: &'static [Case], errno: u16) -> BaseRule {
    BaseRule { number, reason, rule: Rule { cases: Cow::Borrowed(cases), otherwise: SyscallVerdict::Errno(errno) } }
}

/// Why the rules are as they are.
pub(super) static REASONS: &[&str] = &[
    "FIFOs, sockets and plain files; device nodes need CAP_MKNOD, which no policy gives, and a second lock costs nothing",
    "PER_LINUX, PER_LINUX32, UNAME26 and the query; READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE and MMAP_PAGE_ZERO weaken",
    "System V and POSIX IPC inside the container's own ipc namespace",
    "UNIX, TCP, UDP and NETLINK_ROUTE (getaddrinfo and getifaddrs need it); no raw, packet, ICMP, UDP-Lite, SCTP, DCCP, MPTCP, L2TP or SMC sockets, no other family",
    "a root directory of the process's own; it needs CAP_SYS_CHROOT. The walls are mounts, which every root below the container's shows, and above that there is nothing (pivot_root)",
    "acting on another process's memory; allocators and memory managers fall back",
    "administration of the machine",
    "anonymous files; compilers, browsers and language runtimes pass data in them, and a file in /tmp can do the same",
    "extended attributes; most need a capability that no policy grants, except security.selinux without a loaded policy: a filter cannot read names",
    "facts about the machine and the process",
    "file handles bypass the path and so the mounts (the shocker exploit of 2014)",
    "files by name: mounts and the files' own permissions decide what may be touched, not this filter",
    "ids of users and groups; a change of them needs CAP_SETUID or CAP_SETGID, which package managers use under standard and permissive",
    "io_uring does the work of other calls without passing any filter",
    "its flags are behind a pointer, where a filter cannot look; libcs fall back to clone(2)",
    "keyrings are not namespaced: keys of the host and of other containers",
    "limits of the process; the limit of core files stays as it is, since any other value starts the node's crash helper as root",
    "memory of the process itself; JITs need W+X, which is another wall's business",
    "mounting would undo the filesystem wall",
    "new, and nothing ordinary needs them yet",
    "other namespaces are other walls: of networks, of users with all capabilities, of mounts",
    "pairs of UNIX sockets; other families have no ordinary pairs",
    "placement of memory on NUMA nodes; libnuma takes this for a machine without, as its probe does",
    "processes and their ends; execve is also how the runtime itself starts the program behind this filter",
    "programs inside the kernel, and windows into it that exploits are built on",
    "programs may fence themselves further in: verdicts only get stricter. No listener: its holder could answer CONTINUE for a child",
    "programs that fence themselves further in",
    "rare, and a part of many exploits; programs that try them fall back",
    "reading and steering other processes, and taking their files; the calls that a debugger needs are within syscalls.limit of standard",
    "reading mounts by the new mount API; programs fall back to /proc/self/mountinfo",
    "reading, writing and multiplexing of files that are open already",
    "relics: never implemented on x86_64, removed since, or without a user",
    "renames and exchanges; RENAME_WHITEOUT leaves a device node without CAP_MKNOD",
    "requests of terminals, readiness, flags of descriptors, copies of files and facts about files and interfaces; no request of a driver, file system or socket",
    "setting the clock; the modes of the adjtimex family are behind a pointer, so reading goes with it",
    "signals",
    "sockets that exist already; which kinds may be made is checked in socket(2)",
    "the kernel plants code that makes this call when an operator traces from outside; any other caller gets a signal for it",
    "the new mount API; programs fall back to mount(2), which is denied",
    "the old asynchronous I/O of databases; it acts on open files only, unlike io_uring",
    "the ordinary options; PR_SET_MM forges /proc, securebits change the meaning of capabilities, syscall user dispatch and KSM are not for guests",
    "thread-local storage, AMX permission and shadow stacks; not the vDSO mappings that CRIU makes",
    "threads and children, but no new namespaces (CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET)",
    "threads and their locks",
    "time and timers; reading only, and mostly served by the vDSO",
];

/// The rule of every x86_64 call, sorted by number.
pub(super) static BASE: &[BaseRule] = &[
    allow(0, 30), // read
    allow(1, 30), // write
    allow(2, 11), // open
    allow(3, 30), // close
    allow(4, 11), // stat
    allow(5, 30), // fstat
    allow(6, 11), // lstat
    allow(7, 30), // poll
    allow(8, 30), // lseek
    allow(9, 17), // mmap
    allow(10, 17), // mprotect
    allow(11, 17), // munmap
    allow(12, 17), // brk
    allow(13, 35), // rt_sigaction
    allow(14, 35), // rt_sigprocmask
    allow(15, 35), // rt_sigreturn
    check(16, 33, &IOCTL, 25), // ioctl
    allow(17, 30), // pread64
    allow(18, 30), // pwrite64
    allow(19, 30), // readv
    allow(20, 30), // writev
    allow(21, 11), // access
    allow(22, 30), // pipe
    allow(23, 30), // select
    allow(24, 43), // sched_yield
    allow(25, 17), // mremap
    allow(26, 17), // msync
    allow(27, 17), // mincore
    allow(28, 17), // madvise
    allow(29, 2), // shmget
    allow(30, 2), // shmat
    allow(31, 2), // shmctl
    allow(32, 30), // dup
    allow(33, 30), // dup2
    allow(34, 35), // pause
    allow(35, 44), // nanosleep
    allow(36, 44), // getitimer
    allow(37, 44), // alarm
    allow(38, 44), // setitimer
    allow(39, 23), // getpid
    allow(40, 30), // sendfile
    check(41, 3, &SOCKET, 97), // socket
    allow(42, 36), // connect
    allow(43, 36), // accept
    allow(44, 36), // sendto
    allow(45, 36), // recvfrom
    allow(46, 36), // sendmsg
    allow(47, 36), // recvmsg
    allow(48, 36), // shutdown
    allow(49, 36), // bind
    allow(50, 36), // listen
    allow(51, 36), // getsockname
    allow(52, 36), // getpeername
    check(53, 21, &SOCKETPAIR, 97), // socketpair
    allow(54, 36), // setsockopt
    allow(55, 36), // getsockopt
    check(56, 42, &CLONE, 1), // clone
    allow(57, 23), // fork
    allow(58, 23), // vfork
    allow(59, 23), // execve
    allow(60, 23), // exit
    allow(61, 23), // wait4
    allow(62, 23), // kill
    allow(63, 9), // uname
    allow(64, 2), // semget
    allow(65, 2), // semop
    allow(66, 2), // semctl
    allow(67, 2), // shmdt
    allow(68, 2), // msgget
    allow(69, 2), // msgsnd
    allow(70, 2), // msgrcv
    allow(71, 2), // msgctl
    allow(72, 30), // fcntl
    allow(73, 30), // flock
    allow(74, 30), // fsync
    allow(75, 30), // fdatasync
    allow(76, 11), // truncate
    allow(77, 30), // ftruncate
    allow(78, 30), // getdents
    allow(79, 11), // getcwd
    allow(80, 11), // chdir
    allow(81, 30), // fchdir
    allow(82, 11), // rename
    allow(83, 11), // mkdir
    allow(84, 11), // rmdir
    allow(85, 11), // creat
    allow(86, 11), // link
    allow(87, 11), // unlink
    allow(88, 11), // symlink
    allow(89, 11), // readlink
    allow(90, 11), // chmod
    allow(91, 30), // fchmod
    allow(92, 11), // chown
    allow(93, 30), // fchown
    allow(94, 11), // lchown
    allow(95, 11), // umask
    allow(96, 44), // gettimeofday
    allow(97, 9), // getrlimit
    allow(98, 9), // getrusage
    allow(99, 9), // sysinfo
    allow(100, 44), // times
    deny(101, 28, 1), // ptrace
    allow(102, 12), // getuid
    deny(103, 6, 1), // syslog
    allow(104, 12), // getgid
    allow(105, 12), // setuid
    allow(106, 12), // setgid
    allow(107, 12), // geteuid
    allow(108, 12), // getegid
    allow(109, 23), // setpgid
    allow(110, 23), // getppid
    allow(111, 23), // getpgrp
    allow(112, 23), // setsid
    allow(113, 12), // setreuid
    allow(114, 12), // setregid
    allow(115, 12), // getgroups
    allow(116, 12), // setgroups
    allow(117, 12), // setresuid
    allow(118, 12), // getresuid
    allow(119, 12), // setresgid
    allow(120, 12), // getresgid
    allow(121, 23), // getpgid
    allow(122, 12), // setfsuid
    allow(123, 12), // setfsgid
    allow(124, 23), // getsid
    allow(125, 12), // capget
    allow(126, 12), // capset
    allow(127, 35), // rt_sigpending
    allow(128, 35), // rt_sigtimedwait
    allow(129, 35), // rt_sigqueueinfo
    allow(130, 35), // rt_sigsuspend
    allow(131, 35), // sigaltstack
    allow(132, 11), // utime
    check(133, 0, &MKNOD, 1), // mknod
    deny(134, 31, 38), // uselib
    check(135, 1, &PERSONALITY, 1), // personality
    deny(136, 31, 38), // ustat
    allow(137, 11), // statfs
    allow(138, 30), // fstatfs
    deny(139, 31, 38), // sysfs
    allow(140, 43), // getpriority
    allow(141, 43), // setpriority
    allow(142, 43), // sched_setparam
    allow(143, 43), // sched_getparam
    allow(144, 43), // sched_setscheduler
    allow(145, 43), // sched_getscheduler
    allow(146, 43), // sched_get_priority_max
    allow(147, 43), // sched_get_priority_min
    allow(148, 43), // sched_rr_get_interval
    allow(149, 17), // mlock
    allow(150, 17), // munlock
    allow(151, 17), // mlockall
    allow(152, 17), // munlockall
    deny(153, 6, 1), // vhangup
    deny(154, 27, 38), // modify_ldt
    deny(155, 18, 1), // pivot_root
    deny(156, 31, 38), // _sysctl
    check(157, 40, &PRCTL, 22), // prctl
    check(158, 41, &ARCH_PRCTL, 22), // arch_prctl
    deny(159, 34, 1), // adjtimex
    check(160, 16, &SETRLIMIT, 0), // setrlimit
    allow(161, 4), // chroot
    allow(162, 30), // sync
    deny(163, 6, 1), // acct
    deny(164, 34, 1), // settimeofday
    deny(165, 18, 1), // mount
    deny(166, 18, 1), // umount2
    deny(167, 6, 1), // swapon
    deny(168, 6, 1), // swapoff
    deny(169, 6, 1), // reboot
    deny(170, 6, 1), // sethostname
    deny(171, 6, 1), // setdomainname
    deny(172, 6, 1), // iopl
    deny(173, 6, 1), // ioperm
    deny(174, 31, 38), // create_module
    deny(175, 6, 1), // init_module
    deny(176, 6, 1), // delete_module
    deny(177, 31, 38), // get_kernel_syms
    deny(178, 31, 38), // query_module
    deny(179, 6, 1), // quotactl
    deny(180, 31, 38), // nfsservctl
    deny(181, 31, 38), // getpmsg
    deny(182, 31, 38), // putpmsg
    deny(183, 31, 38), // afs_syscall
    deny(184, 31, 38), // tuxcall
    deny(185, 31, 38), // security
    allow(186, 43), // gettid
    allow(187, 30), // readahead
    allow(188, 8), // setxattr
    allow(189, 8), // lsetxattr
    allow(190, 8), // fsetxattr
    allow(191, 8), // getxattr
    allow(192, 8), // lgetxattr
    allow(193, 8), // fgetxattr
    allow(194, 8), // listxattr
    allow(195, 8), // llistxattr
    allow(196, 8), // flistxattr
    allow(197, 8), // removexattr
    allow(198, 8), // lremovexattr
    allow(199, 8), // fremovexattr
    allow(200, 23), // tkill
    allow(201, 44), // time
    allow(202, 43), // futex
    allow(203, 43), // sched_setaffinity
    allow(204, 43), // sched_getaffinity
    deny(205, 31, 38), // set_thread_area
    allow(206, 39), // io_setup
    allow(207, 39), // io_destroy
    allow(208, 39), // io_getevents
    allow(209, 39), // io_submit
    allow(210, 39), // io_cancel
    deny(211, 31, 38), // get_thread_area
    deny(212, 6, 1), // lookup_dcookie
    allow(213, 30), // epoll_create
    deny(214, 31, 38), // epoll_ctl_old
    deny(215, 31, 38), // epoll_wait_old
    deny(216, 27, 38), // remap_file_pages
    allow(217, 30), // getdents64
    allow(218, 43), // set_tid_address
    allow(219, 35), // restart_syscall
    allow(220, 2), // semtimedop
    allow(221, 30), // fadvise64
    allow(222, 44), // timer_create
    allow(223, 44), // timer_settime
    allow(224, 44), // timer_gettime
    allow(225, 44), // timer_getoverrun
    allow(226, 44), // timer_delete
    deny(227, 34, 1), // clock_settime
    allow(228, 44), // clock_gettime
    allow(229, 44), // clock_getres
    allow(230, 44), // clock_nanosleep
    allow(231, 23), // exit_group
    allow(232, 30), // epoll_wait
    allow(233, 30), // epoll_ctl
    allow(234, 23), // tgkill
    allow(235, 11), // utimes
    deny(236, 31, 38), // vserver
    deny(237, 22, 38), // mbind
    deny(238, 22, 38), // set_mempolicy
    deny(239, 22, 38), // get_mempolicy
    allow(240, 2), // mq_open
    allow(241, 2), // mq_unlink
    allow(242, 2), // mq_timedsend
    allow(243, 2), // mq_timedreceive
    allow(244, 2), // mq_notify
    allow(245, 2), // mq_getsetattr
    deny(246, 6, 1), // kexec_load
    allow(247, 23), // waitid
    deny(248, 15, 1), // add_key
    deny(249, 15, 1), // request_key
    deny(250, 15, 1), // keyctl
    allow(251, 43), // ioprio_set
    allow(252, 43), // ioprio_get
    allow(253, 30), // inotify_init
    allow(254, 30), // inotify_add_watch
    allow(255, 30), // inotify_rm_watch
    deny(256, 22, 38), // migrate_pages
    allow(257, 11), // openat
    allow(258, 11), // mkdirat
    check(259, 0, &MKNODAT, 1), // mknodat
    allow(260, 11), // fchownat
    allow(261, 11), // futimesat
    allow(262, 11), // newfstatat
    allow(263, 11), // unlinkat
    allow(264, 11), // renameat
    allow(265, 11), // linkat
    allow(266, 11), // symlinkat
    allow(267, 11), // readlinkat
    allow(268, 11), // fchmodat
    allow(269, 11), // faccessat
    allow(270, 30), // pselect6
    allow(271, 30), // ppoll
    deny(272, 20, 1), // unshare
    allow(273, 43), // set_robust_list
    allow(274, 43), // get_robust_list
    allow(275, 30), // splice
    allow(276, 30), // tee
    allow(277, 30), // sync_file_range
    deny(278, 27, 38), // vmsplice
    deny(279, 22, 38), // move_pages
    allow(280, 11), // utimensat
    allow(281, 30), // epoll_pwait
    allow(282, 30), // signalfd
    allow(283, 30), // timerfd_create
    allow(284, 30), // eventfd
    allow(285, 30), // fallocate
    allow(286, 30), // timerfd_settime
    allow(287, 30), // timerfd_gettime
    allow(288, 36), // accept4
    allow(289, 30), // signalfd4
    allow(290, 30), // eventfd2
    allow(291, 30), // epoll_create1
    allow(292, 30), // dup3
    allow(293, 30), // pipe2
    allow(294, 30), // inotify_init1
    allow(295, 30), // preadv
    allow(296, 30), // pwritev
    allow(297, 35), // rt_tgsigqueueinfo
    deny(298, 24, 1), // perf_event_open
    allow(299, 36), // recvmmsg
    deny(300, 6, 1), // fanotify_init
    deny(301, 6, 1), // fanotify_mark
    check(302, 16, &PRLIMIT64, 0), // prlimit64
    deny(303, 10, 1), // name_to_handle_at
    deny(304, 10, 1), // open_by_handle_at
    deny(305, 34, 1), // clock_adjtime
    allow(306, 30), // syncfs
    allow(307, 36), // sendmmsg
    deny(308, 20, 1), // setns
    allow(309, 43), // getcpu
    deny(310, 28, 1), // process_vm_readv
    deny(311, 28, 1), // process_vm_writev
    deny(312, 28, 1), // kcmp
    deny(313, 6, 1), // finit_module
    allow(314, 43), // sched_setattr
    allow(315, 43), // sched_getattr
    check(316, 32, &RENAMEAT2, 22), // renameat2
    check(317, 25, &SECCOMP, 1), // seccomp
    allow(318, 9), // getrandom
    allow(319, 7), // memfd_create
    deny(320, 6, 1), // kexec_file_load
    deny(321, 24, 1), // bpf
    allow(322, 23), // execveat
    deny(323, 24, 1), // userfaultfd
    allow(324, 43), // membarrier
    allow(325, 17), // mlock2
    allow(326, 30), // copy_file_range
    allow(327, 30), // preadv2
    allow(328, 30), // pwritev2
    allow(329, 17), // pkey_mprotect
    allow(330, 17), // pkey_alloc
    allow(331, 17), // pkey_free
    allow(332, 11), // statx
    allow(333, 39), // io_pgetevents
    allow(334, 43), // rseq
    allow(335, 37), // uretprobe
    allow(336, 37), // uprobe
    allow(424, 23), // pidfd_send_signal
    deny(425, 13, 38), // io_uring_setup
    deny(426, 13, 38), // io_uring_enter
    deny(427, 13, 38), // io_uring_register
    deny(428, 38, 38), // open_tree
    deny(429, 38, 38), // move_mount
    deny(430, 38, 38), // fsopen
    deny(431, 38, 38), // fsconfig
    deny(432, 38, 38), // fsmount
    deny(433, 38, 38), // fspick
    allow(434, 23), // pidfd_open
    deny(435, 14, 38), // clone3
    allow(436, 30), // close_range
    allow(437, 11), // openat2
    deny(438, 28, 1), // pidfd_getfd
    allow(439, 11), // faccessat2
    deny(440, 5, 38), // process_madvise
    allow(441, 30), // epoll_pwait2
    deny(442, 38, 38), // mount_setattr
    deny(443, 6, 1), // quotactl_fd
    allow(444, 26), // landlock_create_ruleset
    allow(445, 26), // landlock_add_rule
    allow(446, 26), // landlock_restrict_self
    deny(447, 27, 38), // memfd_secret
    deny(448, 5, 38), // process_mrelease
    allow(449, 43), // futex_waitv
    deny(450, 22, 38), // set_mempolicy_home_node
    allow(451, 30), // cachestat
    allow(452, 11), // fchmodat2
    allow(453, 17), // map_shadow_stack
    allow(454, 43), // futex_wake
    allow(455, 43), // futex_wait
    allow(456, 43), // futex_requeue
    deny(457, 29, 38), // statmount
    deny(458, 29, 38), // listmount
    deny(459, 19, 38), // lsm_get_self_attr
    deny(460, 19, 38), // lsm_set_self_attr
    deny(461, 19, 38), // lsm_list_modules
    allow(462, 17), // mseal
    allow(463, 8), // setxattrat
    allow(464, 8), // getxattrat
    allow(465, 8), // listxattrat
    allow(466, 8), // removexattrat
    deny(467, 38, 38), // open_tree_attr
    deny(468, 19, 38), // file_getattr
    deny(469, 19, 38), // file_setattr
];

/// Calls that are logged although they are answered as a kernel without them would, sorted.
pub(super) static LOGGED: &[u16] = &[
    154, // modify_ldt
    216, // remap_file_pages
    278, // vmsplice
    425, // io_uring_setup
    426, // io_uring_enter
    427, // io_uring_register
    428, // open_tree
    429, // move_mount
    430, // fsopen
    431, // fsconfig
    432, // fsmount
    433, // fspick
    442, // mount_setattr
    447, // memfd_secret
    467, // open_tree_attr
];

static IOCTL: [Case; 79] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5401 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x541b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5413 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5421 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5451 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5450 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x40049409 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x4020940d }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5402 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5403 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5404 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540f }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5410 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x802c542a }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x402c542b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x402c542c }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x402c542d }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5405 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5406 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5407 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5408 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5409 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5425 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540a }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540c }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540d }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80045440 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x540e }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5422 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5429 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5411 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5414 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5424 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5420 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80045438 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80045430 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x40045431 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80045439 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5441 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80045432 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x40045436 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5452 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5460 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8901 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8902 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8903 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8904 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8905 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8906 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8907 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8910 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8912 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8913 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8915 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8917 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8919 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x891b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x891d }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8921 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8927 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8933 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8938 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8942 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8970 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x8946 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0xc0189436 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0xc020660b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80086601 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80087601 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x801c581f }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80111500 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x81009431 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x80045200 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5412 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x541c }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0x5423 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Eq, value: 0xaa00 }]), then: SyscallVerdict::Errno(1) },
];

static SOCKET: [Case; 21] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x1 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x5 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x1 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x1 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x6 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xa }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x1 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xa }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x1 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x6 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x2 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x2 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x11 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xa }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x2 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xa }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x2 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x11 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x10 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x2 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x10 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x3 }, Condition { arg: 2, width: Width::Int, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x3 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0xa }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xa }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x3 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xa }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0xa }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }]), then: SyscallVerdict::Errno(93) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }]), then: SyscallVerdict::Errno(93) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xa }]), then: SyscallVerdict::Errno(93) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x10 }]), then: SyscallVerdict::Errno(93) },
];

static SOCKETPAIR: [Case; 3] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x1 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf), value: 0x5 }]), then: SyscallVerdict::Allow },
];

static CLONE: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::MaskedEq(0x7e020000), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static MKNOD: [Case; 4] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf000), value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf000), value: 0x1000 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf000), value: 0x8000 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xf000), value: 0xc000 }]), then: SyscallVerdict::Allow },
];

static PERSONALITY: [Case; 5] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x8 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x20000 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x20008 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xffffffff }]), then: SyscallVerdict::Allow },
];

static PRCTL: [Case; 36] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xf }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x10 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x53564d41 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x3 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x4 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x7 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x8 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xd }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0xe }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x15 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x17 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x18 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x19 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1b }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1d }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1e }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x24 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x25 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x26 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x27 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x28 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x29 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2a }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2f }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x34 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x41 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x42 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x41555856 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x59616d61 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x16 }, Condition { arg: 1, width: Width::Long, op: Op::Eq, value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x16 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1c }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x23 }]), then: SyscallVerdict::Errno(1) },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x3b }]), then: SyscallVerdict::Errno(1) },
];

static ARCH_PRCTL: [Case; 14] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1001 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1002 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1003 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1004 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1011 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1012 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1021 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1022 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1023 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x3001 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x5001 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x5002 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x5003 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x5005 }]), then: SyscallVerdict::Allow },
];

static SETRLIMIT: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Ne, value: 0x4 }]), then: SyscallVerdict::Allow },
];

static MKNODAT: [Case; 4] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xf000), value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xf000), value: 0x1000 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xf000), value: 0x8000 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Int, op: Op::MaskedEq(0xf000), value: 0xc000 }]), then: SyscallVerdict::Allow },
];

static PRLIMIT64: [Case; 2] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 1, width: Width::Int, op: Op::Ne, value: 0x4 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 2, width: Width::Long, op: Op::Eq, value: 0x0 }]), then: SyscallVerdict::Allow },
];

static RENAMEAT2: [Case; 1] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 4, width: Width::Int, op: Op::MaskedEq(0x4), value: 0x0 }]), then: SyscallVerdict::Allow },
];

static SECCOMP: [Case; 3] = [
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x1 }, Condition { arg: 1, width: Width::Int, op: Op::MaskedEq(0xffffffe8), value: 0x0 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x2 }]), then: SyscallVerdict::Allow },
    Case { when: Cow::Borrowed(&[Condition { arg: 0, width: Width::Int, op: Op::Eq, value: 0x3 }]), then: SyscallVerdict::Allow },
];
