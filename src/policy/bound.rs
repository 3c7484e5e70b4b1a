//! Upper bounds of a container's resources: a number, a share of the node's resources, or none.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::size;
use crate::text::{ValueError, string_form};

/// A bound: a number (`1024`, `2GiB`, `1.5`), a share of the node (`50%`), or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenBound", into = "String")]
#[serde(bound(serialize = "T: Amount", deserialize = "T: Amount"))]
pub enum Bound<T: Amount> {
    /// This amount.
    Is(T),
    /// A percentage of the node's amount, 1 to 100.
    Share(u8),
    /// The engine's limit, which may be none at all.
    Unlimited,
}

/// A resource that a bound limits.
pub trait Amount: Copy + Ord + fmt::Display + FromStr {
    /// What a value must look like, as the end of "this is not ...".
    const GRAMMAR: &'static str;
    /// Whether a share of the node makes sense for it.
    const SHARED: bool;
}

/// Processes and threads of a container together.
pub type ProcessLimit = Bound<Processes>;
/// Memory of a container, with the contents of its tmpfs mounts.
pub type MemoryLimit = Bound<Memory>;
/// Processors of a container.
pub type CpuLimit = Bound<Cpus>;

impl<T: Amount> Bound<T> {
    /// Whether this bound is at most the ceiling's, as far as is known without the node. A share and a number cannot be
    /// compared here; the smaller of them applies once the node is known ([`super::ResolvedPolicy::bounds`]).
    pub fn is_within(&self, ceiling: &Self) -> bool {
        match (self, ceiling) {
            (_, Self::Unlimited) => true,
            (Self::Is(asked), Self::Is(most)) => asked <= most,
            (Self::Share(asked), Self::Share(most)) => asked <= most,
            (Self::Is(_), Self::Share(_)) | (Self::Share(_), Self::Is(_)) => true,
            (Self::Unlimited, Self::Is(_) | Self::Share(_)) => false,
        }
    }
}

impl MemoryLimit {
    /// This many bytes, rounded up to whole MiB, within what a policy may say.
    pub fn of_bytes(bytes: u64) -> Self {
        let mib = bytes.div_ceil(1 << 20).clamp(16, 64 << 20);
        Self::Is(Memory(mib << 20))
    }
}

/// A file may have a plain number without quotes.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenBound {
    Number(u32),
    Decimal(f64),
    Text(String),
}

impl<T: Amount> TryFrom<WrittenBound> for Bound<T> {
    type Error = ValueError;

    fn try_from(written: WrittenBound) -> Result<Self, ValueError> {
        match written {
            WrittenBound::Number(number) => number.to_string().parse(),
            WrittenBound::Decimal(number) => number.to_string().parse(),
            WrittenBound::Text(text) => text.parse(),
        }
    }
}

impl<T: Amount> From<Bound<T>> for String {
    fn from(bound: Bound<T>) -> Self {
        bound.to_string()
    }
}

impl<T: Amount> FromStr for Bound<T> {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        let share = || {
            let digits = value.strip_suffix('%').filter(|_| T::SHARED)?;
            plain(digits)?
                .parse()
                .ok()
                .filter(|percent| (1..=100).contains(percent))
        };
        match value {
            "unlimited" => Ok(Self::Unlimited),
            _ => (share().map(Self::Share))
                .or_else(|| value.parse().ok().map(Self::Is))
                .ok_or_else(|| ValueError::grammar(value, T::GRAMMAR)),
        }
    }
}

