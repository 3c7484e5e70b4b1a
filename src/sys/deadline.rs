//! A deadline for code that has none: libcontainer waits for processes in a container, which a program there may stop,
//! and fcntl(2) waits for a lock.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The precision of the deadline.
const TICK: Duration = Duration::from_millis(250);

/// One deadline at a time: the signal handler and its state belong to the whole process.
static TURN: Mutex<()> = Mutex::new(());
static TICKS_LEFT: AtomicU32 = AtomicU32::new(0);
static PASSED: AtomicBool = AtomicBool::new(false);
/// -1 for none.
static HALT_FILE: AtomicI32 = AtomicI32::new(-1);
static HALT_OFFSET: AtomicI64 = AtomicI64::new(0);
static HALT_BYTE: AtomicU32 = AtomicU32::new(0);

/// The clock stands still while the file has this byte at this offset.
#[derive(Debug, Clone, Copy)]
pub struct Halt<'a> {
    /// Open for reading.
    pub file: BorrowedFd<'a>,
    /// The offset.
    pub offset: i64,
    /// The byte.
    pub byte: u8,
}

/// After the deadline each system call of this thread that blocks ends with EINTR within a quarter of a second. Before
/// it none does. Ends when dropped, on the thread that began it.
#[derive(Debug)]
pub struct Deadline<'a> {
    timer: libc::timer_t,
    before: libc::sigaction,
    mask: libc::sigset_t,
    _turn: MutexGuard<'static, ()>,
    _halt: PhantomData<Halt<'a>>,
}

impl<'a> Deadline<'a> {
    /// Starts the clock. Children do not inherit it: timers are not inherited, and execve(2) resets the handler.
    pub fn begin(within: Duration, halt: Option<Halt<'a>>) -> io::Result<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let ticks = within.as_millis().div_ceil(TICK.as_millis());
        TICKS_LEFT.store(u32::try_from(ticks).unwrap_or(u32::MAX).max(1), Relaxed);
        PASSED.store(false, Relaxed);
        HALT_FILE.store(halt.map_or(-1, |h| h.file.as_raw_fd()), Relaxed);
        HALT_OFFSET.store(halt.map_or(0, |h| h.offset), Relaxed);
        HALT_BYTE.store(halt.map_or(0, |h| h.byte.into()), Relaxed);
        // SAFETY: all-zero bytes are valid values of these structures of integers and nullable pointers. The calls read
        // and write them in this frame; the handler is a function of this program that does what signal-safety(7) allows.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            check(libc::sigaction(
                libc::SIGALRM,
                &action(libc::SA_RESTART),
                &raw mut before,
            ))?;
            let mut timer: libc::timer_t = std::ptr::null_mut();
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            if let Err(e) = check(libc::timer_create(
                libc::CLOCK_MONOTONIC,
                &raw mut event,
                &raw mut timer,
            )) {
                libc::sigaction(libc::SIGALRM, &raw const before, std::ptr::null_mut());
                return Err(e);
            }
            let mut alarm: libc::sigset_t = std::mem::zeroed();
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut alarm);
            libc::sigaddset(&raw mut alarm, libc::SIGALRM);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const alarm, &raw mut mask);
            let tick = libc::timespec {
                tv_sec: 0,
                tv_nsec: TICK.subsec_nanos().into(),
            };
            let every = libc::itimerspec {
                it_interval: tick,
                it_value: tick,
            };
            // Also restores everything if the timer does not start.
            let deadline = Self {
                timer,
                before,
                mask,
                _turn: turn,
                _halt: PhantomData,
            };
            check(libc::timer_settime(
                timer,
                0,
                &raw const every,
                std::ptr::null_mut(),
            ))?;
            Ok(deadline)
        }
    }

    /// Whether the deadline has passed.
    pub fn has_passed(&self) -> bool {
        PASSED.load(Relaxed)
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        // SAFETY: the timer is ours and used no more; the action and the mask are those that the kernel gave at the beginning.
        unsafe {
            libc::timer_delete(self.timer);
            libc::sigaction(libc::SIGALRM, &raw const self.before, std::ptr::null_mut());
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.mask,
                std::ptr::null_mut(),
            );
        }
        HALT_FILE.store(-1, Relaxed);
    }
}

fn action(flags: libc::c_int) -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid sigaction: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = tick as *const () as libc::sighandler_t;
    action.sa_flags = flags;
    action
}

/// A tick of the timer. Uses only what signal-safety(7) allows: atomics, pread(2), sigaction(2).
extern "C" fn tick(_: libc::c_int) {
    // SAFETY: errno is the thread's own; pread(2) writes at most one byte to this frame, and fails harmlessly on a number
    // that is not open; sigaction(2) reads a value of this frame.
    unsafe {
        let errno = *libc::__errno_location();
        let file = HALT_FILE.load(Relaxed);
        let mut byte = 0_u8;
        let halted = file >= 0
            && libc::pread(file, (&raw mut byte).cast(), 1, HALT_OFFSET.load(Relaxed)) == 1
            && u32::from(byte) == HALT_BYTE.load(Relaxed);
        let left = TICKS_LEFT.load(Relaxed);
        if !halted && left > 0 {
            TICKS_LEFT.store(left - 1, Relaxed);
            if left == 1 {
                PASSED.store(true, Relaxed);
                // Without SA_RESTART: from the next tick on blocking calls end.
                libc::sigaction(libc::SIGALRM, &action(0), std::ptr::null_mut());
            }
        }
        *libc::__errno_location() = errno;
    }
}

fn check(rc: libc::c_int) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_blocked_call_ends_at_the_deadline_and_not_before() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let deadline = Deadline::begin(Duration::from_millis(500), None).unwrap();
        let start = Instant::now();
        let read = rustix::io::read(&reader, &mut [0]);
        assert_eq!(read, Err(rustix::io::Errno::INTR));
        assert!(deadline.has_passed());
        assert!(
            start.elapsed() >= Duration::from_millis(490),
            "{:?}",
            start.elapsed()
        );
        // And a call that blocks afterwards.
        assert_eq!(
            rustix::io::read(&reader, &mut [0]),
            Err(rustix::io::Errno::INTR)
        );
    }

    #[test]
    fn a_met_deadline_leaves_nothing() {
        drop(Deadline::begin(Duration::from_millis(250), None).unwrap());
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(700));
            rustix::io::write(&writer, b"x")
        });
        assert_eq!(rustix::io::read(&reader, &mut [0]), Ok(1));
        later.join().unwrap().unwrap();
    }

    #[test]
    fn the_clock_stands_still_while_the_file_says_so() {
        let file = rustix::fs::memfd_create("halt", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, b"ab").unwrap();
        let halt = Halt {
            file: file.as_fd(),
            offset: 1,
            byte: b'b',
        };
        let deadline = Deadline::begin(Duration::from_millis(250), Some(halt)).unwrap();
        std::thread::sleep(Duration::from_millis(900));
        assert!(!deadline.has_passed());
        rustix::io::pwrite(&file, b"c", 1).unwrap();
        std::thread::sleep(Duration::from_millis(600));
        assert!(deadline.has_passed());
    }
}
