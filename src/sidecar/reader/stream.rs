//! The streams for hyper: the client's side, where everything passes the guard first, and the host's.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::egress::http::{HttpRefusal, RequestGuard};
use crate::egress::{Honey, HoneySearch};
use crate::sidecar::buffer::with_buffer;

/// The first byte of a TLS handshake record (RFC 8446, section 5.1).
pub(super) const TLS_HANDSHAKE: u8 = 0x16;

/// Why the reader stops reading a client.
#[derive(Debug)]
pub(super) enum ClientFault {
    /// Its bytes are no request, or an ambiguous one.
    Unread(String),
    /// It speaks TLS from its first byte.
    Tls(String),
    /// Its bytes contain the honey value of this name.
    Honey(String),
}

/// State that is shared by the client's stream and the code that answers its requests.
#[derive(Default)]
pub(super) struct Passage {
    /// Why the connection ends early.
    pub fault: RefCell<Option<ClientFault>>,
    /// The result of the last request for another protocol.
    pub turn: Cell<ProtocolSwitch>,
}

/// The result of the last request for another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ProtocolSwitch {
    /// Requests; no bytes may follow one for another protocol before its answer.
    #[default]
    Requests,
    /// Requests, also after one for another protocol: its answer switched nothing.
    Stays,
    /// Another protocol, which is not read here.
    Switched,
}

/// The client's connection, after its early bytes.
pub(super) struct ClientStream {
    stream: TcpStream,
    /// The early bytes, and how many of them were read.
    early: (Vec<u8>, usize),
}

impl ClientStream {
    pub fn new(stream: TcpStream, early: Vec<u8>) -> Self {
        Self {
            stream,
            early: (early, 0),
        }
    }

    /// Waits for the first byte, and does not consume it; `None` at the end.
    pub async fn first(&mut self) -> Option<u8> {
        const LITTLE: usize = 2048;
        if self.early.0.is_empty() {
            let mut bytes = [0; LITTLE];
            let mut into = ReadBuf::new(&mut bytes);
            let came = poll_fn(|cx| Pin::new(&mut self.stream).poll_read(cx, &mut into)).await;
            came.ok()?;
            self.early.0.extend_from_slice(into.filled());
        }
        self.early.0.first().copied()
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (early, read) = &mut self.early;
        if *read < early.len() {
            let count = into.remaining().min(early.len() - *read);
            into.put_slice(&early[*read..*read + count]);
            *read += count;
            if *read == early.len() {
                self.early = (Vec::new(), 0);
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The sidecar, which also holds the connection, ends it: an answer may still follow.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The client's side. Two parsers read it, and hyper never sees what the stricter guard refuses.
pub(super) struct Client<'a> {
    stream: Box<dyn ByteStream>,
    guard: RequestGuard,
    search: HoneySearch,
    /// The first byte of the connection.
    first: Option<u8>,
    /// The bytes that passed the guard, and how many of them were read.
    passed: (Vec<u8>, usize),
    passage: &'a Passage,
}

impl<'a> Client<'a> {
    /// A client behind the guard.
    pub fn new(stream: Box<dyn ByteStream>, honey: &Rc<Honey>, passage: &'a Passage) -> Self {
        Self {
            stream,
            search: HoneySearch::new(honey),
            guard: RequestGuard::of_framing(),
            first: None,
            passed: (Vec::new(), 0),
            passage,
        }
    }

    /// Bytes before a fault pass: the guard lets whole pieces through.
    fn take(&mut self, bytes: &[u8]) {
        self.first = self.first.or(bytes.first().copied());
        self.passed.0.clear();
        self.passed.1 = 0;
        if let Some(caught) = self.search.feed(bytes) {
            let fault = ClientFault::Honey(caught.name.to_string());
            *self.passage.fault.borrow_mut() = Some(fault);
            return;
        }
        match self.passage.turn.get() {
            ProtocolSwitch::Requests => {}
            ProtocolSwitch::Stays => {
                self.guard.stays();
                self.passage.turn.set(ProtocolSwitch::Requests);
            }
            ProtocolSwitch::Switched => return self.passed.0.extend_from_slice(bytes),
        }
        if let Err(refusal) = self.guard.feed(bytes, &mut self.passed.0) {
            let why = refusal.to_string();
            let is_tls = refusal == HttpRefusal::NotHttp && self.first == Some(TLS_HANDSHAKE);
            let fault = if is_tls {
                ClientFault::Tls
            } else {
                ClientFault::Unread
            };
            *self.passage.fault.borrow_mut() = Some(fault(why));
        }
    }
}

impl Client<'_> {
    /// The connection after its requests, and its unread bytes.
    pub fn into_rest(self) -> (Box<dyn ByteStream>, Vec<u8>) {
        let (bytes, read) = self.passed;
        (self.stream, bytes[read..].to_vec())
    }

    /// Ends the connection after its last answer.
    pub async fn end(&mut self) {
        // A client that is gone needs no end.
        let _ended = poll_fn(|cx| Pin::new(&mut self.stream).poll_shutdown(cx)).await;
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
            if self.passage.fault.borrow().is_some() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let length = with_buffer(|buffer| {
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
                self.take(buffer.filled());
                Poll::Ready(Ok::<_, io::Error>(buffer.filled().len()))
            });
            if ready!(length)? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Write for Client<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection to a host or a client, plain or within TLS.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// A connection to a host.
pub(super) struct Server(Box<dyn ByteStream>);

impl Server {
    /// Over this connection.
    pub fn new(way: Box<dyn ByteStream>) -> Self {
        Self(way)
    }

    /// The connection, after its last request.
    pub fn into_way(self) -> Box<dyn ByteStream> {
        self.0
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

/// A timer that wakes the reader of a stream.
struct DueTimer(Pin<Box<tokio::time::Sleep>>);

impl Future for DueTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl Sleep for DueTimer {}

impl Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(DueTimer(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(DueTimer(Box::pin(tokio::time::sleep_until(
            deadline.into(),
        ))))
    }
}
