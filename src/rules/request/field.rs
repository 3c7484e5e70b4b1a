//! Names of header fields of a request, in lists.

use std::str::FromStr;

use crate::text::{ValueError, text_type};

/// The longest name.
const LONGEST: usize = 64;
/// The fewest letters before an asterisk: a shorter prefix could be any field's.
const FEWEST: usize = 2;
/// Fields that the reader writes itself or refuses. They frame a request or name its host, so no list may add them.
const FRAMING: [&str; 8] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

text_type! {
    /// The name of a header field, or a prefix of names: `x-acme-trace`, `x-acme-*`. Case is ignored.
    FieldPattern
}

impl FieldPattern {
    /// Whether it matches this name. An asterisk matches only letters, digits and hyphens. Some servers read other
    /// bytes as one of these, so only a complete name may have them.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        match self.0.strip_suffix('*') {
            None => self.0 == name,
            Some(begin) => name
                .strip_prefix(begin)
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_plain)),
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

impl FromStr for FieldPattern {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let low = text.to_ascii_lowercase();
        let name = match low.strip_suffix("-*") {
            Some(begin) if begin.len() >= FEWEST => begin,
            Some(_) => "",
            None => low.as_str(),
        };
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        let plain = name.bytes().all(|byte| is_plain(byte) || byte == b'_');
        if begins && plain && low.len() <= LONGEST && !FRAMING.contains(&low.as_str()) {
            Ok(Self(low))
        } else {
            Err(ValueError::grammar(
                text,
                "a field of a request's head that is not of its connection, such as x-acme-trace or x-acme-*",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_its_name_or_names_with_its_prefix() {
        let pattern = |text: &str| text.parse::<FieldPattern>().unwrap();
        assert!(pattern("X-Acme-Trace").matches("x-acme-trace"));
        assert!(pattern("session_id").matches("Session_ID"));
        assert!(pattern("x-acme-*").matches("X-Acme-A-1"));
        for name in ["x-acme-", "x-acme", "x-acme-a_b", "x-acme-a.b", "y-acme-a"] {
            assert!(!pattern("x-acme-*").matches(name), "{name}");
        }
        for text in [
            "",
            "*",
            "x-*",
            "x*",
            "x-a*b",
            "x-ac*",
            "Host",
            "a b",
            "x.y",
            "-x",
            "transfer-encoding",
        ] {
            assert!(text.parse::<FieldPattern>().is_err(), "{text}");
        }
    }
}
