//! Bytes both ways, until both sides are done. While nothing flows a connection costs no buffer: the one buffer there
//! is belongs to whoever is reading. A long stream has a larger buffer of its own, because the size of one read
//! decides the speed. splice(2), which copies nothing, was slower, since it hands the socket single pages
//! (docs/benchmarks.md). What goes by TLS is another matter: `secure`.
//!
//! A stream without a pause is read by batches (`SO_RCVLOWAT`).

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::live::Share;
use super::secure::{self, Server};
use super::sniff::{Answers, Fed, First, Greeter, Judged};
use super::wall::Refusal;
use crate::egress::http::RequestGuard;
use crate::sys::event::Alarm;
use crate::sys::socket::{wait_readable, wake_at};

/// The one buffer.
const BUFFER: usize = 64 << 10;
/// Full buffers in a row after which a stream is long.
const LONG_AFTER: u32 = 4;
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
/// How long one side may go on after the other has ended.
const AFTER_END: Duration = Duration::from_secs(300);

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
    static LENT: Cell<usize> = const { Cell::new(0) };
}

/// What is still looked at in what the client sends.
#[derive(Debug)]
pub(super) enum Watch {
    /// Nothing more.
    Nothing,
    /// Every request.
    Http(Box<RequestGuard>),
    /// The first bytes, which may be TLS's.
    First(Box<First>),
    /// Every greeting, until the server has answered.
    Tls(Box<Greeter>),
    /// The server's side of those two.
    Answers(Box<Answers>),
}

impl Watch {
    /// What is looked at in what the server sends.
    fn other_side(&self) -> Self {
        let answered = match self {
            Self::First(first) => first.answered(),
            Self::Tls(greeter) => greeter.answered(),
            Self::Nothing | Self::Http(_) | Self::Answers(_) => return Self::Nothing,
        };
        Self::Answers(Box::new(Answers::new(Rc::clone(answered))))
    }
}

/// Relays until both directions have ended, or one may not go on.
pub(super) async fn relay(
    client: &TcpStream,
    server: Server,
    watch: Watch,
    share: &Share<'_>,
) -> Result<(), Refusal> {
    let sent = |bytes| share.send(bytes).map_err(Refusal::Over);
    let received = |bytes| {
        share.receive(bytes);
        Ok(())
    };
    let back = watch.other_side();
    match server {
        Server::Plain(server) => {
            let one_has_ended = Cell::new(false);
            // Whoever ends last closes both connections, and that says it.
            let tell = |to: &TcpStream| {
                if !one_has_ended.replace(true) {
                    say_end(to);
                }
            };
            let up = async {
                pump(client, &server, watch, sent).await?;
                tell(&server);
                Ok(())
            };
            let down = async {
                pump(&server, client, back, received).await?;
                tell(client);
                Ok(())
            };
            both(pin!(up), pin!(down)).await
        }
        Server::Secured(stream) => {
            let (from, to) = tokio::io::split(stream);
            let up = secure::seal(client, to, watch, sent);
            let down = secure::open(from, client, back, received);
            both(Box::pin(up).as_mut(), Box::pin(down).as_mut()).await
        }
    }
}

/// Until both have ended, one of them badly, or one long before the other.
async fn both(
    mut up: Pin<&mut impl Future<Output = Result<(), Refusal>>>,
    mut down: Pin<&mut impl Future<Output = Result<(), Refusal>>>,
) -> Result<(), Refusal> {
    let (first, up_is_left) = tokio::select! {
        ended = &mut up => (ended, false),
        ended = &mut down => (ended, true),
    };
    first?;
    let rest = async {
        match up_is_left {
            true => up.await,
            false => down.await,
        }
    };
    match tokio::time::timeout(AFTER_END, rest).await {
        Ok(ended) => ended,
        Err(_) => Ok(()),
    }
}

/// One direction, to its end, which the other side is still to be told.
pub(super) async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    mut watch: Watch,
    mut count: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut full = 0;
    loop {
        match step(from, to, &mut watch, &mut count).await? {
            Step::Moved(length) if length == BUFFER => full += 1,
            Step::Moved(_) => full = 0,
            Step::End => break,
        }
        if full >= LONG_AFTER {
            full = 0;
            // Others have connections too, and a sender may be as fast as this.
            tokio::task::yield_now().await;
            let plain = matches!(watch, Watch::Nothing);
            if plain && Box::pin(pump_long(from, to, &mut count)).await? == Flow::Ended {
                break;
            }
        }
    }
    Ok(())
}

pub(super) fn say_end(to: &TcpStream) {
    // The other side may be gone already, and then there is nobody to tell.
    let _told = rustix::net::shutdown(to, rustix::net::Shutdown::Write);
}

