#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! Making processes, and closing descriptors.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use rustix::process::Pid;

use super::open_files;
use super::process_id::Stat;

/// linux/sched.h; libc's constant of this name does not hold its 34 bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The exit code of a forked child whose code panicked.
pub const PANICKED: i32 = 101;

/// Whether this process has one thread, as every fork below requires.
pub fn is_single_threaded() -> io::Result<bool> {
    Ok(std::fs::read_dir("/proc/self/task")?.count() == 1)
}

/// Forks; the child runs `work`, exits with its result, and never returns to the caller's stack.
///
/// The process must be single-threaded: then the child may allocate like any other code.
pub fn fork_into(work: impl FnOnce() -> i32) -> io::Result<Pid> {
    // If /proc is hidden already, this cannot be told.
    debug_assert!(is_single_threaded().unwrap_or(true));
    // SAFETY: with one thread (checked above in debug builds) no lock can be held by a thread that
    // the child does not have, so the child may run any code.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => live(work),
        pid => Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

/// Where a forked child begins.
#[derive(Debug, Clone, Copy)]
pub struct Birth<'a> {
    /// `CLONE_NEW*` flags.
    pub namespaces: u64,
    /// The cgroup v2 directory to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// As [`fork_into`], in namespaces and a cgroup.
pub fn fork_at(birth: Birth<'_>, work: impl FnOnce() -> i32) -> io::Result<Child> {
    debug_assert!(is_single_threaded().unwrap_or(true));
    // SAFETY: `clone` makes a fork (no CLONE_VM, no stack). With one thread (checked above in debug builds) no lock can be held by a
    // thread that the child does not have. What libc's own fork does besides is for threads, of which the child makes none, and
    // for its thread's number, which libc asks the kernel for where it matters (raise(3)).
    match unsafe { clone(birth) }? {
        Some(child) => Ok(child),
        None => live(work),
    }
}

/// The child's side of a fork.
pub(super) fn live(work: impl FnOnce() -> i32) -> ! {
    end(catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED))
}

/// clone3(2) without a stack of its own; `None` in the child.
///
/// # Safety
/// The calling process has one thread, or the child calls only what is safe after a fork.
unsafe fn clone(birth: Birth<'_>) -> io::Result<Option<Child>> {
    let mut pidfd: RawFd = -1;
    // SAFETY: all-zero bytes are a valid `clone_args`: it is integers only.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = birth.namespaces | libc::CLONE_PIDFD as u64;
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = birth.cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    }
    // SAFETY: no CLONE_VM and no stack; `pidfd` is writable; what the child may do is the caller's promise.
    let Some(pid) = (unsafe { clone3(&mut args) })? else {
        return Ok(None);
    };
    // SAFETY: CLONE_PIDFD made this descriptor for us (close-on-exec); nothing else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Some(Child { pid, pidfd }))
}

/// clone3(2); `None` in the child.
///
/// # Safety
/// `args` makes a fork: no stack and no CLONE_VM, so the child runs on a copy of this stack. Its addresses are writable.
/// The calling process has one thread, or the child calls only what is safe after a fork.
pub(super) unsafe fn clone3(args: &mut libc::clone_args) -> io::Result<Option<Pid>> {
    // SAFETY: `args` is valid for the size given; the rest is the caller's promise.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_mut(args),
            size_of::<libc::clone_args>(),
        )
    };
    match pid {
        0 => Ok(None),
        ..0 => Err(io::Error::last_os_error()),
        1.. => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            Ok(Some(pid.ok_or(io::ErrorKind::InvalidData)?))
        }
    }
}

/// Moves this process's next child, and all later ones, to a new pid namespace, whose init process is that child.
pub fn unshare_pids() -> io::Result<()> {
    // SAFETY: CLONE_NEWPID alone leaves memory, descriptors and the calling process itself as they are.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWPID) }?)
}

