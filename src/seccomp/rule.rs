//! A filter's rules for system calls: verdicts, conditions on arguments, and their plain evaluation.
//!
//! The evaluation here defines the meaning; the compiled program is tested against it.

use std::borrow::Cow;
use std::fmt;

/// The kernel's action, strictest first: `<` means "stricter than", as seccomp(2) orders return values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyscallVerdict {
    /// `SECCOMP_RET_KILL_PROCESS`
    KillProcess,
    /// `SECCOMP_RET_KILL_THREAD`
    KillThread,
    /// `SECCOMP_RET_TRAP`: SIGSYS
    Trap,
    /// `SECCOMP_RET_ERRNO` with this errno; 0 pretends success
    Errno(u16),
    /// `SECCOMP_RET_USER_NOTIF`. The kernel ignores its 16 bits of data. Our own denials put the errno for the listener
    /// there; an engine's have 0.
    Notify(u16),
    /// `SECCOMP_RET_TRACE` with this message; ENOSYS without a tracer
    Trace(u16),
    /// `SECCOMP_RET_LOG`: allowed, and written to the kernel's log
    Log,
    /// `SECCOMP_RET_ALLOW`
    Allow,
}

impl SyscallVerdict {
    /// The value that a filter returns for it.
    pub const fn to_raw(self) -> u32 {
        match self {
            SyscallVerdict::KillProcess => 0x8000_0000,
            SyscallVerdict::KillThread => 0,
            SyscallVerdict::Trap => 0x0003_0000,
            SyscallVerdict::Errno(errno) => 0x0005_0000 | errno as u32,
            SyscallVerdict::Notify(errno) => 0x7fc0_0000 | errno as u32,
            SyscallVerdict::Trace(message) => 0x7ff0_0000 | message as u32,
            SyscallVerdict::Log => 0x7ffc_0000,
            SyscallVerdict::Allow => 0x7fff_0000,
        }
    }

    /// The kernel's reading of a filter's return value; an unknown one kills the process.
    pub const fn from_raw(raw: u32) -> Self {
        let data = (raw & 0xffff) as u16;
        match raw & 0xffff_0000 {
            0 => SyscallVerdict::KillThread,
            0x0003_0000 => SyscallVerdict::Trap,
            0x0005_0000 => SyscallVerdict::Errno(data),
            0x7fc0_0000 => SyscallVerdict::Notify(data),
            0x7ff0_0000 => SyscallVerdict::Trace(data),
            0x7ffc_0000 => SyscallVerdict::Log,
            0x7fff_0000 => SyscallVerdict::Allow,
            _ => SyscallVerdict::KillProcess,
        }
    }

    /// Whether the call does not happen.
    pub const fn is_denial(self) -> bool {
        !matches!(
            self,
            SyscallVerdict::Allow | SyscallVerdict::Log | SyscallVerdict::Trace(_)
        )
    }

    const fn rank(self) -> u8 {
        match self {
            SyscallVerdict::KillProcess => 0,
            SyscallVerdict::KillThread => 1,
            SyscallVerdict::Trap => 2,
            SyscallVerdict::Errno(_) => 3,
            SyscallVerdict::Notify(_) => 4,
            SyscallVerdict::Trace(_) => 5,
            SyscallVerdict::Log => 6,
            SyscallVerdict::Allow => 7,
        }
    }

    /// Whether it is strictly stricter. Two errnos are equally strict.
    pub const fn is_stricter_than(self, other: SyscallVerdict) -> bool {
        self.rank() < other.rank()
    }

    /// The stricter of both; `self` if they are equally strict, so that it names the errno.
    #[must_use]
    pub const fn stricter(self, other: SyscallVerdict) -> SyscallVerdict {
        if other.is_stricter_than(self) {
            other
        } else {
            self
        }
    }
}

impl fmt::Display for SyscallVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyscallVerdict::KillProcess => f.write_str("kill the process"),
            SyscallVerdict::KillThread => f.write_str("kill the thread"),
            SyscallVerdict::Trap => f.write_str("SIGSYS"),
            SyscallVerdict::Errno(0) => f.write_str("answer success, do nothing"),
            SyscallVerdict::Errno(errno) => write_errno(f, *errno),
            SyscallVerdict::Notify(0) => f.write_str("ask the listener"),
            SyscallVerdict::Notify(errno) => {
                write_errno(f, *errno)?;
                f.write_str(" (logged)")
            }
            SyscallVerdict::Trace(message) => write!(f, "trace {message}"),
            SyscallVerdict::Log => f.write_str("allow and log"),
            SyscallVerdict::Allow => f.write_str("allow"),
        }
    }
}

/// The errnos in our rules.
pub(super) const ERRNOS: &[(&str, u16)] = &[
    // A pretended success.
    ("SUCCESS", 0),
    ("EPERM", 1),
    ("EACCES", 13),
    ("EINVAL", 22),
    ("ENOTTY", 25),
    ("ENOSYS", 38),
    ("EPROTONOSUPPORT", 93),
    ("EOPNOTSUPP", 95),
    ("EAFNOSUPPORT", 97),
];

