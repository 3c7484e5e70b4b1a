//! The content of a receipt: an in-toto Statement v1, whose subjects are the kept files of the run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::audit::chain::hash;
use crate::audit::event::Context;
use crate::audit::life::LogHead;
use crate::audit::plain::PlainText;

/// `_type` of the statement.
const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// `predicateType`: the fields of [`RunReceipt`]. Only a name for the format; nothing is fetched from there.
pub const PREDICATE: &str = "https://agentbox.dev/receipt/v1";

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    /// The files and the image that the statement is about.
    pub subject: Vec<Subject>,
    predicate_type: String,
    /// The run.
    pub predicate: RunReceipt,
}

/// A file, or another object with a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The file's name in the directory of the run.
    pub name: String,
    /// Digests in hexadecimal digits, by algorithm.
    pub digest: BTreeMap<String, String>,
}

/// The statement about one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunReceipt {
    /// Version of agentbox.
    pub version: String,
    /// The commit that the runtime was built from. `unknown` for a build from a tarball, or outside of a release.
    #[serde(default = "unknown")]
    pub commit: String,
    /// The kernel's release, as in uname(2).
    pub kernel: String,
    /// The name of the run's directory: its start time and the container's id.
    pub run: String,
    /// The container and its policy, with the hash of the resolved policy.
    pub container: Context,
    /// SHA-256 of the plan's JSON in the record. `None` under `unconfined`: there were no walls.
    pub plan: Option<String>,
    /// The logs.
    pub log: Vec<LogPart>,
    /// Faults of the run's files when they were signed, as `agentbox audit` names them. Absent if there was none: the log
    /// was whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<PlainText>,
    /// The times of the run's steps.
    pub times: Times,
    /// Exit status of the init process as in a shell, if known.
    pub exit: Option<i32>,
    /// The last result of `agentbox verify` while the container ran; absent if it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<VerifyOutcome>,
}

/// For an unknown commit.
pub const UNKNOWN: &str = "unknown";

fn unknown() -> String {
    UNKNOWN.to_owned()
}

/// The result of `agentbox verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyOutcome {
    /// When (RFC 3339).
    pub time: String,
    /// `held`, `not-held`, `not-tried` or `not-promised`.
    pub result: PlainText,
    /// Attempts that a wall stopped.
    pub held: u64,
    /// Names of attempts that succeeded.
    pub not_held: Vec<PlainText>,
    /// Names of attempts that could not be made.
    pub not_tried: Vec<PlainText>,
    /// SHA-256 of the full report, `verify.json` of the run.
    pub report: PlainText,
}

/// One file of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogPart {
    /// Its last line. Its hash covers all lines before it.
    pub end: LogHead,
    /// Events by wall and verdict, such as `network denied`. Folded events count with their number; those of `verify`
    /// are separate, such as `verify: network denied`.
    pub counts: BTreeMap<String, u64>,
}

/// The run's times (RFC 3339), as far as the run has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Times {
    /// The end of `create`.
    pub created: Option<String>,
    /// `start`.
    pub started: Option<String>,
    /// The end of the init process.
    pub ended: Option<String>,
    /// When this receipt was signed.
    pub signed: String,
}

/// Why a payload is not a receipt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatementError {
    /// It is not JSON of this shape.
    #[error("it is not a receipt of a form that this version knows: {0}")]
    Shape(#[from] serde_json::Error),
    /// A statement about something else.
    #[error("it is a statement of another kind: {0:?}")]
    Kind(String),
}

impl Statement {
    /// The statement about a run, with these subjects.
    pub fn new(subject: Vec<Subject>, predicate: RunReceipt) -> Self {
        Self {
            kind: STATEMENT.to_owned(),
            subject,
            predicate_type: PREDICATE.to_owned(),
            predicate,
        }
    }

    /// Reads the payload of an envelope.
    pub fn parse(payload: &[u8]) -> Result<Self, StatementError> {
        // Check the kind first: another statement's predicate has other fields.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            #[serde(rename = "_type")]
            kind: String,
            predicate_type: String,
        }
        let Kind {
            kind,
            predicate_type,
        } = serde_json::from_slice(payload)?;
        for (found, known) in [(kind, STATEMENT), (predicate_type, PREDICATE)] {
            if found != known {
                return Err(StatementError::Kind(found.chars().take(100).collect()));
            }
        }
        Ok(serde_json::from_slice(payload)?)
    }
}

impl Subject {
    /// A file with this content.
    pub fn of(name: &str, content: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            digest: [("sha256".to_owned(), hash(content))].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> RunReceipt {
        RunReceipt {
            version: "0.1.0".to_owned(),
            commit: unknown(),
            kernel: "6.18".to_owned(),
            run: "20260102T030405.678Z-a".to_owned(),
            container: Context::default(),
            plan: None,
            log: Vec::new(),
            faults: Vec::new(),
            times: Times::default(),
            exit: Some(0),
            verified: None,
        }
    }

    #[test]
    fn a_statement_survives_the_trip() {
        let statement = Statement::new(vec![Subject::of("plan.json", b"{}")], receipt());
        let text = serde_json::to_vec(&statement).unwrap();
        assert_eq!(Statement::parse(&text).unwrap(), statement);
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["_type"], "https://in-toto.io/Statement/v1");
        assert_eq!(
            value["subject"][0]["digest"]["sha256"],
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    #[test]
    fn another_statement_is_no_receipt() {
        let other = br#"{"_type":"https://in-toto.io/Statement/v1","subject":[],"predicateType":"https://slsa.dev/provenance/v1","predicate":{}}"#;
        assert!(matches!(
            Statement::parse(other),
            Err(StatementError::Kind(_))
        ));
        let mut value = serde_json::to_value(Statement::new(Vec::new(), receipt())).unwrap();
        value["predicate"]["more"] = 1.into();
        let unknown = serde_json::to_vec(&value).unwrap();
        assert!(matches!(
            Statement::parse(&unknown),
            Err(StatementError::Shape(_))
        ));
    }
}
