//! The engine's seccomp profile, with the meaning of runc and libseccomp.
//!
//! References: `libcontainer/seccomp/seccomp_linux.go` and `patchbpf/enosys_linux.go` of runc, `src/db.c` and
//! `src/arch-x86.c` of libseccomp.

use std::borrow::Cow;

use oci_spec::runtime::{Arch, LinuxSeccomp, LinuxSeccompArg, LinuxSyscall};

use super::oci::{Abi, Agent, alternatives, flags, verdict};
use super::ours::X32_BIT;
use super::rule::{Case, Condition, ENOSYS, Op, Rule, SyscallVerdict, Width};
use super::{Note, SeccompError};
use crate::kernel::syscall::{NONE, is_elsewhere, row};

/// The calls behind i386's `socketcall` and their numbers there (`linux/net.h`); `send` and `recv` exist nowhere else.
const SOCKETCALL: [(&str, u64); 20] = [
    ("socket", 1),
    ("bind", 2),
    ("connect", 3),
    ("listen", 4),
    ("accept", 5),
    ("getsockname", 6),
    ("getpeername", 7),
    ("socketpair", 8),
    ("send", 9),
    ("recv", 10),
    ("sendto", 11),
    ("recvfrom", 12),
    ("shutdown", 13),
    ("setsockopt", 14),
    ("getsockopt", 15),
    ("sendmsg", 16),
    ("recvmsg", 17),
    ("accept4", 18),
    ("recvmmsg", 19),
    ("sendmmsg", 20),
];
/// The calls behind i386's `ipc` (`linux/ipc.h`).
const IPC: [(&str, u64); 12] = [
    ("semop", 1),
    ("semget", 2),
    ("semctl", 3),
    ("semtimedop", 4),
    ("msgsnd", 11),
    ("msgrcv", 12),
    ("msgget", 13),
    ("msgctl", 14),
    ("shmat", 21),
    ("shmdt", 22),
    ("shmget", 23),
    ("shmctl", 24),
];

/// The profile's rules for one call so far.
#[derive(Clone)]
enum Slot {
    Nothing,
    Always(SyscallVerdict),
    Cases(Vec<Case>),
}

/// The profile's rules for one ABI, by number.
struct Table {
    abi: Abi,
    slots: Vec<Slot>,
    /// The highest number in any rule.
    last: Option<u32>,
    /// Whether to keep the rules, or only `last`.
    keeps: TableKind,
}

/// Whether a table keeps its rules, or only its last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableKind {
    Rules,
    Last,
}

impl Table {
    fn new(abi: Abi, keeps: TableKind) -> Self {
        Table {
            abi,
            slots: Vec::new(),
            last: None,
            keeps,
        }
    }

    fn saw(&mut self, number: u16) {
        self.last = self.last.max(Some(u32::from(number)));
    }

    /// libseccomp's `_db_...rule_add`: the first unconditional rule of a call wins over all others of that call.
    fn add(&mut self, number: u16, when: Vec<Condition>, then: SyscallVerdict) {
        let index = usize::from(number);
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Slot::Nothing);
        }
        let slot = &mut self.slots[index];
        match (&mut *slot, when.is_empty()) {
            (Slot::Always(_), _) => {}
            (_, true) => *slot = Slot::Always(then),
            (Slot::Nothing, false) => {
                *slot = Slot::Cases(vec![Case {
                    when: Cow::Owned(when),
                    then,
                }])
            }
            (Slot::Cases(cases), false) => cases.push(Case {
                when: Cow::Owned(when),
                then,
            }),
        }
    }

    /// libseccomp leaves the order of overlapping conditional rules to its tree. Here the stricter rule comes first.
    fn finish(self, default: SyscallVerdict) -> CompiledTable {
        let rule = |slot| match slot {
            Slot::Nothing => Rule::always(default),
            Slot::Always(verdict) => Rule::always(verdict),
            Slot::Cases(mut cases) => {
                cases.sort_by(|a, b| {
                    match (
                        a.then.is_stricter_than(b.then),
                        b.then.is_stricter_than(a.then),
                    ) {
                        (true, _) => std::cmp::Ordering::Less,
                        (_, true) => std::cmp::Ordering::Greater,
                        _ => std::cmp::Ordering::Equal,
                    }
                });
                Rule {
                    cases: Cow::Owned(cases),
                    otherwise: default,
                }
            }
        };
        CompiledTable {
            rules: self.slots.into_iter().map(rule).collect(),
            last: self.last,
        }
    }
}

