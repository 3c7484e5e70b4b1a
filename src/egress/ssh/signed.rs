//! PURE. What a signature is for, judged by the data to be signed: the login to a server, or an SSHSIG (OpenSSH's
//! PROTOCOL.sshsig), which names its purpose. Nothing else is signed, such as a certificate.

use serde::{Deserialize, Serialize};

use super::key::fingerprint;
use super::wire::WireReader;
use crate::policy::SshFingerprint;
use crate::text::is_treacherous;

/// SSH_MSG_USERAUTH_REQUEST (RFC 4252).
const USERAUTH_REQUEST: u8 = 50;
/// The service that a login asks for. There is no other.
const SERVICE: &str = "ssh-connection";
const PUBLIC_KEY: &[u8] = b"publickey";
/// The same, with the server's key (OpenSSH's PROTOCOL, 3.3).
const HOST_BOUND: &[u8] = b"publickey-hostbound-v00@openssh.com";
/// Session ids are hashes, of SHA-1 to SHA-512.
pub(super) const LONGEST_SESSION: usize = 64;
/// Longest name of a user, or of an SSHSIG's purpose.
const LONGEST_NAME: usize = 256;

const SSHSIG: &[u8] = b"SSHSIG";
/// An SSHSIG's hashes, and their lengths.
const HASHES: [(&[u8], usize); 2] = [(b"sha256", 32), (b"sha512", 64)];

/// What a signature is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignaturePurpose {
    /// The login to an SSH server.
    Login {
        /// The user there.
        user: String,
        /// The server.
        server: LoginServer,
    },
    /// An SSHSIG, with its namespace: `git` for commits and tags.
    Message(String),
}

/// The server of a login, by the data to be signed. Bindings to servers (session-bind@openssh.com) do not count: the
/// workload can bind a connection to any key that it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginServer {
    /// The data names its key. A server with another key refuses the signature.
    Named(SshFingerprint),
    /// The data names the SSH connection alone, by this id.
    Unnamed(Vec<u8>),
}

/// The purpose of data that a key is to sign; `None` for other data.
pub(super) fn purpose(key: &[u8], data: &[u8]) -> Option<SignaturePurpose> {
    match data.starts_with(SSHSIG) {
        true => message(data),
        false => login(key, data),
    }
}

/// RFC 4252, section 7.
fn login(key: &[u8], data: &[u8]) -> Option<SignaturePurpose> {
    let mut reader = WireReader::new(data);
    let session = reader.string()?;
    let is_request = reader.byte()? == USERAUTH_REQUEST;
    let user = name(reader.string()?)?;
    reader.is(SERVICE)?;
    let method = reader.string()?;
    let is_signed = reader.boolean()?;
    // Of the signature, which the key decides.
    let _algorithm = reader.string()?;
    let named = reader.string()?;
    let server = match method {
        PUBLIC_KEY => LoginServer::Unnamed(session.to_owned()),
        HOST_BOUND => LoginServer::Named(fingerprint(reader.string()?)),
        _ => return None,
    };
    reader.end()?;
    let is_session = (1..=LONGEST_SESSION).contains(&session.len());
    (is_session && is_request && is_signed && named == key)
        .then_some(SignaturePurpose::Login { user, server })
}

fn message(data: &[u8]) -> Option<SignaturePurpose> {
    let mut reader = WireReader::new(data.strip_prefix(SSHSIG)?);
    let namespace = name(reader.string()?)?;
    let reserved = reader.string()?;
    let (hash, digest) = (reader.string()?, reader.string()?);
    reader.end()?;
    let is_known = HASHES.contains(&(hash, digest.len()));
    (reserved.is_empty() && is_known).then_some(SignaturePurpose::Message(namespace))
}

