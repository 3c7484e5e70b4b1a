//! PURE. Public keys as an SSH agent names them, and their fingerprints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wire::{WireReader, put};
use crate::policy::SshFingerprint;

/// The end of a certificate's type (OpenSSH's PROTOCOL.certkeys).
const CERTIFICATE: &str = "-cert-v01@openssh.com";

/// Types of keys that have certificates, and how many fields their public keys have.
const FIELDS: [(&str, usize); 7] = [
    ("ssh-ed25519", 1),
    ("ssh-rsa", 2),
    ("ecdsa-sha2-nistp256", 2),
    ("ecdsa-sha2-nistp384", 2),
    ("ecdsa-sha2-nistp521", 2),
    ("sk-ssh-ed25519", 2),
    ("sk-ecdsa-sha2-nistp256", 3),
];

/// The fingerprint that `ssh-add -l` prints: a certificate's is that of its key.
pub fn fingerprint(key: &[u8]) -> SshFingerprint {
    SshFingerprint::of(&of_certificate(key).unwrap_or_else(|| key.to_owned()))
}

/// A key as a line of a `.pub` file, without a comment. `None` for a certificate.
pub fn public_line(key: &[u8]) -> Option<String> {
    let kind = std::str::from_utf8(WireReader::new(key).string()?).ok()?;
    let is_plain = of_certificate(key).is_none();
    let text = || format!("{kind} {}", data_encoding::BASE64.encode(key));
    is_plain
        .then(text)
        .filter(|line| of_public_file(line).is_some())
}

/// The key of a certificate.
fn of_certificate(key: &[u8]) -> Option<Vec<u8>> {
    let mut reader = WireReader::new(key);
    let kind = std::str::from_utf8(reader.string()?).ok()?;
    let kind = kind.strip_suffix(CERTIFICATE)?;
    let (_, fields) = FIELDS.iter().find(|(known, _)| *known == kind)?;
    let _nonce = reader.string()?;
    let mut plain = Vec::new();
    let suffix = if kind.starts_with("sk-") {
        "@openssh.com"
    } else {
        ""
    };
    put(&mut plain, format!("{kind}{suffix}").as_bytes());
    for _ in 0..*fields {
        put(&mut plain, reader.string()?);
    }
    Some(plain)
}

/// A key that may sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedKey {
    /// SHA-256 of exactly this key or certificate.
    pub exact: SshFingerprint,
    /// Its fingerprint, as people see it.
    pub shown: SshFingerprint,
}

impl ListedKey {
    /// Of a key as the agent names it.
    pub fn of(key: &[u8]) -> Self {
        Self {
            exact: SshFingerprint::of(key),
            shown: fingerprint(key),
        }
    }
}

/// The keys that may sign, as the agent had them when the sandbox was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedKeys(BTreeMap<SshFingerprint, SshFingerprint>);

impl ListedKeys {
    /// The fingerprint of a key, if it is listed.
    pub fn find(&self, key: &[u8]) -> Option<SshFingerprint> {
        self.0.get(&SshFingerprint::of(key)).copied()
    }
}

impl FromIterator<ListedKey> for ListedKeys {
    fn from_iter<I: IntoIterator<Item = ListedKey>>(keys: I) -> Self {
        Self(keys.into_iter().map(|key| (key.exact, key.shown)).collect())
    }
}

/// The key of a line in a `.pub` file: a type, the key in base64, and a comment (sshd(8), AUTHORIZED_KEYS, without options).
pub fn of_public_file(text: &str) -> Option<Vec<u8>> {
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let mut words = line.split_ascii_whitespace();
    let (kind, key) = (words.next()?, words.next()?);
    let key = data_encoding::BASE64.decode(key.as_bytes()).ok()?;
    WireReader::new(&key).is(kind)?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by OpenSSH 9.2: `ssh-keygen -t ed25519`, and a certificate of it by `ssh-keygen -s`.
    const KEY: &str = include_str!("samples/key.pub");
    const CERT: &str = include_str!("samples/key-cert.pub");
    const FINGERPRINT: &str = include_str!("samples/fingerprint");

    #[test]
    fn a_certificate_has_the_fingerprint_of_its_key() {
        let (key, cert) = (of_public_file(KEY).unwrap(), of_public_file(CERT).unwrap());
        assert_ne!(key, cert);
        for one in [&key, &cert] {
            assert_eq!(fingerprint(one).to_string(), FINGERPRINT.trim());
        }
        let listed = ListedKeys::from_iter([ListedKey::of(&key)]);
        assert!(listed.find(&key).is_some());
        // The one does not list the other.
        assert_eq!(listed.find(&cert), None);
        // A cut certificate is some other key.
        let cut = &cert[..40];
        assert_eq!(fingerprint(cut), SshFingerprint::of(cut));
    }

    #[test]
    fn a_public_file_names_its_keys_type() {
        assert!(of_public_file(&format!("# a comment\n\n{KEY}")).is_some());
        let renamed = KEY.replace("ssh-ed25519 ", "ssh-rsa ");
        let with_options = format!("restrict {KEY}");
        for text in ["", "ssh-ed25519", "ssh-ed25519 !", &renamed, &with_options] {
            assert_eq!(of_public_file(text), None, "{text}");
        }
    }
}
