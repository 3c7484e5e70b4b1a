//! The envelope: DSSE 1.0 (secure-systems-lab/dsse). The signature covers the payload and its type, each after its
//! length, so that no other content gives the same bytes.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use super::key::{PublicKey, SigningKey};

/// The type of an in-toto payload.
pub const IN_TOTO: &str = "application/vnd.in-toto+json";

/// A payload and its signatures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The type of the payload.
    pub payload_type: String,
    /// The payload, in base64.
    pub payload: String,
    /// The signatures, at least one if it was signed.
    pub signatures: Vec<Signature>,
}

/// One signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// [`PublicKey::id`] of the key; a hint that is not trusted.
    #[serde(default)]
    pub keyid: String,
    /// The signature, in base64.
    pub sig: String,
}

/// Why an envelope is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Another kind of payload.
    #[error("its payload is {0:?}, not an in-toto statement ({IN_TOTO})")]
    Type(String),
    /// Its base64 cannot be read.
    #[error("its payload is not base64")]
    NotBase64,
    /// No signature by this key is valid.
    #[error("it has no signature by this key: it was changed, or another node signed it")]
    NotSigned,
}

impl Envelope {
    /// Signs a payload.
    pub fn sign(payload: &[u8], key: &SigningKey) -> Self {
        let signature = key.sign(&pre_authentication(IN_TOTO, payload));
        Self {
            payload_type: IN_TOTO.to_owned(),
            payload: BASE64.encode(payload),
            signatures: vec![Signature {
                keyid: key.public().id(),
                sig: BASE64.encode(&signature),
            }],
        }
    }

    /// The payload without checking signatures: for comparisons, not as a proof.
    pub fn payload_of_anybody(&self) -> Result<Vec<u8>, EnvelopeError> {
        if self.payload_type != IN_TOTO {
            return Err(EnvelopeError::Type(
                self.payload_type.chars().take(100).collect(),
            ));
        }
        BASE64
            .decode(self.payload.as_bytes())
            .map_err(|_| EnvelopeError::NotBase64)
    }

    /// The payload, if this key signed it.
    pub fn payload_by(&self, key: &PublicKey) -> Result<Vec<u8>, EnvelopeError> {
        let payload = self.payload_of_anybody()?;
        let message = pre_authentication(&self.payload_type, &payload);
        let signatures = self.signatures.iter();
        let mut bytes = signatures.filter_map(|s| BASE64.decode(s.sig.as_bytes()).ok());
        match bytes.any(|signature| key.accepts(&message, &signature)) {
            true => Ok(payload),
            false => Err(EnvelopeError::NotSigned),
        }
    }
}

/// The signed bytes: DSSE's "pre-authentication encoding".
fn pre_authentication(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!(
        "DSSEv1 {} {payload_type} {} ",
        payload_type.len(),
        payload.len()
    );
    [head.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SigningKey {
        SigningKey::generate(&ring::rand::SystemRandom::new()).unwrap()
    }

    #[test]
    fn the_example_of_the_protocol_is_encoded() {
        let encoded = pre_authentication("http://example.com/HelloWorld", b"hello world");
        assert_eq!(
            encoded,
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
    }

    #[test]
    fn a_signed_payload_comes_back() {
        let key = key();
        let envelope = Envelope::sign(b"{\"a\":1}", &key);
        assert_eq!(envelope.payload_by(&key.public()).unwrap(), b"{\"a\":1}");
    }

    #[test]
    fn one_flipped_bit_is_found_anywhere() {
        let key = key();
        let envelope = Envelope::sign(b"{\"exit\":0}", &key);
        let bytes = |text: &str| BASE64.decode(text.as_bytes()).unwrap();
        let (payload, sig) = (bytes(&envelope.payload), bytes(&envelope.signatures[0].sig));
        for bit in 0..payload.len() * 8 {
            let mut changed = envelope.clone();
            let mut flipped = payload.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            changed.payload = BASE64.encode(&flipped);
            let said = changed.payload_by(&key.public());
            assert_eq!(said, Err(EnvelopeError::NotSigned));
        }
        for bit in 0..sig.len() * 8 {
            let mut changed = envelope.clone();
            let mut flipped = sig.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            changed.signatures[0].sig = BASE64.encode(&flipped);
            let said = changed.payload_by(&key.public());
            assert_eq!(said, Err(EnvelopeError::NotSigned));
        }
    }

    #[test]
    fn another_key_or_another_type_is_refused() {
        let (ours, theirs) = (key(), key());
        let mut envelope = Envelope::sign(b"{}", &theirs);
        assert_eq!(
            envelope.payload_by(&ours.public()),
            Err(EnvelopeError::NotSigned)
        );
        // A copied key id proves nothing.
        envelope.signatures[0].keyid = ours.public().id();
        assert_eq!(
            envelope.payload_by(&ours.public()),
            Err(EnvelopeError::NotSigned)
        );
        envelope.payload_type = "text/plain".to_owned();
        assert!(matches!(
            envelope.payload_by(&theirs.public()),
            Err(EnvelopeError::Type(_))
        ));
        envelope.signatures.clear();
        envelope.payload_type = IN_TOTO.to_owned();
        assert_eq!(
            envelope.payload_by(&theirs.public()),
            Err(EnvelopeError::NotSigned)
        );
    }
}
