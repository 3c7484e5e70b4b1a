//! PURE: what a network rule is, and whether it allows a connection or a request.
//!
//! ```text
//! text ----------------item--> EgressRule: host rule (connection), or request rule (request)
//! rule, ceiling -------limit--> within, or the part beyond
//! host, port ---------decide--> Decision         (no rule and on-unknown = "ask": ask)
//! request ----request/decide--> RequestDecision
//! address of a name --address--> dialled, or refused
//! ```
//!
//! The sidecar uses it for every connection and request, the DNS stub for every name, and `agentbox policy check` for a
//! user, so that their answers cannot differ. Nothing here reads what a client sends: that is `egress`.

pub mod address;
mod ask;
mod ask_refusal;
pub mod closed;
pub mod connection;
mod decide;
pub mod embedded;
mod ended;
mod expiry;
pub mod git;
mod host;
mod item;
mod limit;
mod near_miss;
mod opened;
mod prefix;
pub mod request;
#[cfg(test)]
pub mod samples;
pub mod spelling;
pub mod strangers;

pub use address::{AddressRefusal, Surroundings};
pub use ask::{
    ApprovalTerm, AskQueue, AskRules, ExpiredApproval, MOST_WAITING, NameVerdict, NetworkVerdict,
    PendingConnection, is_within,
};
pub use ask_refusal::{APPROVAL_EXPIRED, AskRefusal};
pub use connection::{HostReach, NetworkRule, RuleTarget};
pub use decide::{Decision, Denial, EgressRules, endpoint, proxy_port, rule_for};
pub use ended::ExpiredRule;
pub use expiry::{ClockReading, EndDate, Expiry, time_of_day};
pub use host::{Host, HostName};
pub use item::{EgressRule, PresetName, RuleItem};
pub use limit::NetworkLimit;
pub use opened::TlsHosts;
pub use prefix::NetworkPrefix;
pub use request::decide::RequestDecision;
