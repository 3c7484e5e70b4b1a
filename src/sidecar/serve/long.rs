//! A long stream: it has its own larger buffer, and while it does not pause it is read in batches (`SO_RCVLOWAT`).

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::RecvFlags;
use tokio::net::TcpStream;

use super::refusal::Refusal;
use super::stream::{drained, ended, write_pieces};
use crate::sidecar::buffer::BUFFER;
use crate::sys::event::Alarm;
use crate::sys::socket::{wait_readable, wake_at};

/// Bytes that a long stream moves at once.
const LARGE: usize = 512 << 10;
/// Streams with their own large buffer; further ones share one, so that memory is bounded.
const MOST_LARGE: usize = 8;
/// After this many reads in a row that fit the shared buffer, a stream is no longer long.
const LITTLE_OFTEN: u32 = 16;
/// How long a paused stream keeps its large buffer.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes that must wait before a steady stream is read: waking the reader takes the processor from the writers.
const BATCH: u32 = 256 << 10;
/// The longest wait for a batch, and so for the last bytes.
const BATCH_LIMIT: Duration = Duration::from_micros(250);
/// A stream is steady after this many bytes. Each late batch subtracts as many, so that the waiting time stays small.
const STEADY_AFTER: usize = 2 << 20;
/// The most bytes that are remembered.
const STEADY_MOST: usize = 8 << 20;

thread_local! {
    static LENT: Cell<usize> = const { Cell::new(0) };
}

/// How a long stream stopped being one.
#[derive(PartialEq, Eq)]
pub(super) enum Flow {
    /// It goes on, with smaller reads.
    Paused,
    /// It has ended.
    Ended,
}

/// A large buffer; few are in use at a time.
struct LargeBuffer(Vec<u8>);

impl LargeBuffer {
    fn take() -> Option<Self> {
        let lent = LENT.get();
        (lent < MOST_LARGE).then(|| {
            LENT.set(lent + 1);
            Self(vec![0; LARGE])
        })
    }
}

impl Drop for LargeBuffer {
    fn drop(&mut self) {
        LENT.set(LENT.get().saturating_sub(1));
    }
}

/// A stream that is only readable once a batch waits. On drop one byte is enough again, and waiting readers are woken.
struct Batches<'a> {
    stream: &'a TcpStream,
    alarm: Alarm,
}

impl<'a> Batches<'a> {
    /// `None` if the kernel has no timer left, or lacks the rest: nothing is changed then.
    fn of(stream: &'a TcpStream) -> Option<Self> {
        let alarm = Alarm::new().ok()?;
        wake_at(stream.as_fd(), BATCH).ok()?;
        Some(Self { stream, alarm })
    }

    /// Waits for a batch or the end; `false` if neither comes in time.
    async fn wait(&self) -> io::Result<bool> {
        tokio::select! {
            biased;
            ready = self.stream.readable() => ready.map(|()| true),
            rang = self.alarm.ring_after(BATCH_LIMIT) => rang.map(|()| false),
        }
    }
}

impl Drop for Batches<'_> {
    fn drop(&mut self) {
        // The kernel has accepted a value before, so it accepts this one.
        let _done = wake_at(self.stream.as_fd(), 1);
    }
}

/// Moves large pieces until the sender pauses, ends or sends little.
pub(super) async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    count: &mut impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<Flow, Refusal> {
    let Some(mut buffer) = LargeBuffer::take() else {
        return Ok(Flow::Paused);
    };
    let mut moved = 0_usize;
    let mut little = 0;
    let mut batches: Option<Batches> = None;
    loop {
        match &batches {
            Some(waiting) => {
                if !waiting.wait().await.map_err(ended)? {
                    moved = moved.saturating_sub(STEADY_AFTER);
                }
            }
            None => match tokio::time::timeout(PAUSE, from.readable()).await {
                Ok(ready) => ready.map_err(ended)?,
                Err(_) => return Ok(Flow::Paused),
            },
        }
        if moved < STEADY_AFTER {
            batches = None;
        }
        // Not with tokio, which would not read less than a batch.
        let length = match rustix::net::recv(from, &mut buffer.0, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(Flow::Ended),
            Ok((length, _)) => length,
            Err(rustix::io::Errno::WOULDBLOCK) => {
                drained(from);
                continue;
            }
            Err(error) => return Err(ended(error.into())),
        };
        count(length)?;
        // Counted again with each piece: a slow stream moves too.
        write_pieces(to, &buffer.0[..length], || count(0)).await?;
        little = if length < BUFFER { little + 1 } else { 0 };
        if little >= LITTLE_OFTEN {
            return Ok(Flow::Paused);
        }
        moved = (moved + length).min(STEADY_MOST);
        if batches.is_none() && moved >= STEADY_AFTER {
            batches = Batches::of(from);
        }
        // The kernel is asked: a read may end early (at TCP's urgent mark), and less than a batch is not read yet.
        if !wait_readable(from.as_fd(), Duration::ZERO).map_err(ended)? {
            drained(from);
        }
        // Lets other connections run.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::{Batches, LENT, LargeBuffer, MOST_LARGE, drained};

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap());
        let (writer, accepted) = tokio::join!(dialled, listener.accept());
        let reader = accepted.unwrap().0;
        // tokio assumes that a new stream is readable until it has looked.
        drained(&reader);
        (writer.unwrap(), reader)
    }

    fn run(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(work);
    }

    #[test]
    fn waits_for_a_batch_but_not_for_long() {
        run(async {
            let (mut writer, reader) = pair().await;
            let batches = Batches::of(&reader).unwrap();
            writer.write_all(&[1; 1000]).await.unwrap();
            assert!(!batches.wait().await.unwrap());
            writer.write_all(&[1; 299_000]).await.unwrap();
            // The bytes arrive in the kernel's own time.
            let mut late = 0;
            while !batches.wait().await.unwrap() {
                late += 1;
                assert!(late < 4000);
            }
            let read = reader.try_read(&mut [0; 400_000]).unwrap();
            assert!(read >= 256 << 10, "{read}");
            drained(&reader);
            writer.write_all(&[1; 10]).await.unwrap();
            assert!(!batches.wait().await.unwrap());
            drop(batches);
            // A reader that waits now is told of the earlier bytes.
            tokio::time::timeout(Duration::from_secs(20), reader.readable())
                .await
                .unwrap()
                .unwrap();
        });
    }

    #[test]
    fn an_end_wakes_like_a_batch() {
        run(async {
            let (writer, reader) = pair().await;
            let batches = Batches::of(&reader).unwrap();
            drop(writer);
            let mut late = 0;
            while !batches.wait().await.unwrap() {
                late += 1;
                assert!(late < 4000);
            }
            assert_eq!(reader.try_read(&mut [0; 10]).unwrap(), 0);
        });
    }

    #[test]
    fn large_buffers_are_few_and_are_returned() {
        for _ in 0..2 {
            let mut lent: Vec<LargeBuffer> = std::iter::from_fn(LargeBuffer::take).collect();
            assert_eq!(lent.len(), MOST_LARGE);
            assert!(lent.pop().is_some() && LargeBuffer::take().is_some());
        }
        assert_eq!(LENT.get(), 0);
    }
}
