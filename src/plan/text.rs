//! PURE. Lossless paths as text: a name on the node may contain any byte, and a record is JSON.
//!
//! A byte that is not UTF-8 becomes `\xNN`, and a backslash is doubled.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path as text.
pub fn of(path: &Path) -> String {
    let mut out = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        out.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// The path of a text. A backslash that starts no escape stands for itself.
pub fn path(text: &str) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        };
        let (byte, used) = match tail {
            [b'\\', ..] if *first == b'\\' => (b'\\', 1),
            [b'x', a, b, ..] if *first == b'\\' => match hex(&[*a, *b]) {
                Some(byte) => (byte, 3),
                None => (*first, 0),
            },
            _ => (*first, 0),
        };
        out.push(byte);
        rest = &tail[used..];
    }
    PathBuf::from(OsString::from_vec(out))
}

/// For one path (`#[serde(with = "text::one")]`).
pub mod one {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&super::of(path))
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(super::path(&String::deserialize(from)?))
    }
}

/// For an optional path (`#[serde(with = "text::maybe")]`).
pub mod maybe {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, out: S) -> Result<S::Ok, S::Error> {
        match path {
            Some(path) => out.serialize_some(&super::of(path)),
            None => out.serialize_none(),
        }
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.as_deref().map(super::path))
    }
}

/// For several paths (`#[serde(with = "text::many")]`).
pub mod many {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes them.
    pub fn serialize<'a, S, C>(paths: &'a C, out: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        &'a C: IntoIterator<Item = &'a PathBuf>,
    {
        out.collect_seq(paths.into_iter().map(|path| super::of(path)))
    }

    /// Reads them.
    pub fn deserialize<'de, D, C>(from: D) -> Result<C, D::Error>
    where
        D: Deserializer<'de>,
        C: FromIterator<PathBuf>,
    {
        let texts = Vec::<String>::deserialize(from)?;
        Ok(texts.iter().map(|text| super::path(text)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn every_path_survives_as_text() {
        for (bytes, text) in [
            (&b"/srv/plain name"[..], "/srv/plain name"),
            ("/srv/ä".as_bytes(), "/srv/ä"),
            (b"/srv/\xff/.ssh", "/srv/\\xff/.ssh"),
            (b"/srv/\\xff", "/srv/\\\\xff"),
            (b"a\\\\\xc3", "a\\\\\\\\\\xc3"),
            (b"\n\x01", "\n\u{1}"),
        ] {
            let original = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(of(original), text);
            assert_eq!(path(text), original);
        }
        // Written by hand.
        for old in ["a\\b", "a\\", "\\x", "\\x1", "\\xzz/c"] {
            assert_eq!(path(old), Path::new(old));
        }
    }
}
