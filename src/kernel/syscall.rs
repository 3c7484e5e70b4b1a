//! Names and numbers of system calls.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::numbers::ELSEWHERE;
pub use super::numbers::{NONE, ROWS, SyscallRow};
use crate::text::{ValueError, nearest, shown, string_form};

/// The name of an x86_64 system call: `openat`, `io_uring_setup`.
///
/// Only for known names: skipping an unknown name in a list of denied calls would leave a door open (firejail#2931).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SyscallName(
    /// An index into the table, which is sorted by name.
    u16,
);

string_form!(SyscallName);

impl SyscallName {
    /// The name as the kernel spells it.
    pub const fn as_str(self) -> &'static str {
        ROWS[self.0 as usize].name
    }

    /// Its number on x86_64.
    pub const fn number(self) -> u32 {
        ROWS[self.0 as usize].x86_64 as u32
    }

    /// The name for a number of x86_64.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::all().find(|name| name.number() == number)
    }

    /// All names, sorted.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..)
            .zip(ROWS)
            .filter(|(_, row)| row.x86_64 != NONE)
            .map(|(index, _)| SyscallName(index))
    }
}

impl FromStr for SyscallName {
    type Err = ValueError;

    fn from_str(name: &str) -> Result<Self, ValueError> {
        let allowed = match index(name).map(|index| (ROWS[index].x86_64, u16::try_from(index))) {
            Some((number, Ok(index))) if number != NONE => return Ok(Self(index)),
            Some(_) => {
                "a 64-bit system call: a policy refuses all 32-bit ones, and 64-bit ones have other names"
            }
            None => "a system call's name",
        };
        Err(ValueError {
            value: shown(name),
            allowed: allowed.to_owned(),
            suggestion: nearest(name, Self::all().map(Self::as_str)).map(str::to_owned),
        })
    }
}

impl fmt::Display for SyscallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SyscallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The row of a name in any of the x86 tables.
pub fn row(name: &str) -> Option<&'static SyscallRow> {
    index(name).map(|index| &ROWS[index])
}

fn index(name: &str) -> Option<usize> {
    ROWS.binary_search_by(|row| row.name.cmp(name)).ok()
}

/// Whether only other architectures have this call.
pub fn is_elsewhere(name: &str) -> bool {
    ELSEWHERE.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_tables_are_sorted_for_searching() {
        assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
        assert!(ELSEWHERE.is_sorted_by(|a, b| a < b));
        assert!(ELSEWHERE.iter().all(|name| row(name).is_none()));
    }

    #[test]
    fn no_number_has_two_names() {
        for column in [
            |row: &SyscallRow| row.x86_64,
            |row: &SyscallRow| row.i386,
            |row: &SyscallRow| row.x32,
        ] {
            let numbers: Vec<u16> = ROWS
                .iter()
                .map(column)
                .filter(|number| *number != NONE)
                .collect();
            let distinct: BTreeSet<u16> = numbers.iter().copied().collect();
            assert_eq!(numbers.len(), distinct.len());
        }
    }

    #[test]
    fn numbers_are_the_c_librarys() {
        for (name, number) in [
            ("read", libc::SYS_read),
            ("socket", libc::SYS_socket),
            ("clone3", libc::SYS_clone3),
            ("openat2", libc::SYS_openat2),
            ("futex_waitv", libc::SYS_futex_waitv),
            ("fchmodat2", libc::SYS_fchmodat2),
            ("mseal", libc::SYS_mseal),
            ("rseq", libc::SYS_rseq),
        ] {
            let name: SyscallName = name.parse().unwrap();
            assert_eq!(i64::from(name.number()), number, "{name}");
            assert_eq!(SyscallName::from_number(name.number()), Some(name));
        }
    }

    #[test]
    fn the_table_reaches_linux_6_18() {
        for (name, number) in [
            ("file_setattr", 469),
            ("uprobe", 336),
            ("uretprobe", 335),
            ("removexattrat", 466),
        ] {
            assert_eq!(name.parse::<SyscallName>().unwrap().number(), number);
        }
        assert_eq!(row("clock_gettime64").map(|row| row.i386), Some(403));
        assert_eq!(row("ioctl").map(|row| row.x32), Some(514));
    }

    #[test]
    fn refuses_names_that_no_filter_can_act_on() {
        for (name, says) in [
            (
                "opennat",
                "\"opennat\" is not a system call's name; did you mean openat?",
            ),
            (
                "Read",
                "\"Read\" is not a system call's name; did you mean read?",
            ),
            ("", "\"\" is not a system call's name"),
            (
                "socketcall",
                "\"socketcall\" is not a 64-bit system call: a policy refuses all 32-bit ones, and 64-bit ones have other names; did you mean socketpair?",
            ),
        ] {
            assert_eq!(name.parse::<SyscallName>().unwrap_err().to_string(), says);
        }
        assert_eq!(SyscallName::from_number(600), None);
        assert_eq!(SyscallName::from_number(u32::from(NONE)), None);
    }
}
