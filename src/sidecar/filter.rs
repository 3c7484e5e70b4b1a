//! The sidecar's own seccomp filter: it allows the calls of its poll loop, and kills the process for every other.
//!
//! It kills instead of returning an errno: this is our program, so an unlisted call means foreign code in it. A dead
//! sidecar is a closed network.

use std::collections::BTreeMap;

use crate::audit::quota::MOST_BYTES;
use crate::sidecar::journal::MOST_RESERVED;
use crate::sidecar::protocol::Duty;
use crate::sidecar::timekeeper::MembersKind;
use crate::sys::pidfd;
use crate::sys::seccomp::notify::ANSWERING;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// The loop: wait, receive, answer, close.
const LOOP: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll, // rustix's poll, on architectures that have it
    libc::SYS_ppoll,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_close,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime, // deadlines, if the vDSO has no clock
];

/// For answers to denied system calls.
const ANSWER: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_ctl,
    libc::SYS_accept4,
    libc::SYS_getsockopt, // the caller's ids
    libc::SYS_fstat,      // the caller's proof
    libc::SYS_pread64,    // another container's program
    libc::SYS_pwrite64,   // the denials that the container sees; a log is in append mode
];

/// Memory, the one line on standard error, and exit.
const REST: &[libc::c_long] = &[
    libc::SYS_write,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,          // Rust's lock around standard error
    libc::SYS_sigaltstack,    // Rust's runtime at exit
    libc::SYS_rt_sigprocmask, // abort(3)
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// To dial. Only the resolver binds, its UDP ports (Landlock denies TCP's).
const DIAL: &[libc::c_long] = &[libc::SYS_connect, libc::SYS_bind];

/// To serve: the event loop, and sockets that others made. No file is opened.
const SERVE: &[libc::c_long] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_fstat, // the caller's proof on the control socket
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_read,
    libc::SYS_pread64, // the kernel's count of resets
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    libc::SYS_clock_nanosleep,
    libc::SYS_timerfd_create, // waits under a millisecond
    libc::SYS_timerfd_settime,
];

/// The reader's loop: the event loop, and connections that it receives. It makes, binds and connects no socket.
const READ: &[libc::c_long] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_shutdown,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    libc::SYS_clock_nanosleep,
];

/// For a relay of the user's, besides the reader's calls: it accepts, and connects to the sockets of its root. It also reserves room for its log.
const RELAY: &[libc::c_long] = &[libc::SYS_accept4, libc::SYS_connect, libc::SYS_getsockopt];

/// Compiles the reader's filter.
pub(super) fn of_reader() -> Result<BpfProgram, BackendError> {
    assemble(reading(&[])?)
}

/// Compiles the filter of a relay of the user's.
pub(super) fn of_user_relay() -> Result<BpfProgram, BackendError> {
    let mut rules = reading(RELAY)?;
    rules.insert(libc::SYS_socket, vec![equal(0, libc::AF_UNIX)?]);
    // Other modes erase what is in the file, and a long reservation, or many behind one another, fill the disk.
    let at_most = |argument, most| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Le, most)
    };
    let reserves = SeccompRule::new(vec![
        is(1, libc::FALLOC_FL_KEEP_SIZE)?,
        at_most(2, MOST_BYTES)?,
        at_most(3, MOST_RESERVED)?,
    ])?;
    rules.insert(libc::SYS_fallocate, vec![reserves]);
    assemble(rules)
}

fn reading(more: &[libc::c_long]) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let all = LOOP.iter().chain(REST).chain(READ).chain(more);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = all.map(|nr| (*nr, Vec::new())).collect();
    rules.insert(libc::SYS_mmap, vec![masked(2, libc::PROT_EXEC, 0)?]);
    rules.insert(libc::SYS_ioctl, vec![equal(1, FIONBIO)?]);
    let commands = [
        libc::F_GETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_DUPFD_CLOEXEC,
    ];
    let fcntl = commands.map(|command| equal(1, command)).into_iter();
    rules.insert(libc::SYS_fcntl, fcntl.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_prctl, vec![equal(0, libc::PR_GET_SECCOMP)?]);
    Ok(rules)
}

