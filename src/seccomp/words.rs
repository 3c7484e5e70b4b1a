//! A denied call in words: its name, its numeric arguments, and why it is denied.
//!
//! Pointer arguments are left out: their targets may have changed before the log is read.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::interp::{ARCH_X86_64, SyscallData};
use super::ours;
use super::rule::errno_name;
use crate::kernel::SyscallName;

/// A denied call as the log and the report print it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialWords {
    /// Its name, or its number if no kernel up to 6.18 has the call.
    pub name: String,
    /// In C's notation: `socket(AF_PACKET, SOCK_RAW, 768)`; `ptrace(16, ...)` if only some arguments are numbers.
    pub call: String,
    /// The errno's name, or its number.
    pub errno: String,
    /// Why.
    pub why: String,
    /// What would allow it.
    pub hint: Hint,
}

/// The setting that would allow a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The profile for debuggers, which an annotation or an option may choose.
    DebugProfile,
    /// In words.
    Words(String),
}

/// What a container's plan says of its filter: the call alone does not tell why it is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterWords {
    /// Given if files cannot be made set-user-ID.
    pub set_id: Option<SetIdWords>,
    /// The calls that the policy allows besides the base's: the engine's profile alone can deny them.
    pub allowed: BTreeSet<SyscallName>,
    /// How to start a container without the engine's profile.
    pub without_profile: String,
}

/// Why files in a container cannot be made set-user-ID or set-group-ID, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetIdWords {
    /// Why.
    pub why: String,
    /// The setting that would allow it.
    pub hint: String,
}

/// How an argument is printed.
#[derive(Clone, Copy)]
enum ArgumentForm {
    /// A number.
    Number,
    /// One of these names, else a number; like the kernel, reads the low 32 bits of `int`s.
    Name(&'static [(u32, &'static str)]),
    /// These bits, and the rest as a number.
    Flags(&'static [(u32, &'static str)]),
    /// A kind of socket with its flags.
    SocketType,
    /// A directory's descriptor.
    Directory,
    /// A file's mode, as for chmod(1).
    Mode,
    /// A pointer, which is left out.
    Pointer,
}

const FAMILIES: &[(u32, &str)] = &[
    (0, "AF_UNSPEC"),
    (1, "AF_UNIX"),
    (2, "AF_INET"),
    (3, "AF_AX25"),
    (10, "AF_INET6"),
    (15, "AF_KEY"),
    (16, "AF_NETLINK"),
    (17, "AF_PACKET"),
    (21, "AF_RDS"),
    (29, "AF_CAN"),
    (30, "AF_TIPC"),
    (31, "AF_BLUETOOTH"),
    (38, "AF_ALG"),
    (40, "AF_VSOCK"),
    (41, "AF_KCM"),
    (42, "AF_QIPCRTR"),
    (43, "AF_SMC"),
    (44, "AF_XDP"),
    (45, "AF_MCTP"),
];

const SOCKET_TYPES: &[(u32, &str)] = &[
    (1, "SOCK_STREAM"),
    (2, "SOCK_DGRAM"),
    (3, "SOCK_RAW"),
    (4, "SOCK_RDM"),
    (5, "SOCK_SEQPACKET"),
    (6, "SOCK_DCCP"),
    (10, "SOCK_PACKET"),
];

const NAMESPACES: &[(u32, &str)] = &[
    (0x0000_0080, "CLONE_NEWTIME"),
    (0x0002_0000, "CLONE_NEWNS"),
    (0x0200_0000, "CLONE_NEWCGROUP"),
    (0x0400_0000, "CLONE_NEWUTS"),
    (0x0800_0000, "CLONE_NEWIPC"),
    (0x1000_0000, "CLONE_NEWUSER"),
    (0x2000_0000, "CLONE_NEWPID"),
    (0x4000_0000, "CLONE_NEWNET"),
];

const REQUESTS: &[(u32, &str)] = &[
    (0x5412, "TIOCSTI"),
    (0x541c, "TIOCLINUX"),
    (0x5423, "TIOCSETD"),
    (0xaa00, "USERFAULTFD_IOC_NEW"),
];

