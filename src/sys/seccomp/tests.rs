//! Filters in the running kernel. A filter cannot be removed, so each test runs in a child process, with bad
//! descriptors and pointers, so that nothing happens even if the filter fails to deny.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

use super::{NEW_LISTENER, load};
use crate::kernel::SyscallName;
use crate::seccomp::{
    ARCH_X86_64, DenyMode, FilterInput, FilterPolicy, SyscallData, SyscallFilter, SyscallVerdict,
    compile,
};

/// A bad pointer and a bad descriptor in one.
const BAD: u64 = u64::MAX;

fn filter(denials: DenyMode) -> SyscallFilter {
    let none = BTreeSet::new();
    let ours = FilterPolicy {
        allow: &none,
        deny: &none,
        set_id: false,
        attributes: true,
        profile: crate::policy::SyscallProfile::Agent,
        devices: false,
        denials,
    };
    compile(&FilterInput {
        ours: Some(ours),
        engine: None,
    })
    .unwrap()
    .unwrap()
}

/// A child's exit status and its output.
struct ChildEnd {
    status: libc::c_int,
    written: Vec<u8>,
}

/// Runs `child` in a forked process that ends itself with `_exit`.
fn in_child(child: impl Fn(libc::c_int)) -> ChildEnd {
    let mut pipe = [0; 2];
    // SAFETY: pipe2 writes two descriptors into an array of two.
    let rc = unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(rc, 0);
    // SAFETY: nothing else owns the descriptors that pipe2 has just made.
    let (mut reader, writer) = unsafe {
        (
            std::fs::File::from_raw_fd(pipe[0]),
            std::fs::File::from_raw_fd(pipe[1]),
        )
    };
    // SAFETY: the child of this threaded process makes raw system calls only, allocates nothing, takes no lock, and leaves
    // by `_exit`, so it does not meet what the other threads held.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        child(writer.as_raw_fd());
        // SAFETY: ends the child; takes no pointers.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut written = Vec::new();
    reader.read_to_end(&mut written).unwrap();
    let mut status = 0;
    // SAFETY: `pid` is our child and `status` is ours to be written.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    ChildEnd { status, written }
}

/// In a child: sets no_new_privs and loads. Exits with 99 if that fails.
fn enter(filter: &SyscallFilter) -> Option<std::os::fd::OwnedFd> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes integers only.
    let rc = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    match (rc, load(&filter.program, filter.flags)) {
        (0, Ok(listener)) => listener,
        // SAFETY: ends the child; takes no pointers.
        _ => unsafe { libc::_exit(99) },
    }
}

