//! The node's private and public key, as PEM files that `openssl pkey` reads: PKCS#8 (RFC 5958) and
//! SubjectPublicKeyInfo (RFC 8410).

use data_encoding::BASE64;
use ring::rand::SecureRandom;
use ring::signature::{self, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

use crate::audit::chain::hash;

/// Bytes of a seed, and of a public key.
const LENGTH: usize = 32;
/// The bytes before the seed in PKCS#8 version 1: RFC 8410, section 7.
const BEFORE_SEED: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// The bytes before a public key: RFC 8410, section 4.
const BEFORE_PUBLIC: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text holds no PEM block of this kind.
    #[error("it holds no PEM block `{0}`")]
    NotPem(&'static str),
    /// The block holds another kind of key.
    #[error("its key is not Ed25519")]
    NotEd25519,
    /// The kernel gave no random bytes.
    #[error("the kernel gives no random bytes")]
    NoRandomness,
}

/// The private key.
pub struct SigningKey {
    seed: [u8; LENGTH],
    pair: Ed25519KeyPair,
}

// A key must not reach a log through a panic or a debug line.
impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}

impl SigningKey {
    /// Makes a new key of random bytes.
    pub fn generate(random: &dyn SecureRandom) -> Result<Self, KeyError> {
        let mut seed = [0; LENGTH];
        random.fill(&mut seed).map_err(|_| KeyError::NoRandomness)?;
        Self::of_seed(seed)
    }

    /// Reads a private key in PEM.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| KeyError::NotPem("PRIVATE KEY"))?;
        let seed = der.secret_pkcs8_der().strip_prefix(&BEFORE_SEED);
        let seed = seed.and_then(|seed| seed.try_into().ok());
        Self::of_seed(seed.ok_or(KeyError::NotEd25519)?)
    }

    fn of_seed(seed: [u8; LENGTH]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::NotEd25519)?;
        Ok(Self { seed, pair })
    }

    /// The private key in PEM, for a file that only root can read.
    pub fn to_pem(&self) -> String {
        pem("PRIVATE KEY", &[&BEFORE_SEED[..], &self.seed].concat())
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; LENGTH];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// The signature of a message.
    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// The key that verifies signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; LENGTH]);

impl PublicKey {
    /// Reads a public key in PEM.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes())
            .map_err(|_| KeyError::NotPem("PUBLIC KEY"))?;
        let key = der.as_ref().strip_prefix(&BEFORE_PUBLIC);
        let key = key.and_then(|key| key.try_into().ok());
        key.map(Self).ok_or(KeyError::NotEd25519)
    }

    fn der(&self) -> Vec<u8> {
        [&BEFORE_PUBLIC[..], &self.0].concat()
    }

    /// The public key in PEM.
    pub fn to_pem(&self) -> String {
        pem("PUBLIC KEY", &self.der())
    }

    /// The key's name in an envelope: the SHA-256 of its SubjectPublicKeyInfo, in hexadecimal digits.
    pub fn id(&self) -> String {
        hash(&self.der())
    }

    pub(super) fn accepts(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&signature::ED25519, self.0);
        key.verify(message, signature).is_ok()
    }
}

/// A PEM block (RFC 7468). Ours fit in one or two lines.
fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let mut lines = String::new();
    for line in text.as_bytes().chunks(64) {
        lines.push_str(&String::from_utf8_lossy(line));
        lines.push('\n');
    }
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_pem() {
        let key = SigningKey::generate(&ring::rand::SystemRandom::new()).unwrap();
        let again = SigningKey::from_pem(&key.to_pem()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(
            PublicKey::from_pem(&key.public().to_pem()).unwrap(),
            key.public()
        );
    }

    #[test]
    fn the_example_of_rfc_8410_is_read() {
        let private = "-----BEGIN PRIVATE KEY-----\n\
                       MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                       -----END PRIVATE KEY-----\n";
        let public = "-----BEGIN PUBLIC KEY-----\n\
                      MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                      -----END PUBLIC KEY-----\n";
        let key = SigningKey::from_pem(private).unwrap();
        assert_eq!(key.to_pem(), private);
        assert_eq!(key.public().to_pem(), public);
    }

    #[test]
    fn other_keys_than_ed25519_are_refused() {
        assert!(matches!(
            SigningKey::from_pem("hello"),
            Err(KeyError::NotPem(_))
        ));
        let short = pem("PRIVATE KEY", &BEFORE_SEED);
        assert!(matches!(
            SigningKey::from_pem(&short),
            Err(KeyError::NotEd25519)
        ));
        let other = pem("PUBLIC KEY", &[0x30; 44]);
        assert!(matches!(
            PublicKey::from_pem(&other),
            Err(KeyError::NotEd25519)
        ));
    }

    #[test]
    fn debug_output_has_no_key() {
        let key = SigningKey::of_seed([7; LENGTH]).unwrap();
        assert_eq!(
            format!("{key:?}"),
            format!("SigningKey({})", key.public().id())
        );
    }
}
