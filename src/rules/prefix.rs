//! Networks by their first bits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::connection::RuleTarget;
use crate::text::{ValueError, string_form};

/// A network, or one address: `10.96.0.0/12`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkPrefix(IpAddr, u8);

impl NetworkPrefix {
    /// The first address, and the number of bits that all addresses share.
    pub fn parts(self) -> (IpAddr, u8) {
        (self.0, self.1)
    }
}

impl fmt::Display for NetworkPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

impl FromStr for NetworkPrefix {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match RuleTarget::parse(text) {
            Some(RuleTarget::Addresses(net, bits)) => Ok(Self(net, bits)),
            Some(RuleTarget::Name(_) | RuleTarget::Below(_) | RuleTarget::Any) | None => {
                Err(ValueError::grammar(
                    text,
                    "a network: ADDRESS/BITS whose other bits are 0, or an address",
                ))
            }
        }
    }
}

string_form!(NetworkPrefix);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_prefixes_are_networks() {
        for (text, shown) in [
            ("10.96.0.0/12", "10.96.0.0/12"),
            ("fd00::/8", "fd00::/8"),
            ("192.0.2.7", "192.0.2.7/32"),
        ] {
            assert_eq!(text.parse::<NetworkPrefix>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "*",
            "db",
            "*.a.test",
            "10.96.0.1/12",
            "10.0.0.0/8:443",
            "internal:db",
        ] {
            assert!(text.parse::<NetworkPrefix>().is_err(), "{text:?}");
        }
    }
}
