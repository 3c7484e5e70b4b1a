//! Names of system calls, as a policy spells them.
//!
//! This checks only the grammar; the caller of [`super::resolve`] has the table of names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::text::{ValueError, string_form};

/// The name of a system call: `[a-z0-9_]{1,40}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SyscallName(String);

impl SyscallName {
    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SyscallName {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        let fits = (1..=40).contains(&value.len())
            && value
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if fits {
            Ok(Self(value.to_owned()))
        } else {
            Err(ValueError::grammar(
                value,
                "a system call's name: 1 to 40 of a-z, 0-9 and _",
            ))
        }
    }
}

impl fmt::Display for SyscallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

string_form!(SyscallName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_names_and_nothing_else() {
        for good in ["read", "_llseek", "clone3", "rt_sigtimedwait_time64"] {
            assert_eq!(good.parse::<SyscallName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "Read",
            "read ",
            "*",
            "read,write",
            "a-b",
            &"a".repeat(41),
        ] {
            assert!(bad.parse::<SyscallName>().is_err(), "{bad}");
        }
    }
}
