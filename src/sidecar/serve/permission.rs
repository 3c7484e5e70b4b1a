//! What permits a connection: a rule, an approval, or learn mode; and the state of approvals.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::Notify;

use crate::rules::request::Request;
use crate::rules::{AskQueue, Denial, HostReach};

/// What permits a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Permission {
    /// How far the rule lets the name lead.
    pub reach: HostReach,
    /// Whether it is an approval for one connection, now used up.
    pub once: bool,
    /// The rule, or the approval, in words.
    pub rule: String,
    /// Learn mode permits it, in place of this denial.
    pub learnt: Option<Denial>,
    /// The current request, if requests are decided and not the connection.
    pub request: Option<CurrentRequest>,
    /// Whether `network.connect` permits it, and no rule.
    pub is_service: bool,
}

/// The request that a connection carries now.
pub(super) type CurrentRequest = Rc<RefCell<Request>>;

/// The state of approvals in one sidecar.
#[derive(Default)]
pub(super) struct Approvals {
    pub asks: RefCell<AskQueue>,
    /// Signals a decision: all waiting connections look again.
    pub changed: Notify,
    /// Names without a rule that the DNS stub has answered.
    pub unlisted_names: Cell<u32>,
}

impl Approvals {
    /// With numbers that are short enough to type, from one of ten thousand starts.
    pub fn new() -> Self {
        let mut bytes = [0; 2];
        // The source of randomness is opened at the start. If it fails, they begin at 0.
        let _unknown = getrandom::fill(&mut bytes);
        let place = u64::from(u16::from_ne_bytes(bytes)) % 10_000;
        Self {
            asks: RefCell::new(AskQueue::numbered_from(place * 1000)),
            ..Self::default()
        }
    }
}