/// The compiled rules of one ABI.
struct CompiledTable {
    rules: Vec<Rule>,
    last: Option<u32>,
}

impl CompiledTable {
    fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)
    }

    fn is_beyond(&self, number: u32) -> bool {
        self.last.is_some_and(|last| number > last)
    }
}

/// The ABIs that a compiled profile must cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Under a policy: others are killed anyway.
    NativeOnly,
    /// Unconfined: all ABIs in the profile.
    Listed,
}

/// An engine's profile, by number.
pub(super) struct Profile {
    native: CompiledTable,
    i386: Option<CompiledTable>,
    x32: Option<CompiledTable>,
    default: Rule,
    enosys: Rule,
    bad_arch: Rule,
    /// Whether calls beyond the last known one get ENOSYS.
    has_stub: bool,
    /// Whether a rule needs the engine's agent.
    pub(super) agent: Agent,
    /// seccomp(2)'s flags.
    pub(super) flags: u64,
    pub(super) notes: Vec<Note>,
}

impl Profile {
    pub(super) fn new(seccomp: &LinuxSeccomp, scope: Scope) -> Result<Self, SeccompError> {
        let default = verdict(seccomp.default_action(), seccomp.default_errno_ret());
        if matches!(default, SyscallVerdict::Notify(_)) {
            // As runc: even the program could not be executed.
            return Err(SeccompError::NotifyByDefault);
        }
        let mut reader = Reader::new(seccomp, scope, default);
        for syscall in seccomp.syscalls().iter().flatten() {
            reader.read(syscall)?;
        }
        let flags = flags(seccomp, scope, reader.agent)?;
        let Reader {
            native,
            i386,
            x32,
            agent,
            notes,
            ..
        } = reader;
        // runc's patchbpf: programs probe new calls, and expect ENOSYS, not EPERM, from a kernel without them.
        let has_stub = !matches!(
            default,
            SyscallVerdict::Allow | SyscallVerdict::Log | SyscallVerdict::Trace(_)
        );
        Ok(Profile {
            native: native.finish(default),
            i386: i386.map(|table| table.finish(default)),
            x32: x32.map(|table| table.finish(default)),
            default: Rule::always(default),
            enosys: Rule::always(ENOSYS),
            // SCMP_FLTATR_ACT_BADARCH
            bad_arch: Rule::always(SyscallVerdict::KillThread),
            has_stub,
            agent,
            flags,
            notes,
        })
    }

    /// The profile's rule for a number of the x86_64 entry, x32 calls included.
    pub(super) fn rule(&self, number: u32) -> &Rule {
        let plain = number & !X32_BIT;
        let beyond = match (number & X32_BIT == 0, &self.x32) {
            (true, _) => self.native.is_beyond(number),
            (false, Some(x32)) => x32.is_beyond(plain),
            (false, None) => false,
        };
        if self.has_stub && beyond {
            return &self.enosys;
        }
        if number < X32_BIT {
            return self.native.rule(number).unwrap_or(&self.default);
        }
        match &self.x32 {
            Some(x32) if plain < X32_BIT && number == plain | X32_BIT => {
                x32.rule(plain).unwrap_or(&self.default)
            }
            Some(_) => &self.default,
            // libseccomp applies the default to -1: tracers write it to skip a call.
            None if number == u32::MAX => &self.default,
            None => &self.bad_arch,
        }
    }

    /// Its rule for a number of int 0x80; `None` if the profile does not list that architecture.
    pub(super) fn i386_rule(&self, number: u32) -> Option<&Rule> {
        let i386 = self.i386.as_ref()?;
        if self.has_stub && i386.is_beyond(number) {
            return Some(&self.enosys);
        }
        Some(i386.rule(number).unwrap_or(&self.default))
    }

    /// Its rule for any other architecture.
    pub(super) fn foreign_rule(&self) -> &Rule {
        &self.bad_arch
    }
}

