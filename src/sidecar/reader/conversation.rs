//! One connection of a client. Each request is read, put into canonical form, decided by the sidecar, and sent in that
//! form, over TLS if the rule says `https`.
//!
//! A host's answer passes unchanged, except for fields of the connection and redirects to the host's own `https://`.
//! These become the plain address that the client used.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::{Bytes, Incoming};
use hyper::header::UPGRADE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request as HttpRequest, Response, StatusCode};
use tokio::net::TcpStream;

use super::authority::Opener;
use super::held_body::{HoldError, Room};
use super::mcp::{self, FilteredBody};
use super::messages::{Arrival, ClientRoute, ConnectionChoice, MessageChannel};
use super::messages::{ReaderQuestion as Question, RequestAnswer};
use super::outside::{Greetings, HostClient, TextBody};
use super::refused::{RefusalFormat, in_mcp, words};
use super::rewrite::ExpectedAnswer;
use super::secrets::{Answers, Secrets};
use super::stream::{self, Client, ClientFault, ClientStream, Clock, Passage, ProtocolSwitch};
use super::websocket::{self, SwitchedConnection};
use super::{opened, rewrite};
use crate::egress::Honey;
use crate::egress::http::{KnownFields, LONGEST_HEAD};
use crate::egress::mcp::McpMessage;
use crate::rules::request::Scheme;
use crate::rules::request::calls::McpLists;
use crate::rules::request::decide::FullRequest;

/// The limit for a request's head, and for idle time between requests.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// A response from the reader.
pub(super) type ReaderResponse = Response<Either<TextBody, FilteredBody>>;

/// The state of a reader.
pub(super) struct ReaderState {
    pub greetings: Greetings,
    pub secrets: Secrets,
    /// Values that must not leave.
    pub honey: Rc<Honey>,
    /// The header fields that are sent on.
    pub fields: KnownFields,
    /// Opens TLS, if the policy does.
    pub opener: Option<Opener>,
    /// Room for MCP messages, and for answers with lists.
    pub rooms: (Room, Room),
}

struct Conversation<'a> {
    given: &'a ReaderState,
    /// To the sidecar.
    line: MessageChannel,
    arrival: Arrival,
    /// The scheme that the client speaks.
    spoken: Scheme,
    outside: RefCell<Option<HostClient>>,
    /// The host's side of a WebSocket, once the host has agreed.
    opaque: RefCell<Option<SwitchedConnection>>,
    /// Whether any request was read.
    began: Cell<bool>,
    /// The format of a refusal for this request's client.
    read_as: Cell<RefusalFormat>,
}

/// Whether to send a request, and over which connection.
enum SendDecision {
    /// Over this new connection, or else the kept one, with filters for the lists in the answer.
    Go(Option<OwnedFd>, Option<Box<McpLists>>),
    /// The body decides, so it is read first.
    Read,
    /// Not sent; the client receives this.
    Refused(Box<ReaderResponse>),
}

/// Serves a connection to a host with request rules, until it ends. The sidecar also holds it, and closes it.
pub(super) async fn serve(
    given: &ReaderState,
    stream: TcpStream,
    line: MessageChannel,
    arrival: Arrival,
) {
    let Ok(early) = line.hear_early(arrival.early).await else {
        return;
    };
    let mut client = ClientStream::new(stream, early);
    let opener = given.opener.as_ref().filter(|_| arrival.opens);
    let (client, spoken): (Box<dyn stream::ByteStream>, Scheme) = match opener {
        Some(opener) if speaks_tls(&mut client).await => {
            match opened::open(opener, &arrival.host, client).await {
                Ok(client) => (Box::new(client), Scheme::Https),
                Err(why) => return say_fault(&line, why, AnswerState::Cannot).await,
            }
        }
        _ => (Box::new(client), Scheme::Http),
    };
    let conversation = Conversation {
        given,
        line,
        arrival,
        spoken,
        outside: RefCell::new(None),
        opaque: RefCell::new(None),
        began: Cell::new(false),
        read_as: Cell::default(),
    };
    conversation.hold(client).await;
}

/// Whether a client begins with a TLS handshake.
async fn speaks_tls(client: &mut ClientStream) -> bool {
    let first = tokio::time::timeout(HEAD_WITHIN, client.first()).await;
    first.is_ok_and(|first| first == Some(stream::TLS_HANDSHAKE))
}

/// Tells the sidecar why a client is not read further. If it cannot hear that, it ends the connection anyway.
async fn say_fault(line: &MessageChannel, why: String, answered: AnswerState) {
    let began = answered == AnswerState::Cannot;
    let _said = line.say(&Question::Fault { why, began }, &[]).await;
}

