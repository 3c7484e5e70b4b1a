//! What Yama forbids to `wrap`, which reads the command's memory and copies its descriptors to answer calls
//! (Documentation/admin-guide/LSM/Yama.rst). `wrap` is an ancestor of the command and has no CAP_SYS_PTRACE.

use std::path::Path;

use crate::sys::procfs;

/// Yama's setting. A kernel without Yama has none.
pub const SETTING: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// `kernel.yama.ptrace_scope`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PtraceScope {
    /// 0 and 1, or no Yama: ancestors may.
    Ancestors,
    /// 2: only CAP_SYS_PTRACE may.
    Capability,
    /// 3: nobody may, until the machine starts again.
    Nobody,
}

impl PtraceScope {
    /// Reads it from [`SETTING`]. The walls hold under each, so an unknown one is none.
    pub fn read(setting: &Path) -> Self {
        let text = procfs::lossy(setting).unwrap_or_default();
        match text.trim() {
            "2" => Self::Capability,
            "3" => Self::Nobody,
            _ => Self::Ancestors,
        }
    }

    /// What fails for the command, as a sentence with its cure.
    pub fn lack(self) -> Option<String> {
        let fails = "chmod, chown, touch, setfattr and new pseudo-terminals fail inside";
        self.cure().map(|cure| format!("{fails}: {cure}"))
    }

    /// Why ports cannot be published, with the cure.
    pub fn refusal(self) -> Option<String> {
        let cure = self.cure()?;
        Some(format!(
            "--publish copies descriptors of the command, which is forbidden here: {cure}"
        ))
    }

    const fn cure(self) -> Option<&'static str> {
        match self {
            Self::Ancestors => None,
            Self::Capability => {
                Some("kernel.yama.ptrace_scope is 2; as root: sysctl kernel.yama.ptrace_scope=1")
            }
            Self::Nobody => Some(
                "kernel.yama.ptrace_scope is 3; set it to 1 in /etc/sysctl.d, and restart the machine",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    fn of(text: &str) -> PtraceScope {
        let place = TestDir::unique();
        let file = place.0.join("ptrace_scope");
        std::fs::write(&file, text).unwrap();
        PtraceScope::read(&file)
    }

    #[test]
    fn a_yama_that_lets_ancestors_read_is_no_obstacle() {
        let missing = PtraceScope::read(Path::new("/proc/sys/kernel/yama/no such file"));
        for scope in [missing, of("0\n"), of("1\n"), of(""), of("x\n")] {
            assert_eq!(scope, PtraceScope::Ancestors);
            assert_eq!((scope.lack(), scope.refusal()), (None, None));
        }
    }

    #[test]
    fn a_stricter_yama_is_named_with_its_cure() {
        let (two, three) = (of("2\n"), of("3\n"));
        assert_eq!((two, three), (PtraceScope::Capability, PtraceScope::Nobody));
        for (scope, cure) in [
            (two, "as root: sysctl kernel.yama.ptrace_scope=1"),
            (three, "restart the machine"),
        ] {
            let (lack, refusal) = (scope.lack().unwrap(), scope.refusal().unwrap());
            assert!(lack.contains("chmod") && lack.ends_with(cure), "{lack}");
            assert!(
                refusal.contains("--publish") && refusal.ends_with(cure),
                "{refusal}"
            );
        }
    }
}
