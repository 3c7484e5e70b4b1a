//! The syscall wall: our allowlist and the engine's profile, compiled to one BPF program.
//!
//! Input: a policy's rules ([`FilterPolicy`]) and the profile in the engine's spec ([`LinuxSeccomp`]). Output: a
//! [`SyscallFilter`]. Nothing here calls the kernel: `crate::sys::seccomp::load` does.
//!
//! Why one program: two stacked filters would both run on every call, and only one of them may have a listener. In one
//! program the stricter verdict wins, and ours names the errno if both deny (docs/design.md).
//!
//! Why our own compiler: seccompiler has one match action per filter, no NOTIFY, no i386 and no x32 check, and its
//! chain is linear (1,513 instructions for Docker's profile). Tests use it as the reference for our rules.

mod graph;
mod interp;
mod layout;
mod oci;
mod ours;
mod profile;
mod program;
mod rule;
mod saved;
mod tables;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use oci_spec::runtime::LinuxSeccomp;

use crate::kernel::syscall::{NONE, ROWS, SyscallName, SyscallRow};
use crate::policy::SyscallProfile;
use graph::{Denials, Graph};
use interp::{ARCH, NUMBER};
use oci::{Agent, NEW_LISTENER, WAIT_KILLABLE_RECV};
use ours::{OurRules, X32_BIT};
use profile::{Profile, Scope};
use program::JUMP_EQ;

pub use interp::{ARCH_I386, ARCH_X86_64, SyscallData, outcomes, run};
pub use ours::{denies_attributes, profile_reason, reason, sets_modes};
pub use program::{FilterProgram, Instruction, MAX_INSTRUCTIONS, ProgramError};
pub use rule::SyscallVerdict;
pub use saved::SavedFilter;
pub use words::{DenialWords, FilterWords, Hint, SetIdWords, words};

/// The policy's part of the syscall wall.
#[derive(Debug, Clone, Copy)]
pub struct FilterPolicy<'a> {
    /// Calls that the base denies or checks, and that are allowed with any arguments, unless the engine's profile
    /// denies them.
    pub allow: &'a BTreeSet<SyscallName>,
    /// Calls that are always denied.
    pub deny: &'a BTreeSet<SyscallName>,
    /// Whether files may be made set-user-ID or set-group-ID.
    pub set_id: bool,
    /// Whether extended attributes may be set.
    pub attributes: bool,
    /// The set of rules in addition to the base.
    pub profile: SyscallProfile,
    /// Whether the node grants devices, whose drivers have ioctls of their own.
    pub devices: bool,
    /// How denials are answered.
    pub denials: DenyMode,
}

/// How a denied call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenyMode {
    /// By the kernel, with the errno.
    Errno,
    /// By the sidecar, which holds the filter's listener: it logs the call and returns the errno in
    /// [`SyscallVerdict::Notify`]. For errnos that only mean a missing feature ([`rule::PLAIN`]) the kernel answers all
    /// the same, except for calls that base.toml marks as `logged`.
    Notify,
}

/// The sources of a filter.
#[derive(Debug, Clone, Copy)]
pub struct FilterInput<'a> {
    /// The policy's side; `None` is `unconfined`.
    pub ours: Option<FilterPolicy<'a>>,
    /// The engine's side; `None` if the spec has no profile, as for privileged containers.
    pub engine: Option<&'a LinuxSeccomp>,
}

/// A compiled filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallFilter {
    /// The program for the kernel.
    pub program: FilterProgram,
    /// seccomp(2)'s flags; with `SECCOMP_FILTER_FLAG_NEW_LISTENER` the load returns a descriptor.
    pub flags: u64,
    /// Who gets this descriptor.
    pub listener: NotifyListener,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

/// Who answers the calls of SECCOMP_RET_USER_NOTIF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyListener {
    /// The filter has no listener.
    Nobody,
    /// The agent of the engine's profile.
    Agent,
    /// The container's sidecar, which always denies.
    Sidecar,
}

/// A note of `explain` about a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The engine's profile has a listener, and a filter can have only one: the kernel answers our denials, and they
    /// are not logged.
    EngineNotifies,
    /// The engine's profile denies or checks this call, which sends the listener away: with the same result.
    HandOverDenied(SyscallName),
    /// The engine's profile allows a call that is unknown in Linux 6.18; it stays denied.
    UnknownName(String),
}