const OPTIONS: &[(u32, &str)] = &[
    (22, "PR_SET_SECCOMP"),
    (28, "PR_SET_SECUREBITS"),
    (35, "PR_SET_MM"),
    (59, "PR_SET_SYSCALL_USER_DISPATCH"),
];

const TRACE: &[(u32, &str)] = &[
    (0, "PTRACE_TRACEME"),
    (16, "PTRACE_ATTACH"),
    (0x4206, "PTRACE_SEIZE"),
];

const SECCOMP: &[(u32, &str)] = &[
    (0, "SECCOMP_SET_MODE_STRICT"),
    (1, "SECCOMP_SET_MODE_FILTER"),
];

const FILTER_FLAGS: &[(u32, &str)] = &[
    (1, "SECCOMP_FILTER_FLAG_TSYNC"),
    (1 << 3, "SECCOMP_FILTER_FLAG_NEW_LISTENER"),
    (1 << 5, "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"),
];

/// The descriptor that means the caller's directory.
const AT_FDCWD: i32 = -100;

/// The first arguments of a call, as far as they say more than `...`; and their total number.
fn shown(name: &str) -> (&'static [ArgumentForm], usize) {
    use ArgumentForm::{Directory, Flags, Mode, Name, Number, Pointer, SocketType};
    match name {
        "socket" => (&[Name(FAMILIES), SocketType, Number], 3),
        "socketpair" => (&[Name(FAMILIES), SocketType, Number], 4),
        "unshare" => (&[Flags(NAMESPACES)], 1),
        "setns" => (&[Number, Flags(NAMESPACES)], 2),
        "clone" => (&[Flags(NAMESPACES)], 5),
        "ioctl" => (&[Number, Name(REQUESTS)], 3),
        "prctl" => (&[Name(OPTIONS)], 5),
        "ptrace" => (&[Name(TRACE), Number], 4),
        "seccomp" => (&[Name(SECCOMP), Flags(FILTER_FLAGS)], 3),
        "chmod" | "creat" => (&[Pointer, Mode], 2),
        "fchmod" => (&[Number, Mode], 2),
        "fchmodat" => (&[Directory, Pointer, Mode], 3),
        "fchmodat2" => (&[Directory, Pointer, Mode], 4),
        "mknod" => (&[Pointer, Mode], 3),
        "mknodat" => (&[Directory, Pointer, Mode], 4),
        "personality" => (&[Flags(&[])], 1),
        "bpf" | "keyctl" | "fanotify_init" | "process_vm_readv" | "process_vm_writev"
        | "pidfd_getfd" => (&[Number], 5),
        _ => (&[], 0),
    }
}

/// The words for a call of x86_64 that was denied with `errno`; numbers of other ABIs mean other calls.
pub fn words(call: &SyscallData, errno: u16, filter: &FilterWords) -> DenialWords {
    let known = match call.arch {
        ARCH_X86_64 => SyscallName::from_number(call.number),
        _ => None,
    };
    let name = known.map_or_else(
        || format!("call {} of architecture {:#x}", call.number, call.arch),
        |name| name.as_str().to_owned(),
    );
    let (shown, count) = shown(&name);
    let mut text: Vec<String> = shown
        .iter()
        .zip(call.args)
        // Every shown argument is an int or narrower.
        .map(|(shown, arg)| shown.word(arg as u32))
        .collect();
    if text.len() < count || count == 0 {
        text.push("...".to_owned());
    }
    let (why, hint) = reason(known, &call.args, filter);
    DenialWords {
        call: format!("{name}({})", text.join(", ")),
        name,
        errno: errno_name(errno).map_or_else(|| format!("errno {errno}"), str::to_owned),
        why,
        hint,
    }
}