/// Compiles the filter. It is pure, and called before the confinement starts.
pub(super) fn compile(duty: Duty) -> Result<BpfProgram, BackendError> {
    let (serve, dial): (&[libc::c_long], &[libc::c_long]) = match duty {
        Duty::Wait => (&[], &[]),
        Duty::Refuse => (SERVE, &[]),
        Duty::Serve => (SERVE, DIAL),
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = LOOP
        .iter()
        .chain(REST)
        .chain(ANSWER)
        .chain(serve)
        .chain(dial)
        .map(|nr| (*nr, Vec::new()))
        .collect();
    // Memory for data only.
    rules.insert(libc::SYS_mmap, vec![masked(2, libc::PROT_EXEC, 0)?]);
    // Debug builds of Rust check that a descriptor is open before they close it.
    let mut fcntl = vec![equal(1, libc::F_GETFD)?];
    // Not the request that puts a descriptor into the caller. A filter cannot see which answers are sent.
    let mut ioctl = ANSWERING
        .iter()
        .map(|request| rule(1, SeccompCmpOp::Eq, *request))
        .collect::<Result<Vec<_>, _>>()?;
    if duty != Duty::Wait {
        for command in [libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC] {
            fcntl.push(equal(1, command)?);
        }
        ioctl.push(equal(1, FIONBIO)?);
    }
    rules.insert(libc::SYS_ioctl, ioctl);
    if duty == Duty::Serve {
        let families = [libc::AF_INET, libc::AF_INET6];
        let socket = families.map(|family| equal(0, family)).into_iter();
        rules.insert(libc::SYS_socket, socket.collect::<Result<_, _>>()?);
        // Socket pairs to the reader, which lead nowhere else.
        rules.insert(libc::SYS_socketpair, vec![equal(0, libc::AF_UNIX)?]);
    }
    rules.insert(libc::SYS_fcntl, fcntl);
    // To read back that this filter is loaded.
    rules.insert(libc::SYS_prctl, vec![equal(0, libc::PR_GET_SECCOMP)?]);
    assemble(rules)
}

fn assemble(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, BackendError> {
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    filter.try_into()
}

/// The warden's descriptors: 0 is its line to the sidecar, 1 the sidecar's pidfd.
const WARDEN_SIDECAR: libc::c_int = 1;
/// The signalfd that reports changes of the sidecar's state.
const WARDEN_SIGNALS: libc::c_int = 2;
/// Init's pidfd, which comes next.
pub(super) const WARDEN_INIT: libc::c_int = 3;
/// Its log.
const WARDEN_JOURNAL: libc::c_int = 4;

/// Compiles the warden's filter: receive, wait, kill these two processes, ask for a process's exit status by its pidfd,
/// write a line, exit.
pub(super) fn of_warden() -> Result<BpfProgram, BackendError> {
    let plain = [
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_close,
        libc::SYS_waitid,
        libc::SYS_restart_syscall,
        libc::SYS_clock_gettime,
        libc::SYS_brk,
        libc::SYS_exit_group,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        plain.into_iter().map(|nr| (nr, Vec::new())).collect();
    let kill = |target| SeccompRule::new(vec![is(0, target)?, is(1, libc::SIGKILL)?]);
    let kills = vec![kill(WARDEN_SIDECAR)?, kill(WARDEN_INIT)?];
    rules.insert(libc::SYS_pidfd_send_signal, kills);
    let asks = rule(1, SeccompCmpOp::Eq, pidfd::GET_INFO)?;
    rules.insert(libc::SYS_ioctl, vec![asks]);
    rules.insert(libc::SYS_read, vec![equal(0, WARDEN_SIGNALS)?]);
    rules.insert(libc::SYS_write, vec![equal(0, WARDEN_JOURNAL)?]);
    rules.insert(libc::SYS_fcntl, vec![equal(1, libc::F_GETFD)?]);
    rules.insert(libc::SYS_prctl, vec![equal(0, libc::PR_GET_SECCOMP)?]);
    assemble(rules)
}

/// The timekeeper's descriptors that its filter names.
pub(super) const TIMEKEEPER_INIT: libc::c_int = 1;
const TIMEKEEPER_TIMER: libc::c_int = 3;
const TIMEKEEPER_CLOCK: libc::c_int = 4;
const TIMEKEEPER_MEMBERS: [libc::c_int; 2] = [5, 6];
const TIMEKEEPER_ACTIVITY: [libc::c_int; 4] = [7, 8, 9, 10];
const TIMEKEEPER_LOG: libc::c_int = 11;

/// Compiles the filter of both timekeepers: wait, set the timer, read and write the clock and one log, read the counts of the
/// container's activity, end the container, exit.
/// On cgroup v1 the processes are listed, and killed by their pidfds. The timekeeper of an `exec` also removes cgroups below one.
pub(super) fn of_timekeeper(
    members: MembersKind,
    exec: &Option<String>,
) -> Result<BpfProgram, BackendError> {
    let plain = [
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_sendmsg,
        libc::SYS_close,
        libc::SYS_restart_syscall,
        libc::SYS_clock_gettime,
        libc::SYS_brk,
        libc::SYS_exit_group,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        plain.into_iter().map(|nr| (nr, Vec::new())).collect();
    rules.insert(libc::SYS_timerfd_settime, vec![equal(0, TIMEKEEPER_TIMER)?]);
    let written = [TIMEKEEPER_CLOCK, TIMEKEEPER_LOG];
    let read = TIMEKEEPER_ACTIVITY.into_iter().chain(written);
    let read = read.map(|fd| equal(0, fd)).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_pread64, read);
    let written = written.map(|fd| equal(0, fd)).into_iter();
    rules.insert(libc::SYS_pwrite64, written.collect::<Result<_, _>>()?);
    let [parent, thawed, ..] = TIMEKEEPER_ACTIVITY;
    let thawed = exec.as_ref().map(|_| thawed);
    let written = TIMEKEEPER_MEMBERS.into_iter().chain(thawed);
    let written = written.map(|fd| equal(0, fd));
    rules.insert(libc::SYS_write, written.collect::<Result<_, _>>()?);
    if exec.is_some() {
        let removes = SeccompRule::new(vec![is(0, parent)?, is(2, libc::AT_REMOVEDIR)?]);
        rules.insert(libc::SYS_unlinkat, vec![removes?]);
    }
    rules.insert(libc::SYS_fcntl, vec![equal(1, libc::F_GETFD)?]);
    rules.insert(libc::SYS_prctl, vec![equal(0, libc::PR_GET_SECCOMP)?]);
    let init = |signal| SeccompRule::new(vec![is(0, TIMEKEEPER_INIT)?, is(1, signal)?]);
    let mut signals = vec![init(libc::SIGTERM)?, init(libc::SIGKILL)?];
    if matches!(members, MembersKind::Listed { .. }) {
        signals.push(equal(1, libc::SIGKILL)?);
        rules.insert(libc::SYS_pidfd_open, Vec::new());
        rules.insert(libc::SYS_read, Vec::new());
        rules.insert(libc::SYS_openat, vec![equal(0, TIMEKEEPER_MEMBERS[0])?]);
        rules.insert(libc::SYS_clock_nanosleep, Vec::new());
        // A long list.
        rules.insert(libc::SYS_mmap, vec![masked(2, libc::PROT_EXEC, 0)?]);
        rules.insert(libc::SYS_munmap, Vec::new());
        rules.insert(libc::SYS_mremap, Vec::new());
    }
    rules.insert(libc::SYS_pidfd_send_signal, signals);
    assemble(rules)
}

/// The ioctl for non-blocking sockets that the standard library uses.
const FIONBIO: libc::c_int = 0x5421;

fn equal(argument: u8, value: libc::c_int) -> Result<SeccompRule, BackendError> {
    rule(argument, SeccompCmpOp::Eq, value.cast_unsigned())
}

fn masked(
    argument: u8,
    mask: libc::c_int,
    value: libc::c_int,
) -> Result<SeccompRule, BackendError> {
    let mask = u64::from(mask.cast_unsigned());
    rule(
        argument,
        SeccompCmpOp::MaskedEq(mask),
        value.cast_unsigned(),
    )
}

fn rule(argument: u8, op: SeccompCmpOp, value: u32) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(argument, op, value)?])
}

