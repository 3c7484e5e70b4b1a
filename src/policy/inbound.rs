//! Inbound ports of a container.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{ValueError, string_form};

/// The most ports that one container may name: the sidecar listens on each.
pub const MOST_INBOUND: usize = 64;

/// An item of `network.inbound`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum InboundPort {
    /// This port leads in.
    Port(NonZeroU16),
    /// Opens no port by itself. In a ceiling, it lets a policy name any port.
    Any,
}

impl InboundPort {
    /// The port, where it is one.
    pub fn port(self) -> Option<u16> {
        match self {
            Self::Port(port) => Some(port.get()),
            Self::Any => None,
        }
    }
}

impl fmt::Display for InboundPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => port.fmt(f),
            Self::Any => f.write_str("*"),
        }
    }
}

impl FromStr for InboundPort {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        match (text, text.parse()) {
            ("*", _) => Ok(Self::Any),
            (_, Ok(port)) if plain => Ok(Self::Port(port)),
            _ => Err(ValueError::grammar(
                text,
                "a TCP port from 1 to 65535, or `*`",
            )),
        }
    }
}

string_form!(InboundPort);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_spelling() {
        for text in ["1", "8080", "65535", "*"] {
            assert_eq!(text.parse::<InboundPort>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "0",
            "+1",
            "08080",
            "65536",
            "http",
            "80/udp",
            "8000-8010",
            "**",
        ] {
            assert!(text.parse::<InboundPort>().is_err(), "{text}");
        }
    }
}
