//! SipHash-2-4 (Aumasson and Bernstein, 2012): a number for each name, by a key that nobody else has, so that nobody can look for
//! two names of one number.

/// The number of these bytes by this key.
pub fn sip(key: u128, bytes: &[u8]) -> u64 {
    let key = key.to_le_bytes();
    let (k0, k1) = (word(&key[..8]), word(&key[8..]));
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        mix(&mut state, word(chunk));
    }
    // The last block ends with the length's last byte.
    let length = (bytes.len() as u64) << 56;
    mix(&mut state, word(chunks.remainder()) | length);
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    state.into_iter().fold(0, |all, one| all ^ one)
}

/// At most eight bytes, the first the lowest.
fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

fn mix(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
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
