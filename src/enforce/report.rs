//! The report of a process that failed before it ran its program, for the verb that made it.
//!
//! It is sent through a pipe as JSON. Other text is taken as a failed step.

use serde::{Deserialize, Serialize};

use super::error::EnforceError;

/// The longest text, in bytes. Escaped it is at most six times as long, which fits the verbs' buffer.
const LONGEST: usize = 2560;

/// The kinds of failure that verbs distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// A startContainer hook: the container is deleted (runtime.md "Lifecycle", step 7).
    Hook,
    /// The program does not exist: a shell's status is 127.
    NoProgram,
    /// The program cannot be executed: a shell's status is 126.
    Program,
    /// Anything else.
    Step,
}

impl FailureKind {
    /// A shell's status for it.
    pub fn status(self) -> i32 {
        match self {
            Self::NoProgram => 127,
            Self::Program => 126,
            Self::Hook | Self::Step => 1,
        }
    }
}

/// Why a process did not execute its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct FailureReport {
    /// The kind of failure.
    pub failed: FailureKind,
    /// The text for people and engines.
    pub text: String,
}

impl FailureReport {
    /// A failed step, in words.
    pub fn step(text: impl Into<String>) -> Self {
        Self {
            failed: FailureKind::Step,
            text: text.into(),
        }
    }

    /// The bytes to send. This cannot fail: it is an object of two strings.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| self.text.clone().into_bytes())
    }

    /// Reads the bytes received.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes)
            .unwrap_or_else(|_| Self::step(String::from_utf8_lossy(bytes).into_owned()))
    }
}

impl From<&EnforceError> for FailureReport {
    fn from(error: &EnforceError) -> Self {
        let failed = match error {
            EnforceError::Hook(_) => FailureKind::Hook,
            EnforceError::Program { why, .. } if why.is_absence() => FailureKind::NoProgram,
            EnforceError::Program { .. } => FailureKind::Program,
            EnforceError::Step { .. }
            | EnforceError::MountPoint { .. }
            | EnforceError::MountPointInReadOnly { .. }
            | EnforceError::Link(_)
            | EnforceError::LinkOnTheWay(_)
            | EnforceError::Changed(_)
            | EnforceError::Network(_)
            | EnforceError::Sidecar(_)
            | EnforceError::Verify { .. }
            | EnforceError::Cwd { .. }
            | EnforceError::Incomplete(_)
            | EnforceError::Descriptor { .. } => FailureKind::Step,
        };
        let mut text = crate::log::chain(error);
        let cut = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(cut.unwrap_or(0));
        Self { failed, text }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::super::error::ExecveError;
    use super::*;

    #[test]
    fn a_report_arrives_as_it_was_sent_and_plain_text_is_a_step() {
        let sent = FailureReport {
            failed: FailureKind::Hook,
            text: "\"a\"\nb".to_owned(),
        };
        assert_eq!(FailureReport::from_bytes(&sent.to_bytes()), sent);
        let old = FailureReport::from_bytes(b"exec: \"x\": permission denied");
        assert_eq!(old, FailureReport::step("exec: \"x\": permission denied"));
        // The text decides nothing, whatever it says.
        let lies = FailureReport::step("error running startContainer hook #0: exit status 1");
        assert_eq!(
            FailureReport::from_bytes(lies.text.as_bytes()).failed,
            FailureKind::Step
        );
    }

    #[test]
    fn a_long_report_is_cut_and_stays_a_report() {
        let error = EnforceError::Step {
            step: "\u{1}é".repeat(LONGEST),
            source: std::io::Error::other("x"),
        };
        let report = FailureReport::from(&error);
        assert!(report.text.len() <= LONGEST && report.text.len() > LONGEST - 4);
        assert!(report.to_bytes().len() < 16384);
        assert_eq!(FailureReport::from_bytes(&report.to_bytes()), report);
    }

    #[test]
    fn a_missing_program_is_told_from_a_denied_one() {
        let failed = |why| {
            let name = "x".to_owned();
            FailureReport::from(&EnforceError::Program { name, why }).failed
        };
        assert_eq!(failed(ExecveError::NotOnPath), FailureKind::NoProgram);
        assert_eq!(
            failed(ExecveError::Execve(Errno::NOENT)),
            FailureKind::NoProgram
        );
        assert_eq!(failed(ExecveError::Denied), FailureKind::Program);
        assert_eq!(
            failed(ExecveError::Execve(Errno::NOEXEC)),
            FailureKind::Program
        );
        let name = || "x".to_owned();
        let there = |errno| ExecveError::Stat {
            name: name(),
            errno,
        };
        assert_eq!(failed(there(Errno::NOENT)), FailureKind::NoProgram);
        assert_eq!(failed(there(Errno::NOTDIR)), FailureKind::Program);
    }
}