/// Why a call is denied, and what would allow it.
fn reason(known: Option<SyscallName>, args: &[u64; 6], filter: &FilterWords) -> (String, Hint) {
    let set_id = filter.set_id.as_ref();
    let is_allowed = known.is_some_and(|name| filter.allowed.contains(&name));
    if let Some(name) = known
        && !is_allowed
        && let Some(why) = ours::denial(name, args)
    {
        let hint = match ours::is_a_debuggers(name) {
            true => Hint::DebugProfile,
            false => Hint::Words(
                "only a policy file of the node can, by syscalls.allow; the reason says what that gives up".to_owned(),
            ),
        };
        return (why.to_owned(), hint);
    }
    if let Some(name) = known
        && let Some(SetIdWords { why, hint }) = set_id
        && ours::denies_set_id(name, args)
    {
        let why =
            format!("it sets a file's set-user-ID or set-group-ID bit (privileges.set-id): {why}");
        return (why, Hint::Words(hint.clone()));
    }
    if let Some(name) = known
        && let Some(SetIdWords { why, hint }) = set_id
        && let Some(reason) = ours::denies_attributes(name)
    {
        let why = format!("{reason} (privileges.set-id): {why}");
        return (why, Hint::Words(hint.clone()));
    }
    if is_allowed {
        let why = "the engine's seccomp profile denies it; the policy allows it";
        return (why.to_owned(), Hint::Words(filter.without_profile.clone()));
    }
    // The policy and the engine's profile tell which one; the sidecar has neither.
    (
        "denied by syscalls.deny or syscalls.profile of the policy, or by the engine's seccomp profile"
            .to_owned(),
        Hint::Words("look at `agentbox explain --syscalls` for the policy, and at the engine's --security-opt seccomp".to_owned()),
    )
}

impl ArgumentForm {
    fn word(self, value: u32) -> String {
        match self {
            ArgumentForm::Number => value.to_string(),
            ArgumentForm::Name(names) => named(names, value),
            ArgumentForm::Flags(names) => flags(names, value),
            ArgumentForm::Directory if value as i32 == AT_FDCWD => "AT_FDCWD".to_owned(),
            ArgumentForm::Directory => (value as i32).to_string(),
            ArgumentForm::Mode => format!("0{:o}", value & 0xffff),
            ArgumentForm::Pointer => "...".to_owned(),
            ArgumentForm::SocketType => {
                let mut word = named(SOCKET_TYPES, value & 0xf);
                for (bit, name) in [(0o2_000_000, "SOCK_CLOEXEC"), (0o4_000, "SOCK_NONBLOCK")] {
                    if value & bit != 0 {
                        word.push('|');
                        word.push_str(name);
                    }
                }
                word
            }
        }
    }
}

fn named(names: &[(u32, &str)], value: u32) -> String {
    let found = names.iter().find(|(number, _)| *number == value);
    found.map_or_else(|| format!("{value:#x}"), |(_, name)| (*name).to_owned())
}

