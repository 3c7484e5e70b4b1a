//! What is in an index's extensions (gitformat-index(5)).

/// Whether a table of offsets (IEOT) has these entries: each block begins where one of them does, with a whole name.
pub(super) fn has_these(table: &[u8], starts: &[u32]) -> bool {
    let Some((_, blocks)) = table
        .split_at_checked(4)
        .filter(|_| number(table, 0) == Some(1))
    else {
        return false;
    };
    let mut first = 0_usize;
    for block in blocks.chunks(8) {
        let (Some(offset), Some(count)) = (number(block, 0), number(block, 4)) else {
            return false;
        };
        // Zero is no offset of an entry.
        if offset == 0 || starts.get(first) != Some(&offset) {
            return false;
        }
        first = first.saturating_add(count as usize);
    }
    first == starts.len()
}

/// The bits that are set in a compressed bitmap (EWAH, gitformat-bitmap(5)) of at most `most` bits, and the bytes after
/// it.
pub(super) fn bitmap(bytes: &[u8], most: usize) -> Option<(Vec<usize>, &[u8])> {
    let bits = usize::try_from(number(bytes, 0)?).ok()?;
    let words = usize::try_from(number(bytes, 4)?).ok()?;
    let (body, rest) = bytes.get(8..)?.split_at_checked(words.checked_mul(8)?)?;
    let end = bits.next_multiple_of(64);
    let mut words = body
        .chunks_exact(8)
        .map(|word| u64::from_be_bytes(word.try_into().unwrap_or_default()));
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(marker) = words.next() {
        let run = usize::try_from(marker >> 1 & 0xffff_ffff).ok()?;
        let after = run.checked_mul(64)?.checked_add(at)?;
        if bits > most || after > end {
            return None;
        }
        if marker & 1 == 1 {
            found.extend(at..after.min(bits));
        }
        at = after;
        for _ in 0..marker >> 33 {
            let word = words.next().filter(|_| at < end)?;
            found.extend((0..64).filter(|bit| word >> bit & 1 == 1).map(|b| at + b));
            at += 64;
        }
    }
    // Skip the position of the last marker, which only writers need.
    Some((found, rest.get(4..)?))
}

pub(super) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}
