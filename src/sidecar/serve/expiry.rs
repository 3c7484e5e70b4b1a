//! Rules, approvals and secrets that end.
//!
//! Each decision looks at the clock. Here their ends are logged, and the open connections that they allowed are closed. A
//! look each second finds a suspension of the machine and a clock that was set: tokio's timers know neither.

use std::rc::Rc;
use std::time::Duration;

use super::live::AllowedConnection;
use super::refusal::{AllowanceEnd, Refusal};
use super::wall::Wall;
use crate::audit::{Event, EventDetail, ExpiredItem, Verdict, WallName};
use crate::egress::WithheldSecret;
use crate::rules::request::Request;
use crate::rules::{Decision, Denial, Expiry, Host, endpoint};
use crate::sys::clocks;

/// The longest time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Ends what is over, until the sidecar ends. Without an end it sleeps.
pub(super) fn serve(wall: &Rc<Wall>) {
    let wall = Rc::clone(wall);
    tokio::task::spawn_local(async move {
        loop {
            wall.expire();
            let changed = wall.ends.notified();
            match wall.next_end() {
                Some(left) => {
                    let _earlier = tokio::time::timeout(left.min(LOOK), changed).await;
                }
                None => changed.await,
            }
        }
    });
}

impl Wall {
    /// Ends what is over: logs it, and closes the connections that it allowed.
    pub fn expire(&self) {
        let now = clocks::read();
        let rules = self.newly_expired(now).into_iter();
        let rules = rules.map(|one| (ExpiredItem::Rule, one.rule.to_string(), one.end));
        let approvals = self.approvals.asks.borrow_mut().expire(now).into_iter();
        let approvals = approvals.map(|one| {
            let to = endpoint(&Host::Name(one.host), one.port);
            (ExpiredItem::Approval, to, one.end)
        });
        let secrets = self.uses.expire(now).into_iter();
        let secrets = secrets.map(|(name, end)| (ExpiredItem::Secret, name, end));
        let all: Vec<_> = rules.chain(approvals).chain(secrets).collect();
        if all.is_empty() {
            return;
        }
        for (of, item, end) in all {
            self.log(ended(of, item, end));
        }
        self.review();
    }

    /// The time until the next end.
    fn next_end(&self) -> Option<Duration> {
        let now = clocks::read();
        let rules = self.rules();
        let rules = rules.temporary().map(|(_, end)| end);
        let asks = self.approvals.asks.borrow();
        let all = rules.chain(asks.ends()).chain(self.uses.ends());
        all.map(|end| Duration::from_millis(end.left_ms(now))).min()
    }

    /// The secret of this request that has ended by now.
    pub fn ended_secret(&self, request: &Request) -> Option<WithheldSecret> {
        self.uses.expired_for(request, clocks::read())
    }

    /// Why a connection that was allowed is no longer.
    pub fn revoked(&self, live: &AllowedConnection) -> Refusal {
        let rules = self.rules();
        let expired = match &live.request {
            Some(request) => {
                let request = request.borrow();
                let rule = rules.expired_request(&request).map(AllowanceEnd::Rule);
                rule.or_else(|| self.ended_secret(&request).map(AllowanceEnd::Secret))
            }
            None => match (rules.decide(&live.host, live.port), &live.host) {
                (Decision::Deny(Denial::Expired(rule)), _) => Some(AllowanceEnd::Rule(*rule)),
                (_, Host::Name(name)) => {
                    let asks = self.approvals.asks.borrow();
                    let end = asks.expired_at(name, live.port);
                    end.map(AllowanceEnd::Approval)
                }
                (_, Host::Address(_)) => None,
            },
        };
        expired.map_or(Refusal::Revoked, |end| Refusal::Expired(Box::new(end)))
    }
}

fn ended(of: ExpiredItem, item: String, end: Expiry) -> Event {
    let until = end.date().to_string();
    let what = EventDetail::Expired {
        of,
        item: item.into(),
        until: until.into(),
    };
    Event::new(WallName::Rules, Verdict::Ended, what)
}
