//! A long stream: it has a larger buffer of its own, and when it does not pause it is read by batches (`SO_RCVLOWAT`).

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::RecvFlags;
use tokio::net::TcpStream;

use super::refusal::Refusal;
use super::relay::{drained, ended, write_pieces};
use crate::sidecar::buffer::BUFFER;
use crate::sys::event::Alarm;
use crate::sys::socket::{wait_readable, wake_at};

/// What a long stream moves at once.
const LARGE: usize = 512 << 10;
/// Streams with a large buffer of their own; further ones share one, so that memory is bounded.
const MOST_LARGE: usize = 8;
/// Reads in a row that the shared buffer would have held, after which a stream is not long any more.
const LITTLE_OFTEN: u32 = 16;
/// How long a stream that has paused keeps its large buffer.
const PAUSE: Duration = Duration::from_millis(20);
/// How much waits before a steady stream is read: each reader that is woken takes the processor from those who write.
const BATCH: u32 = 256 << 10;
/// How long that may take, and with it how long the last bytes may wait.
const BATCH_LIMIT: Duration = Duration::from_micros(250);
/// A stream is steady when so much has moved; each late batch takes as much away again, so that the waiting time stays
/// small.
const STEADY_AFTER: usize = 2 << 20;
/// No more than that is remembered.
const STEADY_MOST: usize = 8 << 20;

thread_local! {
    static LENT: Cell<usize> = const { Cell::new(0) };
}

/// How a long stream stopped being one.
#[derive(PartialEq, Eq)]
pub(super) enum Flow {
    /// It goes on, with less at once.
    Paused,
    /// It is over.
    Ended,
}

/// A large buffer, of which few are in use at a time.
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

/// A stream that is readable when a batch waits; the first byte counts again afterwards, and whoever waits then is told.
struct Batches<'a> {
    stream: &'a TcpStream,
    alarm: Alarm,
}

impl<'a> Batches<'a> {
    /// `None` where the kernel has no timer left, or none of the rest: all is as it was.
    fn of(stream: &'a TcpStream) -> Option<Self> {
        let alarm = Alarm::new().ok()?;
        wake_at(stream.as_fd(), BATCH).ok()?;
        Some(Self { stream, alarm })
    }

    /// Until there is a batch, or the end; `false` when there is none in time.
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
        // What the kernel took before it takes again.
        let _done = wake_at(self.stream.as_fd(), 1);
    }
}

/// Moves much at once, until the sender pauses, ends or has little to say.
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
        // Not by tokio, which would not read what is no batch.
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
        // Counted again with each piece: it moves, if slowly.
        write_pieces(to, &buffer.0[..length], || count(0)).await?;
        little = if length < BUFFER { little + 1 } else { 0 };
        if little >= LITTLE_OFTEN {
            return Ok(Flow::Paused);
        }
        moved = (moved + length).min(STEADY_MOST);
        if batches.is_none() && moved >= STEADY_AFTER {
            batches = Batches::of(from);
        }
        // Asked of the kernel: a read may end early (at TCP's urgent mark), and less than a batch is not read yet.
        if !wait_readable(from.as_fd(), Duration::ZERO).map_err(ended)? {
            drained(from);
        }
        // Others have connections too.
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
        // tokio takes a new stream for readable until it has looked.
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
    fn a_batch_is_waited_for_and_less_is_there_when_it_is_late() {
        run(async {
            let (mut writer, reader) = pair().await;
            let batches = Batches::of(&reader).unwrap();
            writer.write_all(&[1; 1000]).await.unwrap();
            assert!(!batches.wait().await.unwrap());
            writer.write_all(&[1; 299_000]).await.unwrap();
            // The bytes are on their way, by the kernel's own time.
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
            // Who waits now is told of what there was before.
            tokio::time::timeout(Duration::from_secs(20), reader.readable())
                .await
                .unwrap()
                .unwrap();
        });
    }

    #[test]
    fn an_end_is_no_batch_and_is_not_waited_for() {
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
    fn few_have_a_large_buffer_and_every_one_comes_back() {
        for _ in 0..2 {
            let mut lent: Vec<LargeBuffer> = std::iter::from_fn(LargeBuffer::take).collect();
            assert_eq!(lent.len(), MOST_LARGE);
            assert!(lent.pop().is_some() && LargeBuffer::take().is_some());
        }
        assert_eq!(LENT.get(), 0);
    }
}