/// Lends the one buffer to what does not wait.
pub(super) fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    SHARED.with_borrow_mut(|buffer| work(buffer))
}

enum Step {
    Moved(usize),
    End,
}

async fn step(
    from: &TcpStream,
    to: &TcpStream,
    watch: &mut Watch,
    count: &mut impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<Step, Refusal> {
    loop {
        from.readable().await.map_err(ended)?;
        let moved = with_buffer(|buffer| {
            let length = match from.try_read(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(ended(error)),
            };
            if length == 0 {
                return Ok(Some((0, Vec::new())));
            }
            if length < buffer.len() {
                drained(from);
            }
            count(length)?;
            let left = match pass(watch, &buffer[..length])? {
                None => write_some(to, &buffer[..length])?,
                Some(passed) => write_some(to, &passed)?,
            };
            Ok(Some((length, left)))
        })?;
        match moved {
            None => {}
            Some((0, _)) => return Ok(Step::End),
            Some((length, left)) => {
                write_all(to, &left).await?;
                return Ok(Step::Moved(length));
            }
        }
    }
}

/// Tells tokio that there is nothing more to read for now, as its own reads do after a short one: otherwise each
/// message costs another recv(2) without data. An end that is known already stays known.
fn drained(stream: &TcpStream) {
    let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    let _said = stream.try_io(Interest::READABLE, nothing);
}

/// What of these bytes goes on: `None` for all of them as they are.
pub(super) fn pass(watch: &mut Watch, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    match watch {
        Watch::Nothing => Ok(None),
        Watch::Http(guard) => {
            let mut out = Vec::new();
            guard
                .feed(bytes, &mut out)
                .map_err(|refusal| Refusal::Other(refusal.to_string()))?;
            Ok(Some(out))
        }
        Watch::Tls(greeter) => match greeter.feed(bytes)? {
            Fed::Watched(out) => Ok(Some(out)),
            Fed::Free(out) => {
                *watch = Watch::Nothing;
                Ok(Some(out))
            }
        },
        Watch::Answers(answers) => {
            if answers.feed(bytes) {
                *watch = Watch::Nothing;
            }
            Ok(None)
        }
        Watch::First(_) => {
            let Watch::First(first) = std::mem::replace(watch, Watch::Nothing) else {
                return Ok(None);
            };
            match first.judge(bytes)? {
                Judged::Free => Ok(None),
                Judged::Open(first) => {
                    *watch = Watch::First(Box::new(first));
                    Ok(None)
                }
                Judged::Tls(greeter) => {
                    *watch = Watch::Tls(Box::new(greeter));
                    pass(watch, bytes)
                }
            }
        }
    }
}

/// Writes what goes at once and returns the rest.
fn write_some(to: &TcpStream, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    match to.try_write(bytes) {
        Ok(written) => Ok(bytes[written..].to_vec()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(bytes.to_vec()),
        Err(error) => Err(ended(error)),
    }
}

/// Writes all of it, waiting where it must.
pub(super) async fn write_all(to: &TcpStream, bytes: &[u8]) -> Result<(), Refusal> {
    write_pieces(to, bytes, || Ok(())).await
}

/// Likewise, and says so whenever a piece has gone.
async fn write_pieces(
    to: &TcpStream,
    mut bytes: &[u8],
    mut gone: impl FnMut() -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(written) => {
                bytes = &bytes[written..];
                gone()?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                to.writable().await.map_err(ended)?;
            }
            Err(error) => return Err(ended(error)),
        }
    }
    Ok(())
}

/// A connection that broke is over; that is no violation.
pub(super) fn ended(error: io::Error) -> Refusal {
    Refusal::Broken(error.kind())
}

#[derive(PartialEq, Eq)]
enum Flow {
    Paused,
    Ended,
}

/// A buffer that few have at a time.
struct Large(Vec<u8>);

impl Large {
    fn take() -> Option<Self> {
        let lent = LENT.get();
        (lent < MOST_LARGE).then(|| {
            LENT.set(lent + 1);
            Self(vec![0; LARGE])
        })
    }
}

impl Drop for Large {
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
async fn pump_long(
    from: &TcpStream,
    to: &TcpStream,
    count: &mut impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<Flow, Refusal> {
    let Some(mut buffer) = Large::take() else {
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

    use super::{Batches, LENT, Large, MOST_LARGE, drained};

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
            let mut lent: Vec<Large> = std::iter::from_fn(Large::take).collect();
            assert_eq!(lent.len(), MOST_LARGE);
            assert!(lent.pop().is_some() && Large::take().is_some());
        }
        assert_eq!(LENT.get(), 0);
    }
}