/// Why a filter cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeccompError {
    /// The policy denies a call that every start needs.
    #[error(
        "system call {name} cannot be denied: without it the runtime cannot start the program behind the filter"
    )]
    DeniesRuntime {
        /// the call
        name: SyscallName,
    },
    /// The engine's profile denies an unknown call, which cannot be denied.
    #[error("the seccomp profile denies {name:?}, which is not a system call of Linux 6.18")]
    UnknownDeny {
        /// as the profile spells it
        name: String,
    },
    /// A system call has six arguments.
    #[error(
        "the seccomp profile's rule for {name:?} checks argument {index}, but the last one is 5"
    )]
    ArgumentIndex {
        /// the call
        name: String,
        /// counted from 0
        index: usize,
    },
    /// As runc.
    #[error("SCMP_ACT_NOTIFY cannot be used as default action")]
    NotifyByDefault,
    /// As runc.
    #[error("SCMP_ACT_NOTIFY cannot be used for the write syscall")]
    NotifyOnWrite,
    /// The kernel refuses the flag without a listener.
    #[error("SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV needs a rule with SCMP_ACT_NOTIFY")]
    NothingToWaitFor,
    /// The rules do not fit into one program.
    #[error("the seccomp rules do not fit")]
    Program(#[from] ProgramError),
}

/// Compiles both sides to one filter; `None` if there is none.
pub fn compile(input: &FilterInput<'_>) -> Result<Option<SyscallFilter>, SeccompError> {
    let FilterInput { ours, engine } = *input;
    let scope = if ours.is_some() {
        Scope::NativeOnly
    } else {
        Scope::Listed
    };
    let profile = engine
        .map(|engine| Profile::new(engine, scope))
        .transpose()?;
    let rules = ours.map(|ours| OurRules::new(&ours)).transpose()?;
    let (flags, mut notes, agent) = profile
        .as_ref()
        .map_or((0, Vec::new(), Agent::Unused), |p| {
            (p.flags, p.notes.clone(), p.agent)
        });
    if rules.is_none() && profile.is_none() {
        return Ok(None);
    }
    let sides = FilterSources { rules, profile };
    let wanted = ours.is_some_and(|ours| ours.denials == DenyMode::Notify);
    if wanted && agent == Agent::Unused {
        let program = sides.program(Denials::Notify)?;
        match not_always_allowed(&program) {
            None => {
                return Ok(Some(SyscallFilter {
                    program,
                    flags: flags | NEW_LISTENER | WAIT_KILLABLE_RECV,
                    listener: NotifyListener::Sidecar,
                    notes,
                }));
            }
            Some(name) => notes.push(Note::HandOverDenied(name)),
        }
    } else if wanted {
        notes.push(Note::EngineNotifies);
    }
    Ok(Some(SyscallFilter {
        program: sides.program(Denials::Errno)?,
        flags,
        listener: match agent {
            Agent::Asked => NotifyListener::Agent,
            Agent::Unused => NotifyListener::Nobody,
        },
        notes,
    }))
}

/// Calls between loading a filter and sending its listener away, when no process could answer them.
const HAND_OVER: [&str; 4] = ["sendmsg", "close", "fcntl", "read"];
/// The kernel's errno for an unknown request.
const EINVAL: u16 = 22;
/// The only fcntl(2) request among them: debug builds check with it that a descriptor is open.
const F_GETFD: u64 = 1;

/// The first of these calls that the program does not always allow.
fn not_always_allowed(program: &FilterProgram) -> Option<SyscallName> {
    let names = HAND_OVER.iter().filter_map(|name| name.parse().ok());
    let lets =
        |verdict: &SyscallVerdict| matches!(verdict, SyscallVerdict::Allow | SyscallVerdict::Log);
    names.into_iter().find(|name: &SyscallName| {
        let outcomes = outcomes(program, ARCH_X86_64, name.number());
        // `paranoid` lists fcntl's requests, and the kernel itself answers others.
        let made = SyscallData {
            number: name.number(),
            arch: ARCH_X86_64,
            args: [0, F_GETFD, 0, 0, 0, 0],
        };
        let is_plain = |verdict: &SyscallVerdict| *verdict == SyscallVerdict::Errno(EINVAL);
        let is_listed = name.as_str() == "fcntl" && lets(&run(program, &made));
        !outcomes
            .iter()
            .all(|verdict| lets(verdict) || is_listed && is_plain(verdict))
    })
}

/// The rules to compile: the policy's, the engine's profile, or both.
struct FilterSources {
    rules: Option<OurRules>,
    profile: Option<Profile>,
}

