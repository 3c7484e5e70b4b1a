//! PURE: whether a host may be reached. Rules, names, addresses and heads in, verdicts out.
//!
//! The sidecar uses it for every connection, the DNS stub for every name, and `agentbox policy check` for a user, so
//! that their answers cannot differ. Nothing in this module opens a socket.
//!
//! ```text
//! name or address, port --decide--> Decision          (by the rules)
//! upstream address ------address--> refused or dialled (by the addresses around the sandbox)
//! name <------------------names---> synthetic address  (the DNS stub's answer)
//! client's bytes ---http, tls, socks--> the same bytes and their host, or a refusal
//! ```

pub mod address;
mod ask;
mod budget;
mod decide;
pub mod dns;
pub mod forms;
mod honey;
pub mod http;
pub mod mcp;
pub mod names;
mod opened;
pub mod own;
pub mod phrase;
pub mod request;
pub mod socks;
pub mod spelling;
pub mod ssh;
mod status;
pub mod tls;
pub mod tried;
mod uses;

pub use address::{AddressRefusal, Surroundings};
pub use ask::{
    ApprovalTerm, AskQueue, AskRefusal, AskRules, MOST_WAITING, NameVerdict, NetworkVerdict,
    PendingConnection, is_within,
};
pub use budget::{Budget, Ledger, OverBudget};
pub use decide::{Decision, Denial, EgressRules, endpoint, proxy_port, rule_for};
pub use honey::{Honey, HoneyMatch, HoneySearch};
pub use opened::TlsHosts;
pub use status::{
    AskStatus, BudgetUse, InboundConnection, InboundStatus, InboundTotal, LiveConnection,
    NetworkStatus, WaitingConnection,
};
pub use uses::{CountedSecret, SecretUses, Uses};