impl<T: Amount> fmt::Display for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(amount) => amount.fmt(f),
            Self::Share(percent) => write!(f, "{percent}%"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// Digits without a sign or a leading zero: one spelling for each number.
fn plain(digits: &str) -> Option<&str> {
    let plain = !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && !digits.starts_with('0');
    plain.then_some(digits)
}

/// A number of processes and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Processes(u32);

impl Processes {
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Amount for Processes {
    const GRAMMAR: &'static str = "a number of processes from 16 to 4194304, or unlimited";
    const SHARED: bool = false;
}

impl FromStr for Processes {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        // A shell with a pipe needs 16. No kernel has more than PID_MAX_LIMIT (threads.h).
        plain(value)
            .and_then(|digits| digits.parse().ok())
            .filter(|number| (16..=4_194_304).contains(number))
            .map(Self)
            .ok_or_else(|| ValueError::grammar(value, Self::GRAMMAR))
    }
}

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory(u64);

impl Memory {
    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Amount for Memory {
    const GRAMMAR: &'static str = "an amount of memory from 16MiB to 65536GiB in KiB, MiB or GiB, a share of the node's such as 50%, or unlimited";
    const SHARED: bool = true;
}

impl FromStr for Memory {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        size::parse(value)
            .filter(|bytes| (16 << 20..=64 << 40).contains(bytes))
            .map(Self)
            .ok_or_else(|| ValueError::grammar(value, Self::GRAMMAR))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        size::write(f, self.0)
    }
}

/// Processors, in thousandths of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(u32);

impl Cpus {
    /// Thousandths of a processor.
    pub const fn milli(self) -> u32 {
        self.0
    }
}

impl Amount for Cpus {
    const GRAMMAR: &'static str = "a number of processors from 0.01 to 4096 with at most three decimals, a share of the node's such as 50%, or unlimited";
    const SHARED: bool = true;
}

impl FromStr for Cpus {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        milli(value)
            // The kernel takes no quota below 1 ms, and the period is 100 ms.
            .filter(|milli| (10..=4_096_000).contains(milli))
            .map(Self)
            .ok_or_else(|| ValueError::grammar(value, Self::GRAMMAR))
    }
}

fn milli(value: &str) -> Option<u32> {
    let (whole, rest) = value.split_once('.').unwrap_or((value, "0"));
    let whole: u32 = match whole {
        "0" => 0,
        digits => plain(digits)?.parse().ok()?,
    };
    let decimals = (1..=3).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_digit());
    let rest: u32 = format!("{rest:0<3}").parse().ok().filter(|_| decimals)?;
    whole.checked_mul(1000)?.checked_add(rest)
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:03}", self.0 % 1000);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}", self.0 / 1000),
            decimals => write!(f, "{}.{decimals}", self.0 / 1000),
        }
    }
}

string_form!(Processes);
string_form!(Memory);
string_form!(Cpus);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_has_one_spelling() {
        for text in ["16", "4096", "4194304", "unlimited"] {
            assert_eq!(text.parse::<ProcessLimit>().unwrap().to_string(), text);
        }
        for text in ["16MiB", "2GiB", "50%", "100%", "unlimited"] {
            assert_eq!(text.parse::<MemoryLimit>().unwrap().to_string(), text);
        }
        for text in ["0.01", "0.5", "1", "1.25", "64", "50%", "unlimited"] {
            assert_eq!(text.parse::<CpuLimit>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "0",
            "15",
            "+16",
            "016",
            "50%",
            "-1",
            "Unlimited",
            "4194305",
        ] {
            assert!(text.parse::<ProcessLimit>().is_err(), "{text:?}");
        }
        for text in [
            "", "1MiB", "0%", "101%", "050%", "2G", "1024", "%", "65537GiB",
        ] {
            assert!(text.parse::<MemoryLimit>().is_err(), "{text:?}");
        }
        for text in [
            "", "0", "0.001", ".5", "1.", "1.2345", "1,5", "01", "5000", "1e3", "-1",
        ] {
            assert!(text.parse::<CpuLimit>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_share_and_a_number_are_not_compared_without_the_node() {
        let bound = |text: &str| text.parse::<MemoryLimit>().unwrap();
        for (asked, ceiling, within) in [
            ("1GiB", "2GiB", true),
            ("2GiB", "2GiB", true),
            ("3GiB", "2GiB", false),
            ("50%", "50%", true),
            ("60%", "50%", false),
            ("16MiB", "50%", true),
            ("1%", "64GiB", true),
            ("unlimited", "unlimited", true),
            ("unlimited", "50%", false),
            ("50%", "unlimited", true),
        ] {
            assert_eq!(
                bound(asked).is_within(&bound(ceiling)),
                within,
                "{asked} {ceiling}"
            );
        }
    }
}