/// Ends this process at once, without destructors and exit handlers.
pub fn end(code: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// A process made by [`spawn`].
#[derive(Debug)]
pub struct Child {
    /// Its pid in the caller's pid namespace.
    pub pid: Pid,
    /// A handle that always means this process.
    pub pidfd: OwnedFd,
}

/// The program and surroundings for [`spawn`].
#[derive(Debug)]
pub struct NewProgram<'a> {
    /// The program's file.
    pub file: BorrowedFd<'a>,
    /// argv, beginning with the name.
    pub arguments: &'a [CString],
    /// They become descriptors 0, 1, 2 and so on; all others are closed.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// `CLONE_NEW*` flags.
    pub namespaces: u64,
    /// The cgroup v2 directory to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// Starts a program in new namespaces, in a session of its own, with an empty environment, no
/// blocked signal and exactly the given descriptors.
///
/// One clone3(2), no intermediate process: when the caller exits, the child goes to the nearest
/// subreaper. The process must be single-threaded.
pub fn spawn(program: &NewProgram<'_>) -> io::Result<Child> {
    debug_assert!(is_single_threaded().is_ok_and(|single| single));
    let argv: Vec<*const libc::c_char> = program
        .arguments
        .iter()
        .map(|argument| argument.as_ptr())
        .chain([std::ptr::null()])
        .collect();
    let mut scratch = vec![-1; program.descriptors.len()];
    let birth = Birth {
        namespaces: program.namespaces,
        cgroup: program.cgroup,
    };
    // SAFETY: with one thread no lock is held elsewhere; the child calls only `become_program`, which takes no lock and
    // allocates nothing.
    match unsafe { clone(birth) }? {
        Some(child) => Ok(child),
        None => become_program(program, &argv, &mut scratch),
    }
}

/// The child's side of [`spawn`]. `argv` ends in null and points into `program.arguments`.
fn become_program(
    program: &NewProgram<'_>,
    argv: &[*const libc::c_char],
    scratch: &mut [RawFd],
) -> ! {
    let wanted = program.descriptors.len() as RawFd;
    let envp = [std::ptr::null::<libc::c_char>()];
    // SAFETY: every call takes integers, or pointers to memory that lives in this frame or in the
    // caller's (`argv`, `envp`, an empty signal set that sigemptyset initialises). `wanted` and
    // the loop keep the descriptors that are still needed above the ones being replaced.
    unsafe {
        libc::setsid();
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        let file = libc::fcntl(program.file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, wanted);
        let mut ready = file >= 0;
        for (copy, source) in scratch.iter_mut().zip(program.descriptors) {
            *copy = libc::fcntl(source.as_raw_fd(), libc::F_DUPFD_CLOEXEC, wanted);
            ready &= *copy >= 0;
        }
        for (target, copy) in (0..wanted).zip(scratch.iter()) {
            ready &= libc::dup2(*copy, target) == target;
        }
        let close = libc::CLOSE_RANGE_CLOEXEC as libc::c_uint;
        let first = wanted as libc::c_uint;
        ready &= libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, close) == 0;
        if ready && open_files::give_back(None).is_ok() {
            libc::syscall(
                libc::SYS_execveat,
                file,
                c"".as_ptr(),
                argv.as_ptr(),
                envp.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
        // The parent sees the bootstrap socket close and reports that the sidecar did not start.
        libc::_exit(127)
    }
}

/// Sets the name that ps(1) shows for the calling thread (15 bytes of it).
pub fn set_name(name: &CStr) -> io::Result<()> {
    Ok(rustix::thread::set_name(name)?)
}

/// Blocks every signal that can be blocked.
pub fn block_signals() -> io::Result<()> {
    let how = SigmaskHow::SIG_SETMASK;
    Ok(sigprocmask(how, Some(&SigSet::all()), None)?)
}

/// The Landlock ABI of this kernel; 0 if it is missing or switched off.
pub fn landlock_abi() -> io::Result<u32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with the VERSION flag the call wants a null pointer and size 0, and makes nothing.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    if let Ok(abi) = u32::try_from(abi) {
        return Ok(abi);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => Ok(0),
        _ => Err(error),
    }
}

fn done(rc: libc::c_long) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The real, effective and saved uid of the calling thread.
pub fn user_ids() -> io::Result<[u32; 3]> {
    let ids = nix::unistd::getresuid()?;
    Ok([ids.real, ids.effective, ids.saved].map(|id| id.as_raw()))
}

/// The real, effective and saved gid of the calling thread.
pub fn group_ids() -> io::Result<[u32; 3]> {
    let ids = nix::unistd::getresgid()?;
    Ok([ids.real, ids.effective, ids.saved].map(|id| id.as_raw()))
}

/// Marks every descriptor from `first` on as close-on-exec.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: close_range(2) takes three integers; with this flag it closes nothing that other code owns.
    done(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    })
}

