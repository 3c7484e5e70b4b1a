//! PURE. Receipts: a signed statement of which walls stood around one run, and of the log that was kept of it.
//!
//! The statement is in-toto's (Statement v1), the envelope is DSSE 1.0, the signature Ed25519 (RFC 8032): any verifier of
//! those reads a receipt, without this program.
//!
//! | file | what it does |
//! |---|---|
//! | [`statement`] | what is said of a run |
//! | [`envelope`] | what is signed of it, and how |
//! | [`key`] | the node's key, and the public one, as PEM |

pub mod envelope;
pub mod key;
pub mod statement;

pub use envelope::{Envelope, EnvelopeError};
pub use key::{KeyError, PublicKey, SigningKey};
pub use statement::{
    LogPart, RunReceipt, Statement, StatementError, Subject, Times, UNKNOWN, VerifyOutcome,
};