fn ask(call: &SyscallData) -> i32 {
    let [a, b, c, d, e, f] = call.args;
    // SAFETY: every pointer argument of the calls in `PROBES` is bad or null, so the kernel finds nothing to write to; none
    // of them ends or replaces the process.
    let result = unsafe {
        libc::syscall(
            libc::c_long::from(call.number.cast_signed()),
            a,
            b,
            c,
            d,
            e,
            f,
        )
    };
    if result >= 0 {
        return 0;
    }
    // SAFETY: the location of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

/// The kernel's result of each call behind our filter.
fn answers(calls: &[SyscallData]) -> Vec<i32> {
    let filter = filter(DenyMode::Errno);
    let ended = in_child(|pipe| {
        assert!(enter(&filter).is_none());
        for call in calls {
            let errno = ask(call).to_ne_bytes();
            // SAFETY: four bytes are read from an array of four.
            unsafe { libc::write(pipe, errno.as_ptr().cast(), errno.len()) };
        }
    });
    assert_eq!(
        ended.status, 0,
        "the child was killed or could not load the filter"
    );
    let errnos = ended
        .written
        .chunks_exact(4)
        .map(|chunk| i32::from_ne_bytes(chunk.try_into().unwrap()));
    errnos.collect()
}

fn call(name: &str, args: [u64; 6]) -> SyscallData {
    SyscallData {
        number: name.parse::<SyscallName>().unwrap().number(),
        arch: ARCH_X86_64,
        args,
    }
}

/// CLONE_THREAD without CLONE_SIGHAND: the kernel itself would return EINVAL and make nothing.
const NO_THREAD: u64 = 0x0001_0000;

/// (name, arguments, errno). Without the filter each of these would fail differently, or do nothing.
const PROBES: &[(&str, [u64; 6], i32)] = &[
    ("io_uring_setup", [0, BAD, 0, 0, 0, 0], libc::ENOSYS),
    ("ptrace", [16, BAD, 0, 0, 0, 0], libc::EPERM),
    ("process_vm_readv", [BAD, 0, 0, 0, 0, 0], libc::EPERM),
    ("pidfd_getfd", [BAD, BAD, 0, 0, 0, 0], libc::EPERM),
    ("kcmp", [BAD, BAD, 0, 0, 0, 0], libc::EPERM),
    ("bpf", [BAD, BAD, 0, 0, 0, 0], libc::EPERM),
    ("perf_event_open", [BAD, 0, 0, 0, 0, 0], libc::EPERM),
    ("unshare", [0x1000_0000 | 1, 0, 0, 0, 0, 0], libc::EPERM),
    ("setns", [BAD, 0, 0, 0, 0, 0], libc::EPERM),
    ("clone3", [BAD, 64, 0, 0, 0, 0], libc::ENOSYS),
    (
        "clone",
        [0x1000_0000 | NO_THREAD, 0, 0, 0, 0, 0],
        libc::EPERM,
    ),
    (
        "clone",
        [0x4000_0000 | NO_THREAD | 1 << 32, 0, 0, 0, 0, 0],
        libc::EPERM,
    ),
    (
        "clone",
        [
            0x0002_0000 | NO_THREAD | 0xffff_ffff_0000_0000,
            0,
            0,
            0,
            0,
            0,
        ],
        libc::EPERM,
    ),
    ("mount", [BAD, BAD, BAD, 0, 0, 0], libc::EPERM),
    ("umount2", [BAD, 0, 0, 0, 0, 0], libc::EPERM),
    ("pivot_root", [BAD, BAD, 0, 0, 0, 0], libc::EPERM),
    ("fsopen", [BAD, 0, 0, 0, 0, 0], libc::ENOSYS),
    ("open_tree", [BAD, BAD, 0, 0, 0, 0], libc::ENOSYS),
    ("keyctl", [BAD, 0, 0, 0, 0, 0], libc::EPERM),
    ("open_by_handle_at", [BAD, BAD, 0, 0, 0, 0], libc::EPERM),
    ("personality", [0x0040_0000, 0, 0, 0, 0, 0], libc::EPERM),
    (
        "personality",
        [0x0040_0000 | 1 << 32, 0, 0, 0, 0, 0],
        libc::EPERM,
    ),
    ("iopl", [4, 0, 0, 0, 0, 0], libc::EPERM),
    ("swapoff", [BAD, 0, 0, 0, 0, 0], libc::EPERM),
    ("settimeofday", [BAD, BAD, 0, 0, 0, 0], libc::EPERM),
    ("finit_module", [BAD, BAD, 0, 0, 0, 0], libc::EPERM),
    ("mbind", [1, 1, BAD, 0, 0, 0], libc::ENOSYS),
    ("memfd_secret", [BAD, 0, 0, 0, 0, 0], libc::ENOSYS),
    ("ioctl", [BAD, 0x5412, BAD, 0, 0, 0], libc::EPERM),
    ("ioctl", [BAD, 0x5412 | 1 << 32, BAD, 0, 0, 0], libc::EPERM),
    ("ioctl", [BAD, 0x541c | 1 << 32, BAD, 0, 0, 0], libc::EPERM),
    ("ioctl", [BAD, 0x5423 | 1 << 63, BAD, 0, 0, 0], libc::EPERM),
    ("socket", [38, 5, 0, 0, 0, 0], libc::EAFNOSUPPORT),
    ("socket", [38 | 1 << 32, 5, 0, 0, 0, 0], libc::EAFNOSUPPORT),
    ("socket", [17, 3, 0, 0, 0, 0], libc::EAFNOSUPPORT),
    ("socket", [2, 3 | 0x80000, 1, 0, 0, 0], libc::EPERM),
    ("socket", [2, 2, 1, 0, 0, 0], libc::EPROTONOSUPPORT),
    ("socket", [2, 1, 262, 0, 0, 0], libc::EPROTONOSUPPORT),
    ("socket", [16, 3, 9, 0, 0, 0], libc::EPROTONOSUPPORT),
    ("seccomp", [1, NEW_LISTENER, BAD, 0, 0, 0], libc::EPERM),
    (
        "seccomp",
        [1, NEW_LISTENER | 1 << 32, BAD, 0, 0, 0],
        libc::EPERM,
    ),
    ("prctl", [35, BAD, BAD, 0, 0, 0], libc::EPERM),
    ("prctl", [28 | 1 << 32, 0x100, 0, 0, 0, 0], libc::EPERM),
    ("mknod", [BAD, 0x6000, 0, 0, 0, 0], libc::EPERM),
];

/// The harmless versions of the same calls: they reach the kernel, which refuses the arguments.
const CONTROLS: &[(&str, [u64; 6], i32)] = &[
    ("ioctl", [BAD, 0x5413, BAD, 0, 0, 0], libc::EBADF),
    ("clone", [NO_THREAD, 0, 0, 0, 0, 0], libc::EINVAL),
    ("personality", [0xffff_ffff, 0, 0, 0, 0, 0], 0),
    ("socket", [1, 1 | 0x80000, 0, 0, 0, 0], 0),
    ("socket", [16, 3 | 0x80000, 0, 0, 0, 0], 0),
    ("seccomp", [1, 0, BAD, 0, 0, 0], libc::EFAULT),
    ("prctl", [15, BAD, 0, 0, 0, 0], libc::EFAULT),
    ("mknod", [BAD, 0x1000, 0, 0, 0, 0], libc::EFAULT),
    ("execve", [BAD, 0, 0, 0, 0, 0], libc::EFAULT),
    ("read", [BAD, BAD, 1, 0, 0, 0], libc::EBADF),
];

#[test]
fn the_kernel_denies_what_the_threat_list_names() {
    let table: Vec<_> = PROBES.iter().chain(CONTROLS).collect();
    let calls: Vec<SyscallData> = table
        .iter()
        .map(|(name, args, _)| call(name, *args))
        .collect();
    let answers = answers(&calls);
    assert_eq!(answers.len(), table.len());
    for ((name, args, expected), have) in table.into_iter().zip(answers) {
        assert_eq!(have, *expected, "{name} {args:x?}");
    }
}

#[test]
fn unknown_numbers_do_not_exist() {
    let numbers = [470, 511, 600, 0x8000_0000, u32::MAX];
    let calls = numbers.map(|number| SyscallData {
        number,
        arch: ARCH_X86_64,
        args: [BAD; 6],
    });
    assert_eq!(answers(&calls), [libc::ENOSYS; 5]);
}

fn killed_by(status: libc::c_int) -> Option<libc::c_int> {
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

#[test]
fn an_x32_call_kills() {
    let filter = filter(DenyMode::Errno);
    let getpid = SyscallData {
        number: 39 | 0x4000_0000,
        arch: ARCH_X86_64,
        args: [0; 6],
    };
    let ended = in_child(|_| {
        assert!(enter(&filter).is_none());
        ask(&getpid);
    });
    assert_eq!(killed_by(ended.status), Some(libc::SIGSYS));
}

/// getpid through the 32-bit entry.
fn int_0x80() -> i32 {
    let result: i32;
    // SAFETY: i386's getpid (20) takes no arguments and touches no memory; the kernel changes rax, and on this entry r8 to
    // r11, which are declared.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("eax") 20 => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result
}

#[test]
fn a_call_through_int_0x80_kills() {
    let control = in_child(|_| {
        int_0x80();
    });
    if killed_by(control.status) == Some(libc::SIGSEGV) {
        eprintln!("skipped: this kernel has no 32-bit entry");
        return;
    }
    assert_eq!(control.status, 0);
    let filter = filter(DenyMode::Errno);
    let ended = in_child(|_| {
        assert!(enter(&filter).is_none());
        int_0x80();
    });
    assert_eq!(killed_by(ended.status), Some(libc::SIGSYS));
}

#[test]
fn a_listener_comes_back_and_without_one_denials_are_enosys() {
    let filter = filter(DenyMode::Notify);
    let ptrace = call("ptrace", [16, BAD, 0, 0, 0, 0]);
    assert_eq!(filter.verdict(&ptrace), SyscallVerdict::Notify(1));
    let ended = in_child(|pipe| {
        let Some(listener) = enter(&filter) else {
            return;
        };
        // SAFETY: F_GETFD takes no pointer.
        let flags = unsafe { libc::fcntl(listener.as_raw_fd(), libc::F_GETFD) };
        drop(listener);
        let answer = [flags, ask(&ptrace)];
        // SAFETY: eight bytes are read from an array of eight.
        unsafe { libc::write(pipe, answer.as_ptr().cast(), 8) };
    });
    assert_eq!(ended.status, 0);
    let expected = [libc::FD_CLOEXEC, libc::ENOSYS]
        .map(i32::to_ne_bytes)
        .concat();
    assert_eq!(ended.written, expected);
}

#[test]
fn loading_does_not_set_no_new_privs() {
    let filter = filter(DenyMode::Errno);
    let ended = in_child(|pipe| {
        // SAFETY: setresuid takes integers only. Not root: without no_new_privs the kernel has to refuse the filter.
        unsafe { libc::setresuid(65534, 65534, 65534) };
        let refused = matches!(load(&filter.program, 0), Err(error) if error.raw_os_error() == Some(libc::EACCES));
        // SAFETY: PR_GET_NO_NEW_PRIVS takes integers only.
        let has = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
        let answer = [u8::from(refused), u8::from(has == 1)];
        // SAFETY: two bytes are read from an array of two.
        unsafe { libc::write(pipe, answer.as_ptr().cast(), 2) };
    });
    assert_eq!((ended.status, ended.written), (0, vec![1, 0]));
}
