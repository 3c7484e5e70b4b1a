//! The methods of requests, and those of a rule.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::{McpWords, Request};
use crate::policy::text::{ValueError, text_type};

/// The most methods that a rule names, and the longest of them.
const MOST_METHODS: usize = 16;
const LONGEST_METHOD: usize = 24;

text_type! {
    /// The method of a request: capitals and hyphens, as all registered ones are; another spelling is another method to some servers.
    Method,
    "a method of HTTP: A-Z and '-', and not CONNECT",
    |text| {
        let plain = text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        let starts = text.starts_with(|c: char| c.is_ascii_uppercase());
        // A tunnel is no request for a path.
        plain && starts && text.len() <= LONGEST_METHOD && text != "CONNECT"
    }
}

impl Method {
    /// Not a method of HTTP: the handshake of a WebSocket, by which a connection is no longer one of requests.
    pub const WEBSOCKET: &str = "WEBSOCKET";

    /// Whether it is that handshake.
    pub fn is_websocket(&self) -> bool {
        self.0 == Self::WEBSOCKET
    }

    /// Whether it brings a message of MCP.
    pub fn is_post(&self) -> bool {
        self.0 == "POST"
    }
}

/// Which methods a rule names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Methods {
    /// Every one; to allow, all but the handshake of a WebSocket.
    Any,
    /// These.
    These(BTreeSet<Method>),
    /// Those of an endpoint of MCP, with these calls in what is posted.
    Mcp(McpWords),
}

impl Methods {
    /// Whether a rule with them allows this one. What follows a WebSocket's handshake nobody reads: it is allowed by its own name.
    pub fn allow(&self, method: &Method) -> bool {
        match self {
            Self::Any => !method.is_websocket(),
            Self::These(methods) => methods.contains(method),
            Self::Mcp(_) => ["GET", "DELETE"].contains(&method.0.as_str()),
        }
    }

    /// Whether a rule with them denies this one.
    pub fn deny(&self, method: &Method) -> bool {
        match self {
            Self::Any => true,
            Self::These(methods) => methods.contains(method),
            // It denies calls.
            Self::Mcp(_) => false,
        }
    }

    pub(super) fn allow_request(&self, request: &Request) -> bool {
        match (self, &request.calls) {
            (Self::Mcp(words), Some(calls)) if request.method.is_post() => {
                calls.iter().all(|call| words.allow(call))
            }
            _ => self.allow(&request.method),
        }
    }

    pub(super) fn deny_request(&self, request: &Request) -> bool {
        match (self, &request.calls) {
            (Self::Mcp(words), Some(calls)) => calls.iter().any(|call| words.deny(call)),
            _ => self.deny(&request.method),
        }
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::These(methods) => {
                let methods: Vec<&str> = methods.iter().map(|method| method.0.as_str()).collect();
                f.write_str(&methods.join(","))
            }
            Self::Mcp(words) => words.fmt(f),
        }
    }
}

/// Those of HTTP: the calls of MCP stand elsewhere in a rule.
impl FromStr for Methods {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let methods: BTreeSet<Method> =
            text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        match methods.len() <= MOST_METHODS {
            true => Ok(Self::These(methods)),
            false => Err(ValueError::grammar(text, "a list of at most 16 methods")),
        }
    }
}
