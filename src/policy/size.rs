//! Amounts of memory.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{ValueError, string_form};

/// The units, largest first. The first one that divides a size gives its shortest form.
const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// An amount from 1 MiB to 64 GiB, written `16MiB`.
///
/// The bounds refuse a tmpfs that is too small to hold a file or too large for any machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(u64);

impl ByteSize {
    /// 1 GiB.
    pub const GIB: Self = Self(1 << 30);

    /// The amount in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        parse(value)
            .filter(|bytes| (1 << 20..=64 << 30).contains(bytes))
            .map(Self)
            .ok_or_else(|| {
                ValueError::grammar(
                    value,
                    "a size from 1MiB to 64GiB: a whole number and KiB, MiB or GiB, such as 64MiB",
                )
            })
    }
}

/// Bytes of a whole number with a unit, without bounds.
pub(super) fn parse(value: &str) -> Option<u64> {
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((value.strip_suffix(name)?, unit)))?;
    // `u64::from_str` would take a `+`, and leading zeros make two spellings of one number.
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    plain
        .then(|| digits.parse::<u64>().ok())??
        .checked_mul(*unit)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0)
    }
}

/// Prints bytes in the largest unit that divides them.
pub(super) fn write(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    let (name, unit) = UNITS
        .iter()
        .find(|(_, unit)| bytes.is_multiple_of(*unit))
        .expect("every size was parsed as a multiple of a KiB");
    write!(f, "{}{name}", bytes / unit)
}

string_form!(ByteSize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_and_writes_them_in_the_largest_unit() {
        for (text, bytes, canonical) in [
            ("1MiB", 1 << 20, "1MiB"),
            ("1025KiB", 1025 << 10, "1025KiB"),
            ("1024MiB", 1 << 30, "1GiB"),
            ("64GiB", 64 << 30, "64GiB"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(
                (size.bytes(), size.to_string().as_str()),
                (bytes, canonical)
            );
        }
    }

    #[test]
    fn refuses_other_spellings_and_amounts_out_of_range() {
        for bad in [
            "",
            "MiB",
            "64",
            "64M",
            "64MB",
            "64mib",
            "64 MiB",
            "+64MiB",
            "-1MiB",
            "064MiB",
            "0MiB",
            "1.5GiB",
            "1023KiB",
            "65GiB",
            "65537MiB",
            "18014398509481985KiB",
            "99999999999999999999GiB",
            "64MiB\n",
        ] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
    }
}
