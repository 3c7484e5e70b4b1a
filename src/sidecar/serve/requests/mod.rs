//! Requests in the clear to hosts that rules for requests name: each is read, brought into its one form, decided about, and sent
//! in that form, by TLS where the rule says `https`.
//!
//! ```text
//! mod      one connection of a client: reads, decides, answers
//! rewrite  a message without what belongs to one connection, for the other one
//! outside  the connection to the host
//! stream   the sockets as hyper wants them, the guard before it and the budget behind it
//! ```
//!
//! What a host's answer says passes as it came, but for what belongs to the connection and for a redirect to the host's own
//! `https://`, which becomes the plain address by which the client came.

mod outside;
mod rewrite;
mod stream;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::{Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request as HttpRequest, Response, StatusCode};
use tokio::net::TcpStream;

use super::accept::{refuse, reset};
use super::explicit;
use super::refusal::{Refusal, RequestRefusal};
use super::wall::Wall;
use crate::audit::Via;
use crate::egress::Denial;
use crate::egress::http::LONGEST_HEAD;
use crate::egress::request::{Asked, RequestDecision};
use crate::policy::request::Scheme;
use crate::policy::{Host, Rule};
use outside::{Outside, Words};
use stream::{Client, Clock, Fault};

/// How long a client may take for a head, and be idle between requests.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

type Answer = Response<Either<Words, Incoming>>;

/// How a client came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By the proxy: one request, which names its host itself.
    Proxy,
    /// To the host's own address, as many requests as the client likes.
    Direct,
}

impl Way {
    fn via(self) -> Via {
        match self {
            Self::Proxy => Via::Http,
            Self::Direct => Via::Transparent,
        }
    }
}

/// One connection of a client.
struct Conversation<'a> {
    wall: &'a Rc<Wall>,
    stream: &'a TcpStream,
    way: Way,
    /// Where it leads, with the port that the client meant.
    host: &'a Host,
    port: u16,
    outside: RefCell<Option<Outside>>,
    /// Whether any request was read.
    began: Cell<bool>,
}

/// Serves a connection to a host with rules for requests. `early` came already.
pub(super) async fn serve(
    wall: &Rc<Wall>,
    stream: &TcpStream,
    way: Way,
    (host, port): (&Host, u16),
    early: &[u8],
) {
    let conversation = Conversation {
        wall,
        stream,
        way,
        host,
        port,
        outside: RefCell::new(None),
        began: Cell::new(false),
    };
    let fault = RefCell::new(None);
    let client = Client::new(stream, early, &fault);
    let service = service_fn(|message| conversation.answer(message));
    let mut builder = http1::Builder::new();
    builder
        .timer(Clock)
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(way == Way::Direct)
        .max_buf_size(2 * LONGEST_HEAD);
    // A client that is gone, or a fault that is answered below.
    let _ended = builder.serve_connection(client, service).await;
    let fault = fault.take();
    match fault {
        Some(fault) => conversation.end(fault).await,
        None => explicit::say_goodbye(stream).await,
    }
}

impl Conversation<'_> {
    /// Refuses what is no request, or more than one at once. Behind an answer that may be under way nothing more is said.
    async fn end(&self, Fault { refusal, tls }: Fault) {
        let refusal = match tls {
            true => Refusal::Denied(Denial::OnlyRequests),
            false => Refusal::Other(refusal.to_string()),
        };
        self.note(self.port, &refusal);
        match self.began.get() || tls {
            true => reset(self.stream),
            false => {
                explicit::answer(self.wall, self.stream, self.host, self.port, &refusal).await;
            }
        }
    }

    async fn answer(&self, message: HttpRequest<Incoming>) -> Result<Answer, Infallible> {
        self.began.set(true);
        let way = self.wall.rules.borrow().plain_way(self.host, self.port);
        // Without a way the rules have changed since the connection began.
        let answer = match way {
            Some(way) => self.forward(message, way).await,
            None => Err(Refusal::Revoked),
        };
        let port = way.map_or(self.port, |(_, port)| port);
        Ok(answer.unwrap_or_else(|refusal| self.refused(port, &refusal)))
    }

    async fn forward(
        &self,
        message: HttpRequest<Incoming>,
        (scheme, port): (Scheme, u16),
    ) -> Result<Answer, Refusal> {
        let to = (self.host.clone(), port);
        let asked =
            rewrite::read(&message, scheme, to).map_err(|why| Refusal::Other(why.to_string()))?;
        let rule = self.decide(&asked)?;
        self.wall.compare_request(&asked.request, &shown(&asked));
        let message = rewrite::request(&asked, message)
            .map_err(|why| Refusal::Request(Box::new(RequestRefusal::other(&asked, why))))?;
        let kept = self.outside.take();
        let (answer, outside) = self.send(&asked, &rule, message, kept).await?;
        self.outside.replace(Some(outside));
        rewrite::answer(&asked, answer)
            .map(|answer| answer.map(Either::Right))
            .map_err(|why| Refusal::Unreachable(format!("{}: {why}", asked.request.host)))
    }

    /// By the connection that is kept, or by a new one where the host has ended that before it got anything.
    async fn send(
        &self,
        asked: &Asked,
        rule: &Rule,
        mut message: HttpRequest<Incoming>,
        mut kept: Option<Outside>,
    ) -> Result<(Response<Incoming>, Outside), Refusal> {
        loop {
            let is_kept = kept.is_some();
            let mut outside = match kept.take() {
                Some(outside) => outside,
                None => Outside::open(self.wall, rule, &asked.request).await?,
            };
            if is_kept && !outside.takes(rule, &asked.request).await {
                continue;
            }
            // Much may have changed while the host did not answer.
            self.decide(asked)?;
            match outside.send(&asked.request, message).await {
                Ok(answer) => return Ok((answer, outside)),
                Err((_, Some(unsent))) if is_kept => message = unsent,
                Err((refusal, _)) => return Err(refusal),
            }
        }
    }

    fn decide(&self, asked: &Asked) -> Result<Rule, Refusal> {
        let denied = match self.wall.rules.borrow().decide_request(&asked.request) {
            RequestDecision::Allow(rule) => return Ok(rule),
            RequestDecision::DeniedBy(rule) => RequestRefusal::denied(asked, rule),
            RequestDecision::NotListed => RequestRefusal::not_listed(asked),
        };
        Err(Refusal::Request(Box::new(denied)))
    }

    fn note(&self, port: u16, refusal: &Refusal) {
        let via = self.way.via();
        refuse(self.wall, self.stream, via, self.host, port, refusal);
    }

    /// The answer of the wall itself.
    fn refused(&self, port: u16, refusal: &Refusal) -> Answer {
        self.note(port, refusal);
        let (status, phrase, body) = explicit::words(self.wall, self.host, port, refusal);
        let mut answer = Response::new(Either::Left(Words::new(Bytes::from(body))));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
        let json = HeaderValue::from_static("application/json");
        answer.headers_mut().insert(CONTENT_TYPE, json);
        if let Ok(phrase) = ReasonPhrase::try_from(phrase.into_bytes()) {
            answer.extensions_mut().insert(phrase);
        }
        answer
    }
}

/// A request as logs show it: without its query, which may hold secrets.
pub(super) fn shown(asked: &Asked) -> String {
    const LONGEST: usize = 300;
    let alone = Asked {
        request: asked.request.clone(),
        query: None,
    };
    let mut text = alone.to_string();
    if text.len() > LONGEST {
        // It is ASCII.
        text.truncate(LONGEST);
        text.push_str("...");
    }
    text
}
