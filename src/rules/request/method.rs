//! Methods of requests, and those of a rule.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::Request;
use super::mcp::McpWords;
use crate::text::{ValueError, text_type};

/// The most methods of a rule, and the length of the longest.
const MOST_METHODS: usize = 16;
const LONGEST_METHOD: usize = 24;

text_type! {
    /// A request's method: capitals and hyphens, like all registered ones. Some servers distinguish other spellings.
    Method,
    "a method of HTTP: A-Z and '-', and not CONNECT",
    |text| {
        let plain = text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        let starts = text.starts_with(|c: char| c.is_ascii_uppercase());
        // CONNECT opens a tunnel; it requests no path.
        plain && starts && text.len() <= LONGEST_METHOD && text != "CONNECT"
    }
}

impl Method {
    /// Not an HTTP method: a WebSocket's handshake, after which a connection carries no more requests.
    pub const WEBSOCKET: &str = "WEBSOCKET";

    /// Whether it is a WebSocket's handshake.
    pub fn is_websocket(&self) -> bool {
        self.0 == Self::WEBSOCKET
    }

    /// Whether it carries an MCP message.
    pub fn is_post(&self) -> bool {
        self.0 == "POST"
    }
}

/// The methods that a rule names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Methods {
    /// All methods. To allow, all but a WebSocket's handshake.
    Any,
    /// These.
    These(BTreeSet<Method>),
    /// Those of an MCP endpoint, with these calls in posted messages.
    Mcp(McpWords),
}

impl Methods {
    /// Whether a rule with them allows this method. A WebSocket must be named: what follows it is not read.
    pub fn allow(&self, method: &Method) -> bool {
        match self {
            Self::Any => !method.is_websocket(),
            Self::These(methods) => methods.contains(method),
            Self::Mcp(_) => ["GET", "DELETE"].contains(&method.0.as_str()),
        }
    }

    /// Whether a rule with them denies this method.
    pub fn deny(&self, method: &Method) -> bool {
        match self {
            Self::Any => true,
            Self::These(methods) => methods.contains(method),
            // It denies only calls.
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

/// HTTP methods only: the calls of MCP have another place in a rule.
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
