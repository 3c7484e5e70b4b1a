//! PURE. Receipts: a signed statement about the walls of one run and its kept log.
//!
//! The statement is in-toto's (Statement v1), the envelope is DSSE 1.0, the signature is Ed25519 (RFC 8032). Any
//! verifier for these can check a receipt without this program.
//!
//! | file | what it does |
//! |---|---|
//! | [`statement`] | the content of a receipt |
//! | [`envelope`] | the signature and what it covers |
//! | [`key`] | the node's private and public key, as PEM |

pub mod envelope;
pub mod key;
pub mod statement;

pub use envelope::{Envelope, EnvelopeError};
pub use key::{KeyError, PublicKey, SigningKey};
pub use statement::{
    LogPart, RunReceipt, Statement, StatementError, Subject, Times, UNKNOWN, VerifyOutcome,
};