/// A name of characters that no log or terminal needs to escape: it is the workload's text, and its line is short.
fn name(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let fits = (1..=LONGEST_NAME).contains(&text.len()) && !text.chars().any(is_treacherous);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::wire::put;
    use super::*;

    pub const SESSION: &[u8] = &[7; 32];

    /// The data of a login. `after` follows the key.
    pub fn login_data(user: &str, method: &[u8], key: &[u8], after: &[&[u8]]) -> Vec<u8> {
        let mut data = Vec::new();
        put(&mut data, SESSION);
        data.push(USERAUTH_REQUEST);
        for text in [user.as_bytes(), SERVICE.as_bytes(), method] {
            put(&mut data, text);
        }
        data.push(1);
        put(&mut data, b"ssh-ed25519");
        put(&mut data, key);
        after.iter().for_each(|text| put(&mut data, text));
        data
    }

    /// The data of an SSHSIG.
    pub fn message_data(namespace: &str, hash: &[u8], digest: &[u8]) -> Vec<u8> {
        let mut data = SSHSIG.to_vec();
        for text in [namespace.as_bytes(), b"", hash, digest] {
            put(&mut data, text);
        }
        data
    }

    fn as_message(namespace: &str) -> Option<SignaturePurpose> {
        Some(SignaturePurpose::Message(namespace.to_owned()))
    }

    #[test]
    fn a_login_names_its_user_and_its_server_or_its_connection() {
        let login = |data: &[u8]| match purpose(b"key", data) {
            Some(SignaturePurpose::Login { user, server }) => Some((user, server)),
            _ => None,
        };
        let plain = login_data("git", PUBLIC_KEY, b"key", &[]);
        let unnamed = LoginServer::Unnamed(SESSION.to_owned());
        assert_eq!(login(&plain), Some(("git".to_owned(), unnamed)));
        let host_bound = login_data("git", HOST_BOUND, b"key", &[b"host"]);
        let named = LoginServer::Named(fingerprint(b"host"));
        assert_eq!(login(&host_bound), Some(("git".to_owned(), named)));
        let with = |user: &str, method: &[u8], after: &[&[u8]]| {
            login(&login_data(user, method, b"key", after))
        };
        for (user, method, after) in [
            ("git", PUBLIC_KEY, &[b"host".as_slice()][..]),
            ("git", HOST_BOUND, &[]),
            ("git", HOST_BOUND, &[b"host", b"more"]),
            ("git", b"password", &[]),
            ("", PUBLIC_KEY, &[]),
            ("a\nb", PUBLIC_KEY, &[]),
            ("a\u{202e}b", PUBLIC_KEY, &[]),
            ("a\u{200b}b", PUBLIC_KEY, &[]),
        ] {
            assert_eq!(with(user, method, after), None, "{user:?} {method:?}");
        }
        // Another key, a request without a signature, another message.
        assert_eq!(purpose(b"other", &plain), None);
        for at in [4 + SESSION.len(), plain.len() - 4 - 3 - 4 - 11 - 1] {
            let mut changed = plain.clone();
            changed[at] ^= 1;
            assert_eq!(purpose(b"key", &changed), None, "{at}");
        }
    }

    #[test]
    fn a_message_names_its_namespace() {
        let git = |hash: &[u8], digest: &[u8]| purpose(b"key", &message_data("git", hash, digest));
        assert_eq!(git(b"sha512", &[0; 64]), as_message("git"));
        assert_eq!(git(b"sha256", &[0; 32]), as_message("git"));
        for (hash, digest) in [
            (&b"sha512"[..], &[0; 32][..]),
            (b"sha1", &[0; 20]),
            (b"md5", &[0; 16]),
        ] {
            assert_eq!(git(hash, digest), None, "{hash:?}");
        }
        for namespace in ["", "a\u{1b}b", "a\u{202e}b", &"n".repeat(300)] {
            let data = message_data(namespace, b"sha512", &[0; 64]);
            assert_eq!(purpose(b"key", &data), None, "{namespace}");
        }
        let whole = message_data("git", b"sha512", &[0; 64]);
        for cut in 0..whole.len() {
            assert_eq!(purpose(b"key", &whole[..cut]), None, "{cut}");
        }
        assert_eq!(purpose(b"key", &[&whole[..], b"x"].concat()), None);
    }

    /// What `ssh-keygen -s` has a CA's key sign begins with the certificate's type.
    #[test]
    fn a_certificate_is_not_signed() {
        let mut data = Vec::new();
        put(&mut data, b"ssh-ed25519-cert-v01@openssh.com");
        put(&mut data, &[1; 32]);
        put(&mut data, &[2; 32]);
        assert_eq!(purpose(b"key", &data), None);
        assert_eq!(purpose(b"key", b"any text"), None);
    }
}