impl FilterSources {
    fn program(&self, denials: Denials) -> Result<FilterProgram, ProgramError> {
        let mut graph = Graph::default();
        let native = self.native(&mut graph, denials);
        // Under a policy a foreign architecture kills the process: int 0x80 is a way around filters for x86_64.
        let mut other = match (&self.rules, &self.profile) {
            (None, Some(profile)) => graph.rules(&[profile.foreign_rule()], denials),
            _ => graph.ret(SyscallVerdict::KillProcess),
        };
        let theirs = self.profile.as_ref().filter(|_| self.rules.is_none());
        if let Some(i386) = theirs.and_then(|profile| self.i386(&mut graph, profile, denials)) {
            other = graph.test(JUMP_EQ, ARCH_I386, i386, other);
        }
        let by_arch = graph.test(JUMP_EQ, ARCH_X86_64, native, other);
        let root = graph.load(ARCH, by_arch);
        graph.assemble(root)
    }

    fn native(&self, graph: &mut Graph, denials: Denials) -> graph::Id {
        let mut ranges = Ranges::default();
        let mut all = Vec::with_capacity(3);
        for number in edges(|row| row.x86_64)
            .chain(edges(|row| row.x32).map(|number| number | X32_BIT))
            .chain(BITS)
        {
            // Ours first: the first names the errno.
            all.clear();
            if let Some(ours) = &self.rules {
                all.push(ours.rule(number));
                all.extend(ours.besides(number));
            }
            all.extend(self.profile.as_ref().map(|theirs| theirs.rule(number)));
            let denials = match denials {
                Denials::Notify if self.rules.is_some() && ours::is_logged(number) => {
                    Denials::NotifyAll
                }
                same => same,
            };
            let id = match all.as_slice() {
                [] => graph.ret(SyscallVerdict::KillProcess),
                rules => graph.rules(rules, denials),
            };
            ranges.push(number, id);
        }
        ranges.search(graph)
    }

    fn i386(&self, graph: &mut Graph, profile: &Profile, denials: Denials) -> Option<graph::Id> {
        let mut ranges = Ranges::default();
        for number in edges(|row| row.i386) {
            ranges.push(number, graph.rules(&[profile.i386_rule(number)?], denials));
        }
        Some(ranges.search(graph))
    }
}

/// Numbers at which a high bit changes the meaning; -1 is its own range.
const BITS: [u32; 3] = [0x8000_0000, 0xc000_0000, u32::MAX];

/// Every number up to one past the last known one: verdicts change only at these.
fn edges(column: impl Fn(&SyscallRow) -> u16) -> impl Iterator<Item = u32> {
    let last = ROWS
        .iter()
        .map(column)
        .filter(|number| *number != NONE)
        .max();
    0..=last.map_or(0, |last| u32::from(last) + 1)
}

/// Ranges of numbers and their nodes, in ascending order.
#[derive(Default)]
struct Ranges(Vec<(u32, graph::Id)>);

impl Ranges {
    fn push(&mut self, start: u32, id: graph::Id) {
        if self.0.last().is_none_or(|(_, last)| *last != id) {
            self.0.push((start, id));
        }
    }

    fn search(self, graph: &mut Graph) -> graph::Id {
        let found = graph.search(&self.0);
        graph.load(NUMBER, found)
    }
}

/// Counts of a filter's verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterSummary {
    /// Length of the program.
    pub instructions: usize,
    /// x86_64 calls that are always allowed.
    pub allowed: usize,
    /// x86_64 calls whose arguments decide.
    pub checked: BTreeSet<SyscallName>,
    /// x86_64 calls that are always denied, by verdict.
    pub denied: BTreeMap<SyscallVerdict, usize>,
}

impl SyscallFilter {
    /// The filter's verdict about a call.
    pub fn verdict(&self, call: &SyscallData) -> SyscallVerdict {
        run(&self.program, call)
    }

    /// Counts for `explain`.
    pub fn describe(&self) -> FilterSummary {
        let instructions = self.program.instructions().len();
        let mut summary = FilterSummary {
            instructions,
            allowed: 0,
            checked: BTreeSet::new(),
            denied: BTreeMap::new(),
        };
        for name in SyscallName::all() {
            let outcomes = outcomes(&self.program, ARCH_X86_64, name.number());
            match outcomes.first() {
                Some(verdict) if outcomes.len() == 1 && verdict.is_denial() => {
                    *summary.denied.entry(*verdict).or_default() += 1;
                }
                Some(_) if outcomes.len() == 1 => summary.allowed += 1,
                _ => {
                    summary.checked.insert(name);
                }
            }
        }
        summary
    }
}
