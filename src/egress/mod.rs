//! PURE: what clients send, and what they are answered. Their bytes in; hosts, requests and refusals out.
//!
//! Whether `rules` allow it is decided there. Nothing in this module opens a socket.
//!
//! ```text
//! client's bytes ---http, tls, socks--> the same bytes and their host, or a refusal
//! head, or typed text -----request--> a request in canonical form
//! name <---------------------names--> synthetic address  (the DNS stub's answer)
//! ```

mod budget;
pub mod dns;
pub mod forms;
mod honey;
pub mod http;
pub mod mcp;
pub mod names;
pub mod own;
pub mod phrase;
pub mod request;
pub mod socks;
pub mod ssh;
mod status;
pub mod tls;
pub mod tried;
mod uses;
pub mod words;

pub use budget::{Budget, Ledger, OverBudget};
pub use honey::{Honey, HoneyMatch, HoneySearch};
pub use status::{
    AskStatus, BudgetUse, InboundConnection, InboundStatus, InboundTotal, LiveConnection,
    NetworkStatus, WaitingConnection,
};
pub use uses::{CountedSecret, SecretUses, Uses, WithheldSecret, WithholdReason};
