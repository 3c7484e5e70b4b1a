//! What is still checked in a connection's bytes while they are relayed.

use std::rc::Rc;

use super::honey::Search;
use super::refusal::Refusal;
use super::sniff::{Answers, Greeter, SniffResult, SniffStep, UndecidedClient};
use crate::egress::http::RequestGuard;
use crate::egress::words::ContentRefusal;

/// What is still checked in the client's bytes.
#[derive(Debug)]
pub(super) enum Watch {
    /// Nothing more.
    Nothing,
    /// Every request.
    Http(Box<RequestGuard>),
    /// The first bytes, which may be TLS.
    First(Box<UndecidedClient>),
    /// Every greeting, until the server has answered.
    Tls(Box<Greeter>),
    /// The server's side of these two.
    Answers(Box<Answers>),
    /// Honey values in plain bytes, besides the rest.
    Searched(Box<(Watch, Search)>),
}

impl Watch {
    /// Also searches for honey values, if there are any.
    pub fn searched(self, search: Search) -> Self {
        match search.is_idle() {
            true => self,
            false => Self::Searched(Box::new((self, search))),
        }
    }

    /// The check of the server's bytes.
    pub fn other_side(&self) -> Self {
        let answered = match self {
            Self::First(first) => first.answered(),
            Self::Tls(greeter) => greeter.answered(),
            Self::Searched(both) => return both.0.other_side(),
            Self::Nothing | Self::Http(_) | Self::Answers(_) => return Self::Nothing,
        };
        Self::Answers(Box::new(Answers::new(Rc::clone(answered))))
    }
}

/// Checks these bytes, and returns those to send on; `None`: all of them, unchanged.
pub(super) fn pass(watch: &mut Watch, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    match watch {
        Watch::Nothing => Ok(None),
        Watch::Searched(both) => {
            let (inner, search) = &mut **both;
            search.look(bytes)?;
            let is_tls = matches!(inner, Watch::Tls(_));
            let passed = pass(inner, bytes)?;
            if let Watch::Tls(greeter) = inner {
                search.look_at(&greeter.take_greetings())?;
            }
            if is_tls && matches!(inner, Watch::Nothing) {
                // From here on the bytes are encrypted.
                *watch = Watch::Nothing;
            }
            Ok(passed)
        }
        Watch::Http(guard) => {
            let mut out = Vec::new();
            guard.feed(bytes, &mut out).map_err(ContentRefusal::Http)?;
            Ok(Some(out))
        }
        Watch::Tls(greeter) => match greeter.feed(bytes)? {
            SniffStep::Watched(out) => Ok(Some(out)),
            SniffStep::Free(out) => {
                *watch = Watch::Nothing;
                Ok(Some(out))
            }
        },
        Watch::Answers(answers) => {
            if answers.feed(bytes) {
                *watch = Watch::Nothing;
            }
            Ok(None)
        }
        Watch::First(_) => {
            let Watch::First(first) = std::mem::replace(watch, Watch::Nothing) else {
                return Ok(None);
            };
            match first.judge(bytes)? {
                SniffResult::Free => Ok(None),
                SniffResult::Open(first) => {
                    *watch = Watch::First(Box::new(first));
                    Ok(None)
                }
                SniffResult::Tls(greeter) => {
                    *watch = Watch::Tls(Box::new(greeter));
                    pass(watch, bytes)
                }
            }
        }
    }
}
