//! Questions about signatures, from the relay to `wrap`, which has the terminal. The relay asks one at a time, and hands out
//! no signature without a yes to exactly this question.
//!
//! One line of JSON for each message. An answer names its question: one that comes late decides nothing.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::audit::{EventCause, KnownCause};
use crate::egress::ssh::agent::RequestedSignature;
use crate::sys::clocks;

/// A message of the relay's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum SignatureMessage {
    /// A request waits for the user.
    Ask(SignatureQuestion),
    /// It does not wait any more.
    Withdraw(u64),
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureQuestion {
    /// Its number.
    pub number: u64,
    /// The signature.
    pub signature: RequestedSignature,
    /// When it ends, by CLOCK_BOOTTIME in milliseconds.
    pub until_ms: u64,
}

/// The user's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureAnswer {
    /// The question's number.
    pub number: u64,
    /// Whether the key may sign.
    pub signs: bool,
}

/// Why a signature was not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfirmationFailure {
    /// The user said no.
    Refused,
    /// No answer came within these seconds.
    TimedOut(u32),
    /// There is no terminal to ask at, or the user wants no more questions.
    NotAsked,
}

impl ConfirmationFailure {
    /// The word for the log.
    pub fn cause(self) -> EventCause {
        match self {
            Self::Refused | Self::TimedOut(_) => "unconfirmed".into(),
            Self::NotAsked => KnownCause::NotAsked.into(),
        }
    }

    /// The reason for the log.
    pub fn reason(self) -> String {
        match self {
            Self::Refused => "the user did not confirm it at the terminal".to_owned(),
            Self::TimedOut(seconds) => {
                format!("the user did not answer at the terminal within {seconds} s")
            }
            Self::NotAsked => {
                "--ask asks the user before each signature, and there is no terminal, or too many questions were asked"
                    .to_owned()
            }
        }
    }
}

/// The line to `wrap`.
pub(super) struct Questions {
    stream: BufReader<UnixStream>,
    seconds: u32,
    number: u64,
}

impl Questions {
    pub fn new(stream: UnixStream, seconds: u32) -> Self {
        Self {
            stream: BufReader::new(stream),
            seconds,
            number: 0,
        }
    }

    /// Asks the user; the error is why there was no yes.
    pub async fn confirm(
        &mut self,
        signature: &RequestedSignature,
    ) -> Result<(), ConfirmationFailure> {
        self.number += 1;
        let limit = Duration::from_secs(self.seconds.into());
        let wait = u64::from(self.seconds) * 1000;
        let question = SignatureQuestion {
            number: self.number,
            signature: signature.clone(),
            until_ms: clocks::read().boot_ms.saturating_add(wait),
        };
        let asked = timeout(limit, async {
            self.send(&SignatureMessage::Ask(question)).await?;
            self.answer().await
        });
        match asked.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(ConfirmationFailure::Refused),
            Ok(Err(_)) => Err(ConfirmationFailure::NotAsked),
            Err(_) => {
                let withdrawn = SignatureMessage::Withdraw(self.number);
                // If `wrap` reads nothing, there is nobody to tell.
                let _unsent = timeout(limit, self.send(&withdrawn)).await;
                Err(ConfirmationFailure::TimedOut(self.seconds))
            }
        }
    }

    async fn send(&mut self, message: &SignatureMessage) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).await
    }

    /// The answer to the last question; an error if `wrap` has closed the line, or says something else.
    async fn answer(&mut self) -> io::Result<bool> {
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let answer: SignatureAnswer = serde_json::from_str(&line)?;
            if answer.number == self.number {
                return Ok(answer.signs);
            }
        }
    }
}