/// Makes these the process's descriptors from 0 on, and closes all others; their owners must not use them again, nor
/// close them. For a forked child that ends by `_exit`.
pub fn keep_only<const N: usize>(kept: [BorrowedFd<'_>; N]) -> io::Result<()> {
    let first = libc::c_int::try_from(N).map_err(io::Error::other)?;
    // SAFETY: calls with integers alone, in a forked child: the copies are above all targets, so neither is overwritten
    // before it is used, and by this function's contract no code uses what is closed.
    unsafe {
        let copies = kept.map(|fd| libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first));
        for (target, copy) in (0..).zip(copies) {
            if copy < 0 || libc::dup2(copy, target) != target {
                return Err(io::Error::last_os_error());
            }
        }
        done(libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            0,
        ))
    }
}

/// Closes every descriptor except this one, the standard streams, and /dev/urandom, which the crate `getrandom` opens
/// once and keeps by its number. Owners of others must not use them again, nor close them. For a forked child that ends
/// by `_exit`.
pub fn close_all_but(kept: BorrowedFd<'_>) -> io::Result<()> {
    let kept = kept.as_raw_fd();
    let stays = |number: RawFd| number == kept || is_random_source(number);
    let mut first = 3;
    for number in (3..MOST_SEARCHED).filter(|number| stays(*number)) {
        close_range(first, number - 1)?;
        first = number + 1;
    }
    if kept >= MOST_SEARCHED {
        close_range(first, kept - 1)?;
        first = kept + 1;
    }
    close_range(first, RawFd::MAX)
}

/// Descriptors below this number are checked.
const MOST_SEARCHED: RawFd = 256;

/// Whether it is /dev/urandom (linux/Documentation/admin-guide/devices.txt).
fn is_random_source(number: RawFd) -> bool {
    stat_of(number).is_some_and(|stat| {
        stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == libc::makedev(1, 9)
    })
}

/// `None` if the number is not open.
pub(super) fn stat_of(number: RawFd) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is writable for the size of a stat(2) result; a number that is not open gives EBADF.
    let rc = unsafe { libc::fstat(number, stat.as_mut_ptr()) };
    // SAFETY: without an error the call has filled it.
    (rc == 0).then(|| unsafe { stat.assume_init() })
}

/// Closes the descriptors from `first` to `last`, if any.
pub(super) fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    if last < first {
        return Ok(());
    }
    // SAFETY: close_range(2) takes three integers. By the callers' contract no code uses what is closed.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })
}

/// Overwrites this process's arguments and environment, as /proc/PID/cmdline and environ show them. For a forked child
/// that reads neither again.
pub fn forget_arguments() -> io::Result<()> {
    let stat = Stat::read("self")?;
    // arg_start, arg_end, env_start and env_end
    for (first, last) in [(48, 49), (50, 51)] {
        let (start, end): (usize, usize) = (stat.field(first)?, stat.field(last)?);
        if start == 0 || end < start {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: these bounds are the kernel's for the strings that it put on this process's stack at execve(2), which stay
        // writable; one thread, and by this function's contract no code reads them from here on.
        unsafe { std::ptr::write_bytes(start as *mut u8, 0, end - start) };
    }
    Ok(())
}

/// The inherited descriptor with this number; `None` if it is not open.
pub fn borrow_inherited(number: i32) -> Option<std::os::fd::BorrowedFd<'static>> {
    // SAFETY: fcntl(2) with F_GETFD takes an integer and touches no memory.
    let open = number >= 0 && unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    // SAFETY: it is open, and the caller uses the borrow at once, in a process without threads, to look at it alone.
    open.then(|| unsafe { std::os::fd::BorrowedFd::borrow_raw(number) })
}
