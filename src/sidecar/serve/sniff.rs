//! The first bytes of a connection, and the host that they name.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;

use tokio::net::TcpStream;

use super::honey::Search;
use super::refusal::Refusal;
use super::stream::{FIRST_BYTES_WITHIN, read_some};
use crate::egress::tls::{
    ClientWatch, FirstBytes, ServerReply, ServerWatch, TlsRefusal, beginning, old_greeting,
};
use crate::egress::words::ContentRefusal;
use crate::rules::HostName;

/// The client's side of a TLS connection whose server has not answered yet.
#[derive(Debug)]
pub(super) struct Greeter {
    watch: ClientWatch,
    answered: Rc<Cell<bool>>,
}

impl Greeter {
    /// The other side sets `answered`.
    pub fn new(host: HostName, answered: Rc<Cell<bool>>) -> Self {
        Self {
            watch: ClientWatch::new(host),
            answered,
        }
    }

    /// The flag that the other side sets when the server has answered.
    pub fn answered(&self) -> &Rc<Cell<bool>> {
        &self.answered
    }

    /// The greetings since the last call, joined from their records.
    pub fn take_greetings(&mut self) -> Vec<u8> {
        self.watch.take_greetings()
    }

    /// Returns the bytes to send on. Once the server has answered everything passes, with the bytes held back so far.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<SniffStep, Refusal> {
        if self.answered.get() {
            let mut rest = self.watch.let_go();
            rest.extend_from_slice(bytes);
            return Ok(SniffStep::Free(rest));
        }
        let mut out = Vec::new();
        self.watch.feed(bytes, &mut out).map_err(refused)?;
        Ok(SniffStep::Watched(out))
    }
}

/// The state after a piece of a client's bytes.
pub(super) enum SniffStep {
    /// These pass, and the following ones are checked.
    Watched(Vec<u8>),
    /// These pass, and so do all that follow.
    Free(Vec<u8>),
}

/// The server's side of a watched TLS connection.
#[derive(Debug)]
pub(super) struct Answers {
    watch: ServerWatch,
    answered: Rc<Cell<bool>>,
}

impl Answers {
    /// For the side that sets the flag.
    pub fn new(answered: Rc<Cell<bool>>) -> Self {
        Self {
            watch: ServerWatch::default(),
            answered,
        }
    }

    /// Looks at the server's bytes, before they are sent on. Returns whether there is nothing more to look for.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        match self.watch.feed(bytes) {
            ServerReply::NoAnswer => false,
            ServerReply::Answer => {
                self.answered.set(true);
                true
            }
            // The client's side stays watched to its end.
            ServerReply::NotTls => true,
        }
    }
}

/// Reads a ClientHello, which must name the host. Returns the bytes to pass on, and the checker for the following ones.
/// `early` came already.
pub(super) async fn client_hello(
    stream: &TcpStream,
    host: &HostName,
    early: Vec<u8>,
    search: &mut Search,
) -> Result<(Vec<u8>, Greeter), Refusal> {
    let mut greeter = Greeter::new(host.clone(), Rc::default());
    let mut out = Vec::new();
    greeter.watch.feed(&early, &mut out).map_err(refused)?;
    let mut seen = early.len();
    let reading = async {
        while !greeter.watch.has_greeted() {
            let chunk = match read_some(stream).await {
                Err(Refusal::Broken(ErrorKind::UnexpectedEof)) if seen > 0 => {
                    return Err(ContentRefusal::CutGreeting.into());
                }
                // Without any byte it was a port scan, or a connection that was opened early and is not needed.
                read => read?,
            };
            seen += chunk.len();
            search.look(&chunk)?;
            greeter.watch.feed(&chunk, &mut out).map_err(refused)?;
        }
        search.look_at(&greeter.take_greetings())
    };
    match tokio::time::timeout(FIRST_BYTES_WITHIN, reading).await {
        Ok(Ok(())) => Ok((out, greeter)),
        Ok(Err(refusal)) => Err(refusal),
        Err(_) => Err(ContentRefusal::SlowGreeting.into()),
    }
}

/// A connection whose client may send any bytes first. If it speaks TLS, it must name this host.
#[derive(Debug)]
pub(super) struct UndecidedClient {
    greeter: Greeter,
    /// The bytes that have passed, if they were too few to tell.
    said: Vec<u8>,
}

/// The protocol of the first bytes.
pub(super) enum SniffResult {
    /// TLS: this greeter checks these bytes and the following ones.
    Tls(Greeter),
    /// Nothing to check.
    Free,
    /// Too few bytes to tell. They may pass: they do not begin TLS, but perhaps SSLv2.
    Open(UndecidedClient),
}

impl UndecidedClient {
    pub fn new(host: HostName) -> Self {
        Self {
            greeter: Greeter::new(host, Rc::default()),
            said: Vec::new(),
        }
    }

    /// The flag that the other side sets when the server has answered.
    pub fn answered(&self) -> &Rc<Cell<bool>> {
        &self.greeter.answered
    }

    /// Checks the client's bytes.
    pub fn judge(mut self, bytes: &[u8]) -> Result<SniffResult, Refusal> {
        // Three bytes are enough.
        self.said.extend(bytes.iter().take(3));
        match beginning(&self.said) {
            FirstBytes::Tls => Ok(SniffResult::Tls(self.greeter)),
            FirstBytes::OldGreeting => Err(refused(old_greeting())),
            FirstBytes::Open => Ok(SniffResult::Open(self)),
            FirstBytes::Other => Ok(SniffResult::Free),
        }
    }
}

fn refused(why: TlsRefusal) -> Refusal {
    ContentRefusal::Tls(why).into()
}