struct Reader {
    default: SyscallVerdict,
    native: Table,
    i386: Option<Table>,
    x32: Option<Table>,
    agent: Agent,
    notes: Vec<Note>,
}

impl Reader {
    fn new(seccomp: &LinuxSeccomp, scope: Scope, default: SyscallVerdict) -> Self {
        let lists = |arch| {
            seccomp
                .architectures()
                .as_ref()
                .is_some_and(|list| list.contains(&arch))
        };
        // Under a policy every x32 call is killed, but listing x32 also changes the rules for numbers above its bit.
        let (has_i386, x32) = match scope {
            Scope::Listed => (lists(Arch::ScmpArchX86), TableKind::Rules),
            Scope::NativeOnly => (false, TableKind::Last),
        };
        Reader {
            default,
            native: Table::new(Abi::X86_64, TableKind::Rules),
            i386: has_i386.then(|| Table::new(Abi::I386, TableKind::Rules)),
            x32: lists(Arch::ScmpArchX32).then(|| Table::new(Abi::X32, x32)),
            agent: Agent::Unused,
            notes: Vec::new(),
        }
    }

    fn read(&mut self, syscall: &LinuxSyscall) -> Result<(), SeccompError> {
        let then = verdict(syscall.action(), syscall.errno_ret());
        let args = syscall.args().as_deref().unwrap_or_default();
        if then != self.default && matches!(then, SyscallVerdict::Notify(_)) {
            self.agent = Agent::Asked;
        }
        for name in syscall.names() {
            if name == "write" && matches!(then, SyscallVerdict::Notify(_)) {
                // As runc: the listener is announced with write(2), which would then wait for the listener.
                return Err(SeccompError::NotifyOnWrite);
            }
            self.name(name, args, then)?;
        }
        Ok(())
    }

    fn name(
        &mut self,
        name: &str,
        args: &[LinuxSeccompArg],
        then: SyscallVerdict,
    ) -> Result<(), SeccompError> {
        // As runc: libseccomp refuses a rule that equals the default, so there are no such rules.
        let is_redundant = then == self.default;
        let row = row(name);
        if row.is_none() && !is_elsewhere(name) {
            // Skipping an allow only denies more; skipping a deny would leave a door open.
            if then.is_stricter_than(self.default) {
                return Err(SeccompError::UnknownDeny {
                    name: name.to_owned(),
                });
            }
            self.notes.push(Note::UnknownName(name.to_owned()));
            return Ok(());
        }
        let (native, i386, x32) =
            row.map_or((NONE, NONE, NONE), |row| (row.x86_64, row.i386, row.x32));
        let tables = [
            (Some(&mut self.native), native),
            (self.i386.as_mut(), i386),
            (self.x32.as_mut(), x32),
        ];
        for (table, number) in tables {
            let Some(table) = table.filter(|_| number != NONE) else {
                continue;
            };
            table.saw(number);
            if is_redundant || table.keeps == TableKind::Last {
                continue;
            }
            if args.is_empty() {
                table.add(number, Vec::new(), then);
            } else {
                for when in alternatives(name, args, table.abi)? {
                    table.add(number, when, then);
                }
            }
        }
        match self.i386.as_mut() {
            Some(table) if !is_redundant => multiplexed(table, name, args, then),
            _ => Ok(()),
        }
    }
}

/// On i386 a socket or IPC call is also reachable through a multiplexer, whose first argument selects it. As in
/// libseccomp, that replaces the rule's own first argument, and the others stay.
fn multiplexed(
    table: &mut Table,
    name: &str,
    args: &[LinuxSeccompArg],
    then: SyscallVerdict,
) -> Result<(), SeccompError> {
    for (multiplexer, calls) in [("socketcall", &SOCKETCALL[..]), ("ipc", &IPC[..])] {
        let Some((_, call)) = calls.iter().find(|(call, _)| *call == name) else {
            continue;
        };
        let number = row(multiplexer).map(|row| row.i386).expect("i386 has both");
        table.saw(number);
        let first = Condition {
            arg: 0,
            width: Width::Int,
            op: Op::Eq,
            value: *call,
        };
        for mut when in alternatives(name, args, table.abi)? {
            when.retain(|condition| condition.arg != 0);
            when.insert(0, first);
            table.add(number, when, then);
        }
    }
    Ok(())
}
