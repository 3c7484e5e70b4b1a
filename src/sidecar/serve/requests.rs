//! Connections to hosts with request rules, plain or within opened TLS: given to the [reader](crate::sidecar::reader),
//! whose questions are answered here.
//!
//! The reader puts each request into canonical form. Here it is decided, and the host is dialled. Its bytes are carried
//! as on every other connection: counted, logged, and ended when the rules end them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use tokio::net::TcpStream;

use super::answer::{self, HttpAnswer};
use super::asks::reach_of;
use super::host_connection::HostConnection;
use super::notes::refuse;
use super::reader_line::GONE;
use super::refusal::{Refusal, RequestRefusal, bounded, shown};
use super::stream::reset;
use super::tunnel::HTTPS;
use super::wall::Wall;
use crate::audit::ConnectionKind;
use crate::egress::request::typed;
use crate::egress::words::ContentRefusal;
use crate::rules::request::decide::{FullRequest, RequestDecision};
use crate::rules::request::{McpCall, Request, Scheme};
use crate::rules::{Decision, Denial, EgressRule, Host, endpoint};

pub(super) use crate::sidecar::reader::messages::ClientRoute;
use crate::sidecar::reader::messages::{Arrival, ConnectionChoice, ReaderQuestion, RequestAnswer};

/// One connection of a client.
struct Conversation<'a> {
    wall: &'a Rc<Wall>,
    stream: &'a TcpStream,
    /// The destination and scheme of its requests, and how the client connected.
    arrival: Arrival,
    /// How it came to the wall.
    via: ConnectionKind,
    /// The port that the client meant.
    port: u16,
    outside: Option<HostConnection>,
}

/// Whether connections to this host and port go to the reader, plain or within opened TLS.
pub(super) fn are_read(wall: &Wall, host: &Host, port: u16) -> bool {
    let rules = wall.rules();
    // Traffic that a connection rule allows passes unread.
    let by_requests = rules.decide(host, port) == Decision::Deny(Denial::OnlyRequests);
    // On HTTPS's own port a client speaks TLS.
    let is_read = port != HTTPS || wall.opens(host);
    by_requests && is_read && rules.plain_way(host, port).is_some()
}

/// Serves a connection to a host with request rules. `early` came already.
pub(super) async fn serve(
    wall: &Rc<Wall>,
    stream: &TcpStream,
    (way, via): (ClientRoute, ConnectionKind),
    (host, port): (&Host, u16),
    early: &[u8],
) {
    let plain_way = wall.rules().plain_way(host, port);
    let outcome = match plain_way {
        // The rules have changed meanwhile.
        None => Err(Refusal::Revoked),
        Some((scheme, to)) => {
            let arrival = Arrival {
                way,
                host: host.clone(),
                port: to,
                scheme,
                opens: scheme == Scheme::Https && way == ClientRoute::Direct && wall.opens(host),
                early: early.len(),
            };
            let mut conversation = Conversation {
                wall,
                stream,
                arrival,
                via,
                port,
                outside: None,
            };
            conversation.hold(early).await
        }
    };
    if let Err(refusal) = outcome {
        refuse(wall, stream, via, host, port, &refusal);
        match port == HTTPS {
            true => reset(stream),
            false => answer::answer(wall, stream, host, port, &refusal).await,
        }
    }
}

