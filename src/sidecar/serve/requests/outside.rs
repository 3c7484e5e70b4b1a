//! The host's side: one connection, dialled as all others are, in which requests go one after the other.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hyper::Request as HttpRequest;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Response, body::Bytes};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::super::asks::{UnderWay, reach_of};
use super::super::refusal::Refusal;
use super::super::wall::Wall;
use super::stream::{Counted, Way};
use crate::egress::OverBudget;
use crate::policy::request::{Request, Scheme};
use crate::policy::{Host, Reach, Rule};

/// How long the host may take to shake hands.
const GREETING_WITHIN: Duration = Duration::from_secs(10);
/// The longest head of an answer, in bytes.
const LONGEST_ANSWER: usize = 64 << 10;

/// A connection to one host.
pub(super) struct Outside {
    /// Where it leads, and how it is spoken to.
    to: (Host, u16, Scheme),
    /// How far the rule of its first request let the name lead.
    reach: Reach,
    sender: SendRequest<Incoming>,
    /// The request that it carries now: the rules may change meanwhile.
    under_way: UnderWay,
    over: Rc<RefCell<Option<OverBudget>>>,
}

impl Outside {
    /// Dials, by the leave of this rule for this request. The connection ends with this value, or when the rules or the budget end it.
    pub async fn open(wall: &Rc<Wall>, rule: &Rule, request: &Request) -> Result<Self, Refusal> {
        let to = (request.host.clone(), request.port, request.scheme);
        let under_way: UnderWay = Rc::new(RefCell::new(request.clone()));
        let over = Rc::default();
        let (ready, opened) = oneshot::channel();
        spawn_local(carry(
            Rc::clone(wall),
            rule.clone(),
            (Rc::clone(&under_way), Rc::clone(&over)),
            ready,
        ));
        let sender = opened.await.map_err(|_| Refusal::Revoked)??;
        Ok(Self {
            to,
            reach: reach_of(rule),
            sender,
            under_way,
            over,
        })
    }

    /// Whether the next request may go by it too.
    pub async fn takes(&mut self, rule: &Rule, request: &Request) -> bool {
        let (host, port, scheme) = &self.to;
        (host, *port, *scheme) == (&request.host, request.port, request.scheme)
            // A rule for public addresses sends nothing to where one of `internal:` has led.
            && reach_of(rule).keeps(self.reach)
            && self.sender.ready().await.is_ok()
    }

    /// Sends a request that was decided about; its answer, once the head of that has come. An error brings the request back
    /// where the host has seen nothing of it.
    pub async fn send(
        &mut self,
        request: &Request,
        message: HttpRequest<Incoming>,
    ) -> Result<Response<Incoming>, (Refusal, Option<HttpRequest<Incoming>>)> {
        self.under_way.replace(request.clone());
        let sent = self.sender.try_send_request(message).await;
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            let refusal = match self.over.borrow_mut().take() {
                Some(over) => Refusal::Over(over),
                None => unreachable(
                    &self.to.0,
                    &format!(
                        "ended the connection before its answer: {}",
                        error.into_error()
                    ),
                ),
            };
            (refusal, unsent)
        })
    }
}

type Opened = Result<SendRequest<Incoming>, Refusal>;

/// The connection's own task, which holds its share of the budget.
async fn carry(
    wall: Rc<Wall>,
    rule: Rule,
    (under_way, over): (UnderWay, Rc<RefCell<Option<OverBudget>>>),
    ready: oneshot::Sender<Opened>,
) {
    let Request {
        host, port, scheme, ..
    } = under_way.borrow().clone();
    let admitted = match wall.admit_requests((host.clone(), port), &rule, under_way) {
        Ok(admitted) => admitted,
        Err(refusal) => return tell(ready, Err(refusal)),
    };
    let opening = async {
        let server = wall.dial(&admitted).await?;
        let way: Box<dyn Way> = match scheme {
            Scheme::Http => Box::new(server),
            Scheme::Https => {
                let greeting = wall.upstream.greet(&host, server);
                match tokio::time::timeout(GREETING_WITHIN, greeting).await {
                    Ok(greeted) => Box::new(greeted.map_err(Refusal::Unreachable)?),
                    Err(_) => return Err(unreachable(&host, "does not greet in time (TLS)")),
                }
            }
        };
        let counted = Counted::new(way, &admitted.share, over);
        let mut builder = http1::Builder::new();
        builder.max_header_size(LONGEST_ANSWER);
        let shaken = builder.handshake(counted).await;
        shaken.map_err(|error| unreachable(&host, &format!("is not spoken to: {error}")))
    };
    let opened = {
        let opening = std::pin::pin!(opening);
        admitted.share.while_allowed(opening).await
    };
    match opened {
        Err(refusal) => tell(ready, Err(refusal)),
        Ok((sender, connection)) => {
            tell(ready, Ok(sender));
            let carrying = std::pin::pin!(async {
                // Whoever waits for an answer hears of it; afterwards it concerns nobody.
                let _ended = connection.await;
                Ok(())
            });
            let _ended = admitted.share.while_allowed(carrying).await;
        }
    }
}

fn tell(ready: oneshot::Sender<Opened>, opened: Opened) {
    // A client that is gone has dropped the other end.
    let _unheard = ready.send(opened);
}

fn unreachable(host: &Host, why: &str) -> Refusal {
    Refusal::Unreachable(format!("{host} {why}"))
}

/// What stands for a body that there is none of.
pub(super) type Words = http_body_util::Full<Bytes>;
