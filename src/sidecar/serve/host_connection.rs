//! A connection to a host for requests: dialled, counted, logged and ended like every other connection.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::asks::reach_of;
use super::permission::CurrentRequest;
use super::refusal::Refusal;
use super::relay::relay;
use super::stream::ended;
use super::wall::Wall;
use super::watch::Watch;
use crate::rules::request::Request;
use crate::rules::{EgressRule, HostReach};
use crate::sys::socket;

/// A connection to a host, which carries requests one after the other.
pub(super) struct HostConnection {
    /// How far the rule of its first request lets the name lead.
    pub reach: HostReach,
    /// The current request: the rules may change meanwhile.
    pub under_way: CurrentRequest,
    /// Why the wall has ended it, if it did.
    pub ended: Rc<RefCell<Option<Refusal>>>,
    /// The connection ends when this is dropped.
    _held: oneshot::Sender<()>,
}

impl HostConnection {
    /// Dials, as this rule allows for this request. Also returns the reader's end. The connection ends with that end,
    /// with this value, or when the rules or the budget end it.
    pub async fn open(
        wall: &Rc<Wall>,
        rule: &EgressRule,
        request: &Request,
    ) -> Result<(Self, OwnedFd), Refusal> {
        let (held, dropped) = oneshot::channel();
        let outside = Self {
            reach: reach_of(rule),
            under_way: Rc::new(RefCell::new(request.clone())),
            ended: Rc::default(),
            _held: held,
        };
        let (ready, opened) = oneshot::channel();
        let under_way = Rc::clone(&outside.under_way);
        let (wall, rule, ended) = (Rc::clone(wall), rule.clone(), Rc::clone(&outside.ended));
        spawn_local(async move {
            tokio::select! {
                _ = dropped => {}
                carried = carry(&wall, &rule, under_way, ready) => {
                    *ended.borrow_mut() = carried.err();
                }
            }
        });
        let stream = opened.await.map_err(|_| Refusal::Revoked)??;
        Ok((outside, stream))
    }
}

/// The connection's own task, which holds its share of the budget.
async fn carry(
    wall: &Rc<Wall>,
    rule: &EgressRule,
    under_way: CurrentRequest,
    ready: oneshot::Sender<Result<OwnedFd, Refusal>>,
) -> Result<(), Refusal> {
    let to = {
        let request = under_way.borrow();
        (request.host.clone(), request.port)
    };
    let opening = async {
        let admitted = wall.admit_requests(to, rule, under_way)?;
        let server = {
            let dialling = std::pin::pin!(wall.dial(&admitted));
            admitted.share.while_allowed(dialling).await?
        };
        let (ours, theirs) = line_of_bytes().map_err(ended)?;
        Ok((admitted, server, ours, theirs))
    };
    match opening.await {
        Err(refusal) => {
            // A client that is gone has dropped the receiver.
            let _unheard = ready.send(Err(refusal));
            Ok(())
        }
        Ok((admitted, server, ours, theirs)) => {
            let _unheard = ready.send(Ok(theirs));
            let share = &admitted.share;
            let carrying = std::pin::pin!(relay(&ours, server, Watch::Nothing, share));
            share.while_allowed(carrying).await
        }
    }
}

/// A stream socket pair: our end, and the reader's. Ours has the type of a TCP stream, which the relay reads and
/// writes.
fn line_of_bytes() -> io::Result<(TcpStream, OwnedFd)> {
    let (ours, theirs) = socket::stream_pair()?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((TcpStream::from_std(ours.into())?, theirs))
}