fn flags(names: &[(u32, &str)], value: u32) -> String {
    let (mut rest, mut word) = (value, String::new());
    for (bit, name) in names {
        if rest & bit != 0 {
            rest &= !bit;
            let _never = write!(word, "{}{name}", if word.is_empty() { "" } else { "|" });
        }
    }
    if rest != 0 || word.is_empty() {
        let _never = write!(word, "{}{rest:#x}", if word.is_empty() { "" } else { "|" });
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, args: [u64; 6]) -> DenialWords {
        let name: SyscallName = name.parse().unwrap();
        let call = SyscallData {
            number: name.number(),
            arch: ARCH_X86_64,
            args,
        };
        words(&call, 1, &off())
    }

    fn off() -> FilterWords {
        FilterWords {
            set_id: Some(SetIdWords {
                why: "because".to_owned(),
                hint: "do this".to_owned(),
            }),
            allowed: BTreeSet::from(["umount2".parse().unwrap(), "fsetxattr".parse().unwrap()]),
            without_profile: "start without it".to_owned(),
        }
    }

    /// The reason was the policy's, which no policy could mend.
    #[test]
    fn a_call_that_the_policy_allows_is_denied_by_the_engines_profile() {
        let unmount = of("umount2", [0; 6]);
        assert!(unmount.why.starts_with("the engine's"), "{}", unmount.why);
        assert_eq!(unmount.hint, Hint::Words("start without it".to_owned()));
        // But this wall stands beside the policy's list.
        let attribute = of("fsetxattr", [0; 6]);
        assert!(
            attribute.why.ends_with("(privileges.set-id): because"),
            "{}",
            attribute.why
        );
        let other = of("mount", [0; 6]);
        assert!(!other.why.starts_with("the engine's"), "{}", other.why);
    }

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        let packet = of("socket", [17 | 1 << 32, 3 | 0o2_000_000, 768, 0, 0, 0]);
        assert_eq!(packet.call, "socket(AF_PACKET, SOCK_RAW|SOCK_CLOEXEC, 768)");
        let user = of("unshare", [0x1002_0000, 0, 0, 0, 0, 0]);
        assert_eq!(user.call, "unshare(CLONE_NEWNS|CLONE_NEWUSER)");
        let clone = of("clone", [0x1000_0011, 7, 7, 7, 7, 0]);
        assert_eq!(clone.call, "clone(CLONE_NEWUSER|0x11, ...)");
        let typed = of("ioctl", [0, 0x5412 | 1 << 40, 0xdead, 0, 0, 0]);
        assert_eq!(typed.call, "ioctl(0, TIOCSTI, ...)");
    }

    #[test]
    fn a_mode_is_shown_and_the_path_before_it_is_not() {
        let here = u64::from(AT_FDCWD as u32);
        for (name, args, expected) in [
            (
                "chmod",
                [0x7fff_dead, 0o4755, 0, 0, 0, 0],
                "chmod(..., 04755)",
            ),
            ("fchmod", [3, 0o2755, 0, 0, 0, 0], "fchmod(3, 02755)"),
            (
                "fchmodat",
                [here, 0x7fff_dead, 0o4755, 9, 9, 9],
                "fchmodat(AT_FDCWD, ..., 04755)",
            ),
            (
                "fchmodat2",
                [7, 0x7fff_dead, 0o4755, 0, 0, 0],
                "fchmodat2(7, ..., 04755, ...)",
            ),
            (
                "mknodat",
                [here, 0x7fff_dead, 0o20_666, 5, 0, 0],
                "mknodat(AT_FDCWD, ..., 020666, ...)",
            ),
        ] {
            assert_eq!(of(name, args).call, expected);
        }
    }

    #[test]
    fn pointers_are_left_out() {
        let mount = of("mount", [0x7fff_dead_beef, 1, 2, 3, 4, 0]);
        assert_eq!(mount.call, "mount(...)");
        assert!(mount.why.contains("filesystem wall"), "{}", mount.why);
        assert_eq!(mount.errno, "EPERM");
    }

    #[test]
    fn a_call_that_the_base_allows_is_denied_elsewhere() {
        assert!(of("chmod", [0; 6]).why.contains("syscalls.deny"));
        // `paranoid` denies it, and so may a policy's list: the call alone does not tell which.
        let memory = of("memfd_create", [0; 6]);
        assert!(memory.why.contains("syscalls.deny"), "{}", memory.why);
        assert!(memory.why.contains("syscalls.profile"), "{}", memory.why);
        let inet = of("socket", [2, 1, 0, 0, 0, 0]);
        assert!(inet.why.contains("engine's seccomp profile"));
        let set_id = of("chmod", [0, 0o4755, 0, 0, 0, 0]);
        assert!(set_id.why.ends_with("(privileges.set-id): because"));
        assert_eq!(set_id.hint, Hint::Words("do this".to_owned()));
        // If such files can be made, there is another reason.
        let name: SyscallName = "chmod".parse().unwrap();
        let call = SyscallData {
            number: name.number(),
            arch: ARCH_X86_64,
            args: [0, 0o4755, 0, 0, 0, 0],
        };
        assert!(
            words(&call, 1, &FilterWords::default())
                .why
                .contains("syscalls.deny")
        );
    }

    /// Former fault: the hint said that no annotation can allow it. There were
    /// three answers.
    #[test]
    fn the_calls_of_debuggers_have_a_profile() {
        for name in ["ptrace", "process_vm_readv", "process_vm_writev"] {
            assert_eq!(of(name, [0; 6]).hint, Hint::DebugProfile, "{name}");
        }
        assert!(matches!(of("mount", [0; 6]).hint, Hint::Words(_)));
    }

    #[test]
    fn an_unknown_number_has_no_name() {
        let call = SyscallData {
            number: 165,
            arch: 0x4000_0003,
            args: [0; 6],
        };
        assert!(
            words(&call, 4095, &FilterWords::default())
                .call
                .starts_with("call 165 of")
        );
        assert_eq!(
            words(&call, 4095, &FilterWords::default()).errno,
            "errno 4095"
        );
    }
}
