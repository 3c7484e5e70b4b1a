//! Keys of the user's SSH agent with which `wrap --ssh-agent` lets a workload sign.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64_NOPAD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::text::{ValueError, string_form};

/// The most keys of one run.
pub const MOST_SSH_KEYS: usize = 64;

/// The name of the hash, before a fingerprint.
const HASH: &str = "SHA256:";

/// The SHA-256 of a public key, in the spelling of `ssh-add -l`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SshFingerprint([u8; 32]);

impl SshFingerprint {
    /// Of a public key's encoding (RFC 4253, section 6.6).
    pub fn of(key: &[u8]) -> Self {
        let hash = digest(&SHA256, key);
        let mut own = [0; 32];
        own.iter_mut()
            .zip(hash.as_ref())
            .for_each(|(own, byte)| *own = *byte);
        Self(own)
    }
}

impl fmt::Display for SshFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HASH}{}", BASE64_NOPAD.encode(&self.0))
    }
}

impl FromStr for SshFingerprint {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let digits = text.strip_prefix(HASH);
        let bytes = digits.and_then(|digits| BASE64_NOPAD.decode(digits.as_bytes()).ok());
        let hash = bytes.and_then(|bytes| bytes.try_into().ok());
        hash.map(Self).ok_or_else(|| {
            ValueError::grammar(
                text,
                "an SSH key's fingerprint, such as `ssh-add -l` prints (SHA256:...)",
            )
        })
    }
}

string_form!(SshFingerprint);

/// An item of `network.ssh-keys`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SshKey {
    /// This key.
    Key(SshFingerprint),
    /// Signs nothing by itself. In a ceiling, it lets a policy name any key.
    Any,
}

impl SshKey {
    /// The key that signs.
    pub fn fingerprint(&self) -> Option<SshFingerprint> {
        match self {
            Self::Key(key) => Some(*key),
            Self::Any => None,
        }
    }
}

impl fmt::Display for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Any => f.write_str("*"),
        }
    }
}

impl FromStr for SshKey {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "*" => Ok(Self::Any),
            key => key.parse().map(Self::Key).map_err(|error| ValueError {
                allowed: format!("{}, or `*`", error.allowed),
                ..error
            }),
        }
    }
}

string_form!(SshKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_spelling() {
        let key = SshFingerprint::of(b"a key").to_string();
        assert_eq!(key.len(), HASH.len() + 43);
        for text in [key.as_str(), "*"] {
            let parsed: SshKey = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        let (cut, longer) = (&key[..key.len() - 1], format!("{key}="));
        let other_hash = key.replace(HASH, "MD5:");
        // The last digit of 43 has two bits that no byte takes.
        let odd = format!("{HASH}{}B", "A".repeat(42));
        for text in ["", "SHA256:", "me@home", cut, &longer, &other_hash, &odd] {
            assert!(text.parse::<SshKey>().is_err(), "{text}");
        }
    }
}