/// Whether the client can still receive an unencrypted answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerState {
    Can,
    /// An answer may have started, or the client speaks TLS.
    Cannot,
}

/// Whether the kept connection can carry a request, or a new one is needed.
async fn choice(kept: &mut Option<HostClient>) -> ConnectionChoice {
    let is_ready = match kept {
        Some(outside) => outside.is_ready().await,
        None => false,
    };
    match is_ready {
        true => ConnectionChoice::Either,
        false => ConnectionChoice::New,
    }
}

impl Conversation<'_> {
    /// Reads and answers requests until the client sends no more.
    async fn hold(&self, client: Box<dyn stream::ByteStream>) {
        let passage = Passage::default();
        let client = Client::new(client, &self.given.honey, &passage);
        let service = service_fn(|message| Box::pin(self.answer_in_turn(message, &passage.turn)));
        let mut builder = http1::Builder::new();
        builder
            .timer(Clock)
            .header_read_timeout(HEAD_WITHIN)
            .keep_alive(self.arrival.way == ClientRoute::Direct)
            .max_buf_size(2 * LONGEST_HEAD);
        let mut connection = builder.serve_connection(client, service);
        // Ended by the client, or by a fault that the sidecar answers.
        let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
        let http1::Parts { io, read_buf, .. } = connection.into_parts();
        if ended.is_ok() {
            self.part(io, read_buf).await;
        }
        let is_tls = self.spoken == Scheme::Https;
        match passage.fault.take() {
            Some(ClientFault::Tls(_)) if !is_tls => {
                let _said = self.line.say(&Question::Tls, &[]).await;
            }
            Some(ClientFault::Honey(name)) => {
                let _said = self.line.say(&Question::Honey(name), &[]).await;
            }
            Some(ClientFault::Tls(why) | ClientFault::Unread(why)) => {
                let answered = match self.began.get() || is_tls {
                    true => AnswerState::Cannot,
                    false => AnswerState::Can,
                };
                say_fault(&self.line, why, answered).await;
            }
            None => {
                let Err(error) = ended else { return };
                if let Some(why) = opened::of_end(&error) {
                    say_fault(&self.line, why, AnswerState::Cannot).await;
                } else if error.is_parse() {
                    // hyper has answered it already (400, or 431).
                    let why = format!("the request's head is unreadable: {error}");
                    let _said = self.line.say(&Question::Malformed(why), &[]).await;
                }
            }
        }
    }

    /// After the last request: becomes a WebSocket, if the host has agreed to one.
    async fn part(&self, mut client: Client<'_>, read: Bytes) {
        match self.opaque.take() {
            None => client.end().await,
            Some(host) => {
                let (way, rest) = client.into_rest();
                let early = Bytes::from([&read[..], &rest].concat());
                websocket::carry(SwitchedConnection { way, early }, host).await;
            }
        }
    }

    /// Also tells the client stream how to read the bytes after the request.
    async fn answer_in_turn(
        &self,
        message: HttpRequest<Incoming>,
        turn: &Cell<ProtocolSwitch>,
    ) -> io::Result<ReaderResponse> {
        let asks = message.headers().contains_key(UPGRADE);
        let told = self.answer(message).await?;
        match told.status() {
            StatusCode::SWITCHING_PROTOCOLS => turn.set(ProtocolSwitch::Switched),
            _ if asks => turn.set(ProtocolSwitch::Stays),
            _ => {}
        }
        Ok(told)
    }

    async fn answer(&self, message: HttpRequest<Incoming>) -> io::Result<ReaderResponse> {
        self.began.set(true);
        self.read_as.set(RefusalFormat::of(message.headers()));
        let Arrival {
            host, port, scheme, ..
        } = &self.arrival;
        let inside = self.spoken;
        match rewrite::read(&message, inside, *scheme, (host.clone(), *port)) {
            Ok(asked) => self.forward(asked, message).await,
            Err(why) => self.refused(&Question::Unclear(why.to_string())).await,
        }
    }

    /// Sends a request over the kept connection, or over a new one if the host closed that one before it received
    /// anything.
    async fn forward(
        &self,
        asked: FullRequest,
        message: HttpRequest<Incoming>,
    ) -> io::Result<ReaderResponse> {
        let rules = (&self.given.secrets, &self.given.fields);
        let message = message.map(Either::Left);
        let (unfit, mut message) = match rewrite::request(&asked, message, rules) {
            Ok(message) => (None, Some(message)),
            Err(why) => (Some(why), None),
        };
        let address = asked.to_string();
        let mut kept = self.outside.take();
        if asked.request.method.is_websocket() {
            // A WebSocket gets its own connection.
            kept = None;
            self.read_as.set(RefusalFormat::WebSocket);
        }
        let mut read: Option<McpMessage> = None;
        loop {
            let by = choice(&mut kept).await;
            let may = Question::Request {
                address: address.clone(),
                unfit: unfit.clone(),
                calls: read.as_ref().map(|message| message.calls.clone()),
                by,
            };
            let (stream, lists) = match self.leave(&may).await? {
                SendDecision::Refused(told) => {
                    self.outside.replace(kept);
                    return Ok(in_mcp(*told, read.as_ref()));
                }
                SendDecision::Read => match (message.take(), &read) {
                    (Some((whole, expected)), None) => {
                        match mcp::take(whole, &self.given.rooms.0).await {
                            Ok((whole, taken)) => {
                                read = Some(taken);
                                message = Some((whole, expected));
                                continue;
                            }
                            Err(HoldError::Unfit(why)) => {
                                return self.refused(&Question::Unclear(why)).await;
                            }
                            Err(HoldError::Busy) => return self.refused(&Question::Busy).await,
                        }
                    }
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                },
                SendDecision::Go(stream, lists) => (stream, lists),
            };
            let (mut outside, is_new) = match (stream, kept.take()) {
                (Some(stream), _) => match self.open(stream).await {
                    Ok(outside) => (outside, true),
                    Err(why) => {
                        return self.refused(&Question::Unreachable(why)).await;
                    }
                },
                (None, Some(outside)) => (outside, false),
                (None, None) => return Err(io::ErrorKind::InvalidData.into()),
            };
            let Some((mut sent, expected)) = message.take() else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let has_lists = read.as_ref().is_some_and(McpMessage::lists);
            let lists = lists.filter(|_| has_lists);
            if lists.is_some() {
                mcp::ask_plain(sent.headers_mut());
            }
            match outside.send(sent).await {
                Ok(answer) => {
                    return self.reply(&asked, answer, outside, expected, lists).await;
                }
                Err((_, Some(unsent))) if !is_new => message = Some((unsent, expected)),
                Err((why, _)) => {
                    return self.refused(&Question::Unreachable(why)).await;
                }
            }
        }
    }

    async fn open(&self, stream: OwnedFd) -> Result<HostClient, String> {
        let to = (&self.arrival.host, self.arrival.scheme);
        HostClient::open(&self.given.greetings, to, stream).await
    }

    /// Turns the host's answer into the client's.
    async fn reply(
        &self,
        asked: &FullRequest,
        answer: Response<Incoming>,
        outside: HostClient,
        expected: ExpectedAnswer,
        lists: Option<Box<McpLists>>,
    ) -> io::Result<ReaderResponse> {
        let secrets = &self.given.secrets;
        let why = match rewrite::answer((asked, self.spoken), answer, (secrets, &expected)) {
            Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                match outside.switched().await {
                    Some(host) => {
                        self.opaque.replace(Some(host));
                        return Ok(answer.map(|_| Either::Left(TextBody::default())));
                    }
                    None => "it ended the connection behind its answer".to_owned(),
                }
            }
            Ok(answer) => {
                let answer = answer.map(|body| match expected.answers {
                    Answers::AsTheyCome => Either::Left(body),
                    Answers::Cleaned => Either::Right(secrets.cleaned(body)),
                });
                let heard = match lists {
                    Some(lists) => mcp::shown(answer, *lists, &self.given.rooms.1).await,
                    None => Ok(answer.map(Either::Left)),
                };
                match heard {
                    Ok(answer) => {
                        self.outside.replace(Some(outside));
                        return Ok(answer.map(Either::Right));
                    }
                    Err(why) => why,
                }
            }
            Err(why) => why.to_owned(),
        };
        let why = format!("{}: {why}", self.arrival.host);
        self.refused(&Question::Unreachable(why)).await
    }

    /// Asks the sidecar for a decision.
    async fn leave(&self, question: &Question) -> io::Result<SendDecision> {
        self.line.say(question, &[]).await?;
        let Some((answer, fds)) = self.line.hear().await? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        Ok(match answer {
            RequestAnswer::Go { lists } => SendDecision::Go(fds.into_iter().next(), lists),
            RequestAnswer::Read => SendDecision::Read,
            RequestAnswer::Refused {
                status,
                phrase,
                explanation,
            } => {
                let told = words(status, phrase, explanation, self.read_as.get());
                SendDecision::Refused(Box::new(told))
            }
        })
    }

    /// Reports to the sidecar what can only be refused.
    async fn refused(&self, why: &Question) -> io::Result<ReaderResponse> {
        match self.leave(why).await? {
            SendDecision::Refused(told) => Ok(*told),
            SendDecision::Go(..) | SendDecision::Read => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
