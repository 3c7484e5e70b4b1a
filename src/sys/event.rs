#![expect(
    unsafe_code,
    reason = "the event loop asks for a promise; every block states its proof"
)]
//! Waiting for a descriptor or a time, in the sidecar's event loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use super::socket::{self, Datagram};

/// The event loop of a process with one thread. Not a `LocalSet`, whose tasks wake the loop by a write to an eventfd:
/// one more round for each message.
pub fn event_loop() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default())
}

/// Waits until a descriptor is readable or hung up. Must be called inside a tokio runtime.
pub async fn readable(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: the registration is for `fd`'s number, which the borrow keeps open for as long as the returned value
    // lives, and that value is dropped in this function.
    let watched = unsafe { AsyncFd::register_with_interest(fd.as_fd(), Interest::READABLE) };
    let watched = watched.map_err(io::Error::from)?;
    watched.readable().await?.retain_ready();
    Ok(())
}

/// A descriptor that becomes readable repeatedly.
#[derive(Debug)]
pub struct ReadableFd(AsyncFd<OwnedFd>);

impl ReadableFd {
    /// Must be called inside a tokio runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the value owns the descriptor, whose number is the same until it is closed, and that is after the registration
        // has ended: AsyncFd's drop takes it back first.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// Waits until it becomes readable again. The caller must have read everything before.
    pub async fn wait(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

/// A message socket ([`super::socket::pair`]) in the event loop.
#[derive(Debug)]
pub struct Messages(AsyncFd<OwnedFd>);

impl Messages {
    /// Must be called inside a tokio runtime. From here on no call on the socket blocks.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: the value owns the descriptor, whose number is the same until it is closed, and that is after the registration
        // has ended: AsyncFd's drop takes it back first.
        let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// The next message of at most `longest` bytes, and its descriptors; an empty one when the other side has closed.
    /// No buffer is held while waiting.
    pub async fn receive(&self, longest: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let hear = |fd: &OwnedFd| {
            let mut buffer = vec![0; longest];
            let Datagram { len, fds } = socket::receive(fd.as_fd(), &mut buffer)?;
            buffer.truncate(len);
            Ok((buffer, fds))
        };
        match self.0.async_io(Interest::READABLE, hear).await {
            // It closed with our bytes unread: closed all the same.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Default::default()),
            heard => heard,
        }
    }

    /// Sends one message; waits if the other side has many unread ones, and up to a second where others' descriptors keep it back:
    /// those of another sandbox of the user must not stop this event loop.
    pub async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let once = || {
            self.0.async_io(Interest::WRITABLE, |fd| {
                socket::send_once(fd.as_fd(), bytes, fds)
            })
        };
        for _ in 0..socket::MOST_TRIES {
            match once().await {
                Err(error) if socket::is_kept_back(&error) => {
                    tokio::time::sleep(socket::APART).await;
                }
                done => return done,
            }
        }
        once().await
    }
}

/// A one-shot timer, finer than tokio's own timers, which count milliseconds.
#[derive(Debug)]
pub struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// timerfd_create(2). Must be called inside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the value owns the timer, whose number is the same until it is closed, and that is after the registration
        // has ended: AsyncFd's drop takes it back first.
        let watched = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// Waits for this time (at least a nanosecond) from now on; replaces an earlier wait.
    pub async fn ring_after(&self, wait: Duration) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(wait).map_err(|_| io::ErrorKind::InvalidInput)?,
        };
        // Not read: setting the timer clears its expiry (timerfd_create(2)), and the event loop must clear it too.
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        let nothing = |_: &OwnedFd| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _forgotten = self.0.try_io(Interest::READABLE, nothing);
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_rings_each_time_it_is_set_and_not_before() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let alarm = Alarm::new().unwrap();
            // Cancelled before it rang: that must not count for the next wait.
            let given_up = alarm.ring_after(Duration::from_micros(100));
            let nothing = std::future::ready(());
            tokio::select! { biased; _ = given_up => panic!("it rang at once"), () = nothing => {} }
            tokio::time::sleep(Duration::from_millis(5)).await;
            for _ in 0..2 {
                let begin = std::time::Instant::now();
                alarm.ring_after(Duration::from_millis(3)).await.unwrap();
                assert!(begin.elapsed() >= Duration::from_millis(3));
            }
        });
    }
}