impl Conversation<'_> {
    /// Answers the reader's questions until it has none. The client has not been told of an error yet.
    async fn hold(&mut self, early: &[u8]) -> Result<(), Refusal> {
        let gone = |_: io::Error| Refusal::Unreachable(GONE.to_owned());
        let reader = self.wall.reader();
        let reader = reader.ok_or_else(|| Refusal::Unreachable(GONE.to_owned()))?;
        let given = reader.give(self.stream, &self.arrival, early).await;
        let line = given.map_err(gone)?;
        loop {
            let question = match line.hear::<ReaderQuestion>().await {
                Ok(Some((question, _))) => question,
                Ok(None) => {
                    match self.websocket_ended_by() {
                        Some(refusal) => self.end(&refusal),
                        None => answer::say_goodbye(self.stream).await,
                    }
                    return Ok(());
                }
                // The reader has failed. An answer may have started.
                Err(_) => {
                    let why = "the reader ended, or its message could not be read".to_owned();
                    self.note(self.port, &Refusal::by_reader(why));
                    reset(self.stream);
                    return Ok(());
                }
            };
            let answered = match question {
                ReaderQuestion::Fault { why, began: false } => return Err(Refusal::by_reader(why)),
                ReaderQuestion::Fault { why, began: true } => {
                    self.end(&Refusal::by_reader(why));
                    return Ok(());
                }
                ReaderQuestion::Malformed(why) => {
                    self.note(self.port, &Refusal::by_reader(why));
                    answer::say_goodbye(self.stream).await;
                    return Ok(());
                }
                ReaderQuestion::Honey(name) => {
                    let caught = self.wall.traps.named(&name);
                    self.end(&caught.unwrap_or(ContentRefusal::UnknownHoney.into()));
                    return Ok(());
                }
                ReaderQuestion::Tls => {
                    self.end(&Refusal::Denied(Denial::OnlyRequests));
                    return Ok(());
                }
                ReaderQuestion::Unclear(why) => Err(Refusal::by_reader(why)),
                ReaderQuestion::Unreachable(why) => Err(self.unreachable(why)),
                ReaderQuestion::Busy => Err(Refusal::Busy),
                ReaderQuestion::Request {
                    address,
                    unfit,
                    calls,
                    by,
                } => self.may(&address, (unfit, calls), by).await,
            };
            let said = match answered {
                Ok((answer, None)) => line.say(&answer, &[]).await,
                Ok((answer, Some(stream))) => line.say(&answer, &[stream.as_fd()]).await,
                Err(refusal) => line.say(&self.refused(&refusal), &[]).await,
            };
            if said.is_err() {
                reset(self.stream);
                return Ok(());
            }
        }
    }

    /// Stops reading from the client, and sends nothing after an answer that may have started.
    fn end(&self, refusal: &Refusal) {
        self.note(self.port, refusal);
        reset(self.stream);
    }

    /// Decides about a request. Also returns the reader's end of a new connection to its host, if it needs one.
    async fn may(
        &mut self,
        address: &str,
        (unfit, calls): (Option<String>, Option<Vec<McpCall>>),
        by: ConnectionChoice,
    ) -> Result<(RequestAnswer, Option<OwnedFd>), Refusal> {
        self.wall.traps.look_at_address(address)?;
        let mut asked = self.parse_request(address)?;
        asked.request.calls = calls;
        if self.wall.rules().needs_calls(&asked.request) {
            return match unfit {
                None => Ok((RequestAnswer::Read, None)),
                Some(why) => Err(RequestRefusal::unfit(&asked, why).into()),
            };
        }
        let rule = self.decide(&asked)?;
        let lists = asked.request.calls.as_ref().map(|_| {
            let lists = self.wall.rules().lists(&asked.request);
            Box::new(lists)
        });
        self.wall.compare_request(&asked.request, &shown(&asked));
        if let Some(why) = unfit {
            return Err(RequestRefusal::unfit(&asked, why).into());
        }
        let counted = self.wall.count_uses(&asked.request);
        counted.map_err(|secret| RequestRefusal::withheld(&asked, secret))?;
        if let Some(outside) = self.outside.as_ref().filter(|_| by == ConnectionChoice::Either)
            // A rule for public addresses sends nothing over a connection of an `internal:` rule.
            && reach_of(&rule).keeps(outside.reach)
        {
            outside.under_way.replace(asked.request);
            return Ok((RequestAnswer::Go { lists }, None));
        }
        self.outside = None;
        let (outside, stream) = HostConnection::open(self.wall, &rule, &asked.request).await?;
        self.outside = Some(outside);
        // The rules may have changed while the host did not answer.
        self.decide(&asked)?;
        // So may a secret have ended.
        if let Some(secret) = self.wall.ended_secret(&asked.request) {
            return Err(RequestRefusal::withheld(&asked, secret).into());
        }
        Ok((RequestAnswer::Go { lists }, Some(stream)))
    }

    /// Parses a request from the reader. It must be for the connection's host, by the route that the rules give now.
    fn parse_request(&self, address: &str) -> Result<FullRequest, Refusal> {
        let Arrival {
            host, port, scheme, ..
        } = &self.arrival;
        let way = self.wall.rules().plain_way(host, self.port);
        if way != Some((*scheme, *port)) {
            return Err(Refusal::Revoked);
        }
        let asked = typed(address).map_err(ContentRefusal::Http)?;
        let Request {
            host: named,
            port: at,
            scheme: by,
            ..
        } = &asked.request;
        match (named, at, by) == (host, port, scheme) {
            true => Ok(asked),
            false => Err(Refusal::Content(ContentRefusal::OtherDestination {
                request: endpoint(named, *at),
                connection: endpoint(host, *port),
            })),
        }
    }

    fn decide(&self, asked: &FullRequest) -> Result<EgressRule, Refusal> {
        let rules = self.wall.rules();
        let mut allowed = None;
        for one in asked.alone() {
            let denied = match rules.decide_request(&one.request) {
                RequestDecision::Allow(rule) => {
                    allowed = allowed.or(Some(rule));
                    continue;
                }
                RequestDecision::DeniedBy(rule) => RequestRefusal::denied(&one, rule),
                RequestDecision::NotListed => {
                    RequestRefusal::not_listed(&one, rules.expired_request(&one.request))
                }
            };
            return Err(denied.into());
        }
        allowed.ok_or(Refusal::Revoked)
    }

    /// Why the host was unreachable: the reason that ended its connection here, or else the reader's.
    fn unreachable(&mut self, why: String) -> Refusal {
        let outside = self.outside.take();
        let ended = outside.and_then(|outside| outside.ended.take());
        ended.unwrap_or_else(|| Refusal::Unreachable(bounded(why)))
    }

    /// Why the wall ended a WebSocket, if it did: no answer can tell the client.
    fn websocket_ended_by(&mut self) -> Option<Refusal> {
        let outside = self.outside.take()?;
        let is_websocket = outside.under_way.borrow().method.is_websocket();
        outside.ended.take().filter(|_| is_websocket)
    }

    fn note(&self, port: u16, refusal: &Refusal) {
        let host = &self.arrival.host;
        refuse(self.wall, self.stream, self.via, host, port, refusal);
    }

    /// The answer for the client.
    fn refused(&self, refusal: &Refusal) -> RequestAnswer {
        let Arrival { host, port, .. } = &self.arrival;
        self.note(*port, refusal);
        let HttpAnswer {
            status,
            phrase,
            explanation,
        } = answer::words(self.wall, host, *port, refusal);
        RequestAnswer::Refused {
            status,
            phrase,
            explanation,
        }
    }
}
