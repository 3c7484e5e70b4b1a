//! SipHash-2-4 (Aumasson and Bernstein, 2012): a number for each name, with a secret key, so that nobody can search
//! for two names with one number.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The number of these bytes by this key.
pub fn sip(key: u128, bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&key.to_le_bytes());
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper's appendix A, and two of its authors' list.
    #[test]
    fn it_is_siphash() {
        let key = u128::from_le_bytes(std::array::from_fn(|i| i as u8));
        let bytes: Vec<u8> = (0..15).collect();
        assert_eq!(sip(key, &bytes), 0xa129_ca61_49be_45e5);
        assert_eq!(sip(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(sip(key, &[0]), 0x74f8_39c5_93dc_67fd);
        assert_ne!(sip(key, &bytes), sip(key + 1, &bytes));
    }
}
