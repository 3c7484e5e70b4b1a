//! SHA-1 (RFC 3174), git's names of contents. It is no security boundary: an author of two contents with one hash has
//! both.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The hash of a message.
pub(super) fn sha1(message: &[u8]) -> [u8; 20] {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, message);
    hash.as_ref().try_into().expect("SHA-1 has 160 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_hold() {
        let hex = |message: &[u8]| sha1(message).map(|b| format!("{b:02x}")).concat();
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(long), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(
            hex(&[b'a'; 1_000_000]),
            "34aa973cd4c4daa4f61eeb2bdbad27316534016f"
        );
    }
}