fn is(argument: u8, value: libc::c_int) -> Result<SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::Eq, value.cast_unsigned())
}

fn condition(argument: u8, op: SeccompCmpOp, value: u32) -> Result<SeccompCondition, BackendError> {
    // An int has 32 bits for the kernel, so also here.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, u64::from(value))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use rustix::process::{PidfdFlags, Signal, pidfd_send_signal};

    use super::{Duty, MOST_BYTES, MOST_RESERVED, MembersKind};
    use crate::sys::seccomp;
    use rustix::fs::FallocateFlags;

    /// Set for the copy of this test program that loads the filter.
    const CASE: &str = "AGENTBOX_TEST_FILTER_CASE";
    const SURVIVED: i32 = 42;

    type Case = (&'static str, fn());

    const ALLOWED: Case = ("the loop", || {
        let (a, b) = crate::sys::socket::pair().unwrap();
        under_filter();
        use std::os::fd::AsFd;
        crate::sys::socket::send(a.as_fd(), b"x", &[b.as_fd()]).unwrap();
        let soon = std::time::Duration::from_secs(1);
        let got = crate::sys::socket::receive_within(b.as_fd(), &mut [0; 4], soon);
        assert_eq!(got.unwrap().fds.len(), 1);
        drop(vec![0_u8; 8 << 20]);
        drop((a, b));
        eprintln!("a line");
    });

    const DENIED: [Case; 9] = [
        ("open", || {
            under_filter();
            drop(std::fs::File::open("/dev/null"));
        }),
        ("socket", || {
            under_filter();
            drop(std::net::UdpSocket::bind("127.0.0.1:0"));
        }),
        ("socket of one that refuses", || {
            under(Duty::Refuse);
            drop(std::net::UdpSocket::bind("127.0.0.1:0"));
        }),
        ("bind of one that refuses", || {
            let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let socket = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::DGRAM,
                None,
            );
            under(Duty::Refuse);
            assert!(rustix::net::bind(socket.unwrap(), &any).is_ok());
        }),
        ("connect of one that refuses", || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            under(Duty::Refuse);
            drop(socket.connect("127.0.0.1:1"));
        }),
        ("clone", || {
            under_filter();
            drop(std::thread::Builder::new().spawn(|| ()));
        }),
        ("kill", || {
            under_filter();
            let own = rustix::process::Pid::INIT;
            assert!(rustix::process::test_kill_process(own).is_ok());
        }),
        ("setresuid", || {
            let own = rustix::process::getuid();
            under_filter();
            assert!(rustix::thread::set_thread_res_uid(own, own, own).is_ok());
        }),
        ("another prctl", || {
            under_filter();
            assert!(rustix::thread::set_name(c"x").is_ok());
        }),
    ];

    const OF_READER: [Case; 5] = [
        ("the reader opens", || {
            under_readers();
            drop(std::fs::File::open("/dev/null"));
        }),
        ("the reader's socket", || {
            under_readers();
            drop(std::net::UdpSocket::bind("127.0.0.1:0"));
        }),
        ("the reader's socket pair", || {
            under_readers();
            drop(crate::sys::socket::pair());
        }),
        ("the reader connects", || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            under_readers();
            drop(socket.connect("127.0.0.1:1"));
        }),
        ("the reader accepts", || {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            under_readers();
            drop(socket.accept());
        }),
    ];

    const OF_RELAY: [Case; 7] = [
        ("the relay erases a part of its log", || {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            erase_or_fill(mode, 0, 4096);
        }),
        ("the relay fills the disk", || {
            erase_or_fill(FallocateFlags::KEEP_SIZE, 0, MOST_RESERVED + 1);
        }),
        ("the relay reserves far behind its log", || {
            erase_or_fill(FallocateFlags::KEEP_SIZE, MOST_BYTES + 1, 4096);
        }),
        ("the relay opens", || {
            load(super::of_user_relay().unwrap());
            drop(std::fs::File::open("/dev/null"));
        }),
        ("the relay's socket of the network", || {
            load(super::of_user_relay().unwrap());
            drop(std::net::UdpSocket::bind("127.0.0.1:0"));
        }),
        ("the relay binds", || {
            load(super::of_user_relay().unwrap());
            drop(std::os::unix::net::UnixListener::bind("/nonexistent/x"));
        }),
        ("the relay clones", || {
            load(super::of_user_relay().unwrap());
            drop(std::thread::Builder::new().spawn(|| ()));
        }),
    ];

    fn erase_or_fill(mode: FallocateFlags, at: u64, length: u64) {
        let log = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        load(super::of_user_relay().unwrap());
        let _killed = rustix::fs::fallocate(&log, mode, at, length);
    }

    const OF_TIMEKEEPER: [Case; 6] = [
        ("the timekeeper opens", || {
            under_timekeepers();
            drop(std::fs::File::open("/dev/null"));
        }),
        ("the timekeeper's socket", || {
            under_timekeepers();
            drop(crate::sys::socket::pair());
        }),
        ("the timekeeper clones", || {
            under_timekeepers();
            drop(std::thread::Builder::new().spawn(|| ()));
        }),
        ("the timekeeper reads another file", || {
            read_at(|number| !counts_activity(number));
        }),
        ("the timekeeper writes to a count", || {
            let files = opened();
            let count = files.iter().find(|file| counts_activity(file.as_raw_fd()));
            under_timekeepers();
            assert!(rustix::io::write(count.unwrap(), b"1").is_err());
        }),
        ("the timekeeper stops a process", || {
            let own = rustix::process::getpid();
            let own = rustix::process::pidfd_open(own, PidfdFlags::empty()).unwrap();
            under_timekeepers();
            assert!(pidfd_send_signal(&own, Signal::CONT).is_ok());
        }),
    ];

    fn counts_activity(number: i32) -> bool {
        super::TIMEKEEPER_ACTIVITY.contains(&number)
    }

    /// Files with many numbers.
    fn opened() -> Vec<std::fs::File> {
        let open = |_| std::fs::File::open("/dev/null").unwrap();
        (0..32).map(open).collect()
    }

    fn read_at(is_it: fn(i32) -> bool) {
        let files = opened();
        let file = files.iter().find(|file| {
            let number = file.as_raw_fd();
            let written = [super::TIMEKEEPER_CLOCK, super::TIMEKEEPER_LOG];
            !written.contains(&number) && is_it(number)
        });
        under_timekeepers();
        assert_eq!(rustix::io::pread(file.unwrap(), &mut [0; 4], 0), Ok(0));
        crate::sys::process::end(SURVIVED);
    }

    fn under_timekeepers() {
        load(super::of_timekeeper(MembersKind::Kill, &None).unwrap());
    }

    fn under_readers() {
        load(super::of_reader().unwrap());
    }

    fn under_filter() {
        under(Duty::Wait);
    }

    fn under(duty: Duty) {
        load(super::compile(duty).unwrap());
    }

    fn load(program: super::BpfProgram) {
        rustix::thread::set_no_new_privs(true).unwrap();
        seccomp::load_compiled(&program).unwrap();
        assert_eq!(seccomp::mode().unwrap(), 2);
    }

    #[test]
    fn the_loop_lives_and_everything_else_dies() {
        dies_but_for(
            ALLOWED.0,
            "the_loop_lives_and_everything_else_dies",
            &[&DENIED[..], &[ALLOWED]].concat(),
        );
    }

    #[test]
    fn the_reader_makes_no_socket_and_opens_no_file() {
        let lives: Case = ("the reader's loop", || {
            let (a, b) = crate::sys::socket::pair().unwrap();
            under_readers();
            use std::os::fd::AsFd;
            crate::sys::socket::send(a.as_fd(), b"x", &[b.as_fd()]).unwrap();
            drop((a, b));
        });
        dies_but_for(
            lives.0,
            "the_reader_makes_no_socket_and_opens_no_file",
            &[&OF_READER[..], &[lives]].concat(),
        );
    }

    #[test]
    fn the_timekeeper_reads_the_counts_of_activity_and_opens_nothing() {
        let lives: Case = ("the timekeeper's counts", || read_at(counts_activity));
        dies_but_for(
            lives.0,
            "the_timekeeper_reads_the_counts_of_activity_and_opens_nothing",
            &[&OF_TIMEKEEPER[..], &[lives]].concat(),
        );
    }

    #[test]
    fn the_relay_to_the_agent_connects_to_sockets_of_files_alone() {
        let lives: Case = ("the relay's loop", || {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let log = rustix::fs::memfd_create("log", flags).unwrap();
            load(super::of_user_relay().unwrap());
            let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
            assert!(rustix::fs::fallocate(&log, keep, 0, 4096).is_ok());
            assert!(std::os::unix::net::UnixStream::connect("/nonexistent/x").is_err());
        });
        dies_but_for(
            lives.0,
            "the_relay_to_the_agent_connects_to_sockets_of_files_alone",
            &[&OF_RELAY[..], &[lives]].concat(),
        );
    }

    #[expect(
        clippy::exit,
        reason = "the copy under the filter may not return to the harness"
    )]
    fn dies_but_for(survivor: &str, test: &str, all: &[Case]) {
        let cases = || all.iter();
        if let Ok(wanted) = std::env::var(CASE) {
            cases().find(|(name, _)| *name == wanted).unwrap().1();
            std::process::exit(SURVIVED);
        }
        for (name, _) in cases() {
            let itself = module_path!().split_once("::").unwrap().1;
            let status = Command::new(std::env::current_exe().unwrap())
                .arg(format!("{itself}::{test}"))
                .args(["--exact", "--nocapture"])
                .env(CASE, name)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            if *name == survivor {
                assert_eq!(status.code(), Some(SURVIVED), "{name}: {status}");
            } else {
                assert_eq!(status.signal(), Some(libc::SIGSYS), "{name}: {status}");
            }
        }
    }

    #[test]
    fn every_filter_is_short() {
        let all = [Duty::Wait, Duty::Refuse, Duty::Serve].map(super::compile);
        for program in all
            .into_iter()
            .chain([super::of_reader(), super::of_user_relay()])
            .chain([super::of_timekeeper(MembersKind::Kill, &None)])
        {
            let program = program.unwrap();
            assert!((10..400).contains(&program.len()), "{}", program.len());
        }
    }
}