/// Errnos that a kernel without the feature would also return. C libraries and tools often probe such calls and go on,
/// so the kernel answers them itself, and they are not logged.
pub(super) const PLAIN: [u16; 3] = [
    22, // EINVAL: unknown options of prctl(2) and arch_prctl(2)
    25, // ENOTTY: unknown requests of ioctl(2) for a file
    38, // ENOSYS: unknown calls
];

/// The name of an errno in our rules.
pub(super) fn errno_name(errno: u16) -> Option<&'static str> {
    let found = ERRNOS.iter().find(|(_, number)| *number == errno);
    found.map(|(name, _)| *name)
}

fn write_errno(f: &mut fmt::Formatter<'_>, errno: u16) -> fmt::Result {
    match errno_name(errno) {
        Some(name) => f.write_str(name),
        None => write!(f, "errno {errno}"),
    }
}

/// `ENOSYS`: the kernel's errno for an unknown call.
pub(super) const ENOSYS: SyscallVerdict = SyscallVerdict::Errno(38);
/// `EPERM`
pub(super) const EPERM: SyscallVerdict = SyscallVerdict::Errno(1);

/// How much of an argument the kernel reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// The low 32 bits: the kernel truncates `int`s first.
    Int,
    /// All 64 bits.
    Long,
}

/// How an argument is compared with a value; unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// The bits in the mask equal the value's.
    MaskedEq(u64),
}

/// One comparison of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    pub arg: u8,
    pub width: Width,
    pub op: Op,
    pub value: u64,
}

impl Condition {
    /// Whether it is true for a call with these arguments.
    pub(super) fn holds(&self, args: &[u64; 6]) -> bool {
        let arg = match self.width {
            Width::Int => args[usize::from(self.arg)] & 0xffff_ffff,
            Width::Long => args[usize::from(self.arg)],
        };
        match self.op {
            Op::Eq => arg == self.value,
            Op::Ne => arg != self.value,
            Op::Lt => arg < self.value,
            Op::Le => arg <= self.value,
            Op::Gt => arg > self.value,
            Op::Ge => arg >= self.value,
            Op::MaskedEq(mask) => arg & mask == self.value,
        }
    }
}

/// A verdict for calls that meet all conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub when: Cow<'static, [Condition]>,
    pub then: SyscallVerdict,
}

/// The rule of one system call: the first case that is true, else `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub cases: Cow<'static, [Case]>,
    pub otherwise: SyscallVerdict,
}

impl Rule {
    /// The same verdict for all arguments.
    pub(super) const fn always(verdict: SyscallVerdict) -> Self {
        Rule {
            cases: Cow::Borrowed(&[]),
            otherwise: verdict,
        }
    }

    /// The plain meaning of a rule.
    pub(super) fn verdict(&self, args: &[u64; 6]) -> SyscallVerdict {
        self.cases
            .iter()
            .find(|case| case.when.iter().all(|condition| condition.holds(args)))
            .map_or(self.otherwise, |case| case.then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_ordered_as_the_kernel_orders_them() {
        let strictest_first = [
            SyscallVerdict::KillProcess,
            SyscallVerdict::KillThread,
            SyscallVerdict::Trap,
            SyscallVerdict::Errno(1),
            SyscallVerdict::Notify(1),
            SyscallVerdict::Trace(1),
            SyscallVerdict::Log,
            SyscallVerdict::Allow,
        ];
        // seccomp_run_filters() compares the action as a signed number.
        let kernel = strictest_first.map(|verdict| (verdict.to_raw() & 0xffff_0000).cast_signed());
        assert!(kernel.is_sorted());
        assert!(strictest_first.is_sorted_by(|a, b| a.is_stricter_than(*b)));
        for verdict in strictest_first {
            assert_eq!(SyscallVerdict::from_raw(verdict.to_raw()), verdict);
        }
    }

    #[test]
    fn the_first_names_the_errno_where_both_deny() {
        assert_eq!(
            SyscallVerdict::Errno(38).stricter(SyscallVerdict::Errno(1)),
            SyscallVerdict::Errno(38)
        );
        assert_eq!(
            SyscallVerdict::Errno(38).stricter(SyscallVerdict::Trap),
            SyscallVerdict::Trap
        );
        assert_eq!(
            SyscallVerdict::Allow.stricter(SyscallVerdict::Log),
            SyscallVerdict::Log
        );
    }

    #[test]
    fn an_int_is_compared_without_its_high_half() {
        let tiocsti = Condition {
            arg: 1,
            width: Width::Int,
            op: Op::Eq,
            value: 0x5412,
        };
        assert!(tiocsti.holds(&[0, 0x5412 | 1 << 32, 0, 0, 0, 0]));
        let pointer = Condition {
            width: Width::Long,
            ..tiocsti
        };
        assert!(!pointer.holds(&[0, 0x5412 | 1 << 32, 0, 0, 0, 0]));
    }
}
