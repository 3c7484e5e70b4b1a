//! What hyper reads and writes by: the client's side, where everything passes the guard first, and the host's.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::egress::http::{HttpRefusal, RequestGuard};

/// The first byte of a TLS record with a greeting (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;

thread_local! {
    /// The one buffer for what does not wait: a connection on which nothing flows has none.
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    SHARED.with_borrow_mut(|buffer| work(buffer))
}

/// Why a client is not read any further.
#[derive(Debug)]
pub(super) struct Fault {
    pub refusal: HttpRefusal,
    /// It speaks TLS from its first byte.
    pub tls: bool,
}

/// The client's connection. Two programs read it, and what the stricter one refuses the other never sees.
pub(super) struct Client<'a> {
    stream: &'a TcpStream,
    guard: RequestGuard,
    /// The first byte of all.
    first: Option<u8>,
    /// What the guard let pass, and how much of it was read.
    passed: (Vec<u8>, usize),
    fault: &'a RefCell<Option<Fault>>,
}

impl<'a> Client<'a> {
    /// `early` came already. Why the connection ends early is said in `fault`.
    pub fn new(stream: &'a TcpStream, early: &[u8], fault: &'a RefCell<Option<Fault>>) -> Self {
        let mut client = Self {
            stream,
            guard: RequestGuard::of_framing(),
            first: None,
            passed: (Vec::new(), 0),
            fault,
        };
        client.take(early);
        client
    }

    /// What came before a fault passes: the guard lets whole pieces through.
    fn take(&mut self, bytes: &[u8]) {
        self.first = self.first.or(bytes.first().copied());
        self.passed.0.clear();
        self.passed.1 = 0;
        if let Err(refusal) = self.guard.feed(bytes, &mut self.passed.0) {
            let tls = refusal == HttpRefusal::NotHttp && self.first == Some(TLS_HANDSHAKE);
            *self.fault.borrow_mut() = Some(Fault { refusal, tls });
        }
    }
}

impl Read for Client<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let (bytes, read) = &mut self.passed;
            if *read < bytes.len() {
                let count = into.remaining().min(bytes.len() - *read);
                into.put_slice(&bytes[*read..*read + count]);
                *read += count;
                return Poll::Ready(Ok(()));
            }
            if self.fault.borrow().is_some() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            ready!(self.stream.poll_read_ready(cx))?;
            let outcome = with_buffer(|buffer| {
                let length = self.stream.try_read(buffer)?;
                self.take(&buffer[..length]);
                Ok(length)
            });
            match outcome {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(error) if is_not_now(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

fn is_not_now(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl Write for Client<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write(bytes) {
                Err(error) if is_not_now(&error) => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The client is told by whoever began: an answer may still follow.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A way to a host, in the clear or within TLS.
pub(super) trait Way: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Way for T {}

/// A connection to a host.
pub(super) struct Server(Box<dyn Way>);

impl Server {
    /// By this way.
    pub fn new(way: Box<dyn Way>) -> Self {
        Self(way)
    }
}

impl Read for Server {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let room = into.remaining();
        let read = with_buffer(|buffer| {
            let most = buffer.len().min(room);
            let mut buffer = ReadBuf::new(&mut buffer[..most]);
            ready!(Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
            into.put_slice(buffer.filled());
            Poll::Ready(Ok::<_, io::Error>(()))
        });
        Poll::Ready(ready!(read))
    }
}

impl Write for Server {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The event loop's clock.
pub(super) struct Clock;

struct Due(Pin<Box<tokio::time::Sleep>>);

impl Future for Due {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl Sleep for Due {}

impl Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Due(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Due(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }
}
