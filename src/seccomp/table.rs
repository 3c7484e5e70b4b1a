//! Names and numbers of system calls.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::numbers::{ELSEWHERE, NONE, ROWS, Row};

/// The name of an x86_64 system call: `openat`, `io_uring_setup`.
///
/// Only for known names: skipping an unknown name in a list of denied calls would leave a door open (firejail#2931).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KnownSyscall(
    /// An index into the table, which is sorted by name.
    u16,
);

/// Why a string is not the name of a system call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyscallNameError {
    /// No x86 kernel up to 6.18 has it.
    #[error("{0:?} is not a system call of Linux 6.18 on x86")]
    Unknown(String),
    /// It exists, but filters under a policy cannot use it.
    #[error(
        "{0:?} is a 32-bit system call; under a policy all of those are refused, and 64-bit ones have other names"
    )]
    Only32Bit(&'static str),
}

impl KnownSyscall {
    /// The name as the kernel spells it.
    pub const fn as_str(self) -> &'static str {
        ROWS[self.0 as usize].0
    }

    /// Its number on x86_64.
    pub const fn number(self) -> u32 {
        ROWS[self.0 as usize].1 as u32
    }

    /// The name for a number of x86_64.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::all().find(|name| name.number() == number)
    }

    /// All names, sorted.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..)
            .zip(ROWS)
            .filter(|(_, row)| row.1 != NONE)
            .map(|(index, _)| KnownSyscall(index))
    }
}

impl FromStr for KnownSyscall {
    type Err = SyscallNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let Some(index) = index(name) else {
            return Err(SyscallNameError::Unknown(name.to_owned()));
        };
        match (ROWS[index], u16::try_from(index)) {
            ((_, number, _, _), Ok(index)) if number != NONE => Ok(KnownSyscall(index)),
            ((name, ..), _) => Err(SyscallNameError::Only32Bit(name)),
        }
    }
}

impl TryFrom<String> for KnownSyscall {
    type Error = SyscallNameError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<KnownSyscall> for String {
    fn from(name: KnownSyscall) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for KnownSyscall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for KnownSyscall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a policy can name this call.
pub fn is_known(name: &str) -> bool {
    name.parse::<KnownSyscall>().is_ok()
}

/// The row of a name in any of the x86 tables.
pub(super) fn row(name: &str) -> Option<&'static Row> {
    index(name).map(|index| &ROWS[index])
}

fn index(name: &str) -> Option<usize> {
    ROWS.binary_search_by(|row| row.0.cmp(name)).ok()
}

/// Whether only other architectures have this call.
pub(super) fn is_elsewhere(name: &str) -> bool {
    ELSEWHERE.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_tables_are_sorted_for_searching() {
        assert!(ROWS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(ELSEWHERE.is_sorted_by(|a, b| a < b));
        assert!(ELSEWHERE.iter().all(|name| row(name).is_none()));
    }

    #[test]
    fn no_number_has_two_names() {
        for column in [|row: &Row| row.1, |row: &Row| row.2, |row: &Row| row.3] {
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
            let name: KnownSyscall = name.parse().unwrap();
            assert_eq!(i64::from(name.number()), number, "{name}");
            assert_eq!(KnownSyscall::from_number(name.number()), Some(name));
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
            assert_eq!(name.parse::<KnownSyscall>().unwrap().number(), number);
        }
        assert_eq!(row("clock_gettime64").map(|row| row.2), Some(403));
        assert_eq!(row("ioctl").map(|row| row.3), Some(514));
    }

    #[test]
    fn refuses_names_that_no_filter_can_act_on() {
        assert_eq!(
            "opennat".parse::<KnownSyscall>(),
            Err(SyscallNameError::Unknown("opennat".to_owned()))
        );
        assert_eq!(
            "socketcall".parse::<KnownSyscall>(),
            Err(SyscallNameError::Only32Bit("socketcall"))
        );
        assert!(!is_known("Read"));
        assert!(is_known("read"));
        assert_eq!(KnownSyscall::from_number(600), None);
        assert_eq!(KnownSyscall::from_number(u32::from(NONE)), None);
    }
}
