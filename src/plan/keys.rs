//! PURE. Private keys: files with a key's name and a private key as content.

use std::path::Path;

use serde::Deserialize;

use super::never::VisibleCredentials;

/// How many bytes of a file to read: a key may follow a certificate.
pub const LOOKED_AT: usize = 16 << 10;

/// Which file names, and why: `[keys]` of `policies/never.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// The reason, as a clause.
    pub why: String,
    names: Vec<String>,
    private: Vec<String>,
}

/// A name that a private key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyName<'a> {
    /// As in the list; `*` stands for the rest.
    pub name: &'a str,
    /// Hidden only if its mode keeps other users out: test keys have such names too, and are readable for everybody.
    pub by_mode: bool,
}

impl Keys {
    /// The list entry that makes a file a possible private key.
    pub fn named(&self, name: &[u8]) -> Option<KeyName<'_>> {
        let of = |list: &'_ [String]| list.iter().position(|own| matches(own, name));
        let (list, by_mode, index) = match of(&self.names) {
            Some(index) => (&self.names, false, index),
            None => (&self.private, true, of(&self.private)?),
        };
        let name = list.get(index)?;
        Some(KeyName { name, by_mode })
    }

    /// Whether a regular file may be a key to hide. The caller must still check its content.
    pub fn may_be(&self, path: &Path, mode: u32, meant: &VisibleCredentials) -> bool {
        let name = path.file_name().map_or(&[][..], |n| n.as_encoded_bytes());
        let found = self.named(name);
        found.is_some_and(|found| {
            let kept = mode & 0o077 == 0;
            (kept || !found.by_mode) && !meant.contains(Path::new(found.name))
        })
    }
}

/// Whether the first bytes of a file contain a private key: the first line of one in PEM (RFC 7468), of OpenSSH's or
/// OpenPGP's, or PuTTY's own form.
pub fn is_private(content: &[u8]) -> bool {
    let mut lines = content.split(|byte| *byte == b'\n');
    lines.any(|line| {
        let line = line.trim_ascii();
        let pem = line.strip_prefix(b"-----BEGIN ");
        line.starts_with(b"PuTTY-User-Key-File-")
            || pem.is_some_and(|kind| {
                kind.ends_with(b"PRIVATE KEY-----") || kind == b"PGP PRIVATE KEY BLOCK-----"
            })
    })
}

fn matches(pattern: &str, name: &[u8]) -> bool {
    let is = |have: Option<&[u8]>, want: &str| {
        have.is_some_and(|have| have.eq_ignore_ascii_case(want.as_bytes()))
    };
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => {
            let at = name.len().checked_sub(end.len());
            is(at.and_then(|at| name.get(at..)), end)
        }
        (None, Some(start)) => is(name.get(..start.len()), start),
        (None, None) => is(Some(name), pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::never::NeverList;

    /// L6: a key outside `.ssh`.
    #[test]
    fn a_private_key_is_known_by_its_name_and_its_lines() {
        let keys = &NeverList::builtin().keys;
        let none = VisibleCredentials::new();
        for (name, mode, may_be) in [
            ("id_rsa", 0o644, true),
            ("a/id_ed25519_work", 0o644, true),
            ("a/ID_RSA.bak", 0o644, true),
            ("deploy.pem", 0o600, true),
            ("deploy.PEM", 0o400, true),
            ("deploy.pem", 0o644, false),
            ("tls.key", 0o640, false),
            ("key", 0o600, false),
            ("notes.txt", 0o600, false),
        ] {
            assert_eq!(keys.may_be(Path::new(name), mode, &none), may_be, "{name}");
        }
        let meant = VisibleCredentials::from(["*.pem".into()]);
        assert!(!keys.may_be(Path::new("x.pem"), 0o600, &meant));
        for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
            let text = format!("-----BEGIN {kind}PRIVATE KEY-----\r\nMII");
            assert!(is_private(text.as_bytes()), "{kind}");
            let bundle = format!("-----BEGIN CERTIFICATE-----\nMII\n{text}");
            assert!(is_private(bundle.as_bytes()), "{kind}");
        }
        assert!(is_private(b"PuTTY-User-Key-File-3: ssh-ed25519\n"));
        assert!(is_private(b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n"));
        for text in [
            "",
            "-----BEGIN CERTIFICATE-----\n",
            "-----BEGIN PUBLIC KEY-----\n",
            "ssh-ed25519 AAAA me@host\n",
            "a line with -----BEGIN PRIVATE KEY-----\n",
        ] {
            assert!(!is_private(text.as_bytes()), "{text}");
        }
    }
}
