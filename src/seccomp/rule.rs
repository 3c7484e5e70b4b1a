//! What a filter says of one system call: verdicts, conditions on arguments, and their plain evaluation.
//!
//! The evaluation here is the meaning; the compiled program is tested against it.

use std::borrow::Cow;
use std::fmt;

/// What the kernel does with a call, strictest first: `<` means "stricter than", as seccomp(2) orders return values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// `SECCOMP_RET_KILL_PROCESS`
    KillProcess,
    /// `SECCOMP_RET_KILL_THREAD`
    KillThread,
    /// `SECCOMP_RET_TRAP`: SIGSYS
    Trap,
    /// `SECCOMP_RET_ERRNO` with this errno; 0 says that the call was done
    Errno(u16),
    /// `SECCOMP_RET_USER_NOTIF`. The kernel ignores its 16 bits of data, so our own denials carry in them the errno that
    /// the listener is to answer; an engine's carry 0.
    Notify(u16),
    /// `SECCOMP_RET_TRACE` with this message; ENOSYS where nobody traces
    Trace(u16),
    /// `SECCOMP_RET_LOG`: allowed, and written to the kernel's log
    Log,
    /// `SECCOMP_RET_ALLOW`
    Allow,
}

impl Verdict {
    /// The value that a filter returns for it.
    pub const fn to_raw(self) -> u32 {
        match self {
            Verdict::KillProcess => 0x8000_0000,
            Verdict::KillThread => 0,
            Verdict::Trap => 0x0003_0000,
            Verdict::Errno(errno) => 0x0005_0000 | errno as u32,
            Verdict::Notify(errno) => 0x7fc0_0000 | errno as u32,
            Verdict::Trace(message) => 0x7ff0_0000 | message as u32,
            Verdict::Log => 0x7ffc_0000,
            Verdict::Allow => 0x7fff_0000,
        }
    }

    /// What the kernel makes of a filter's return value; one that it does not know kills the process.
    pub const fn from_raw(raw: u32) -> Self {
        let data = (raw & 0xffff) as u16;
        match raw & 0xffff_0000 {
            0 => Verdict::KillThread,
            0x0003_0000 => Verdict::Trap,
            0x0005_0000 => Verdict::Errno(data),
            0x7fc0_0000 => Verdict::Notify(data),
            0x7ff0_0000 => Verdict::Trace(data),
            0x7ffc_0000 => Verdict::Log,
            0x7fff_0000 => Verdict::Allow,
            _ => Verdict::KillProcess,
        }
    }

    /// Does the call not happen?
    pub const fn is_denial(self) -> bool {
        !matches!(self, Verdict::Allow | Verdict::Log | Verdict::Trace(_))
    }

    const fn rank(self) -> u8 {
        match self {
            Verdict::KillProcess => 0,
            Verdict::KillThread => 1,
            Verdict::Trap => 2,
            Verdict::Errno(_) => 3,
            Verdict::Notify(_) => 4,
            Verdict::Trace(_) => 5,
            Verdict::Log => 6,
            Verdict::Allow => 7,
        }
    }

    /// Is it strictly stricter? Two errnos are equally strict.
    pub const fn is_stricter_than(self, other: Verdict) -> bool {
        self.rank() < other.rank()
    }

    /// The stricter of both; `self` where they are equally strict, so that it names the errno.
    #[must_use]
    pub const fn stricter(self, other: Verdict) -> Verdict {
        if other.is_stricter_than(self) {
            other
        } else {
            self
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::KillProcess => f.write_str("kill the process"),
            Verdict::KillThread => f.write_str("kill the thread"),
            Verdict::Trap => f.write_str("SIGSYS"),
            Verdict::Errno(0) => f.write_str("answer success, do nothing"),
            Verdict::Errno(errno) => write_errno(f, *errno),
            Verdict::Notify(0) => f.write_str("ask the listener"),
            Verdict::Notify(errno) => {
                write_errno(f, *errno)?;
                f.write_str(" (logged)")
            }
            Verdict::Trace(message) => write!(f, "trace {message}"),
            Verdict::Log => f.write_str("allow and log"),
            Verdict::Allow => f.write_str("allow"),
        }
    }
}

/// The errnos that our rules answer with.
pub(super) const ERRNOS: &[(&str, u16)] = &[
    // Done, as far as the caller hears.
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

/// The errnos that a kernel without the feature would answer too, where programs ask which kernel they run on: C libraries and
/// tools try such calls often and go on, so the kernel answers them itself and nobody logs them.
pub(super) const PLAIN: [u16; 3] = [
    22, // EINVAL: options of prctl(2) and arch_prctl(2) that are not known
    25, // ENOTTY: requests of ioctl(2) that a file does not know
    38, // ENOSYS: calls that are not known
];

/// The name of an errno that our rules answer with.
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

/// `ENOSYS`: what a kernel says of a call that it does not have.
pub(super) const ENOSYS: Verdict = Verdict::Errno(38);
/// `EPERM`
pub(super) const EPERM: Verdict = Verdict::Errno(1);

/// How much of an argument the kernel looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// The low 32 bits: the kernel truncates `int`s before it looks at them.
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
    /// The bits of the mask equal the value's.
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
    /// Does it hold for a call with these arguments?
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

/// A verdict for the calls for which all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub when: Cow<'static, [Condition]>,
    pub then: Verdict,
}

/// What is decided for one system call: the first case that holds, else `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub cases: Cow<'static, [Case]>,
    pub otherwise: Verdict,
}

impl Rule {
    /// The same verdict whatever the arguments.
    pub(super) const fn always(verdict: Verdict) -> Self {
        Rule {
            cases: Cow::Borrowed(&[]),
            otherwise: verdict,
        }
    }

    /// The plain meaning of a rule.
    pub(super) fn verdict(&self, args: &[u64; 6]) -> Verdict {
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
            Verdict::KillProcess,
            Verdict::KillThread,
            Verdict::Trap,
            Verdict::Errno(1),
            Verdict::Notify(1),
            Verdict::Trace(1),
            Verdict::Log,
            Verdict::Allow,
        ];
        // seccomp_run_filters() compares the action as a signed number.
        let kernel = strictest_first.map(|verdict| (verdict.to_raw() & 0xffff_0000).cast_signed());
        assert!(kernel.is_sorted());
        assert!(strictest_first.is_sorted_by(|a, b| a.is_stricter_than(*b)));
        for verdict in strictest_first {
            assert_eq!(Verdict::from_raw(verdict.to_raw()), verdict);
        }
    }

    #[test]
    fn the_first_names_the_errno_where_both_deny() {
        assert_eq!(
            Verdict::Errno(38).stricter(Verdict::Errno(1)),
            Verdict::Errno(38)
        );
        assert_eq!(Verdict::Errno(38).stricter(Verdict::Trap), Verdict::Trap);
        assert_eq!(Verdict::Allow.stricter(Verdict::Log), Verdict::Log);
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
