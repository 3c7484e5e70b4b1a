//! The syscall wall: our allowlist and the engine's profile, compiled to one BPF program.
//!
//! Input: a policy's rules ([`Ours`]) and the engine's profile in its spec ([`LinuxSeccomp`]). Output: a [`Filter`].
//! Nothing here touches the kernel: `crate::sys::seccomp::load` does.
//!
//! Why one program: each of two stacked filters would run on every call, and only one of them may have a listener. In one
//! program the stricter verdict wins, and ours names the errno where both deny (docs/design.md).
//!
//! Why our own compiler: seccompiler has one match action per filter, no NOTIFY, no i386, no x32 check, and its chain is
//! linear (1,513 instructions for Docker's profile). It is the reference for the meaning of our rules in the tests.

#[rustfmt::skip]
mod base;
mod graph;
mod interp;
mod layout;
#[rustfmt::skip]
mod more;
mod numbers;
mod oci;
mod ours;
mod profile;
mod program;
mod rule;
mod saved;
mod table;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use oci_spec::runtime::LinuxSeccomp;

use graph::{Denials, Graph};
use interp::{ARCH, NUMBER};
use numbers::ROWS;
use oci::{Agent, NEW_LISTENER, WAIT_KILLABLE_RECV};
use ours::{OurRules, X32_BIT};
use profile::{Profile, Scope};
use program::JUMP_EQ;

pub use interp::{ARCH_I386, ARCH_X86_64, Call, outcomes, run};
pub use ours::{denies_attributes, reason, sets_modes};
pub use program::{Instruction, MAX_INSTRUCTIONS, Program, ProgramError};
pub use rule::Verdict;
pub use saved::SavedFilter;
pub use table::{SyscallName, SyscallNameError, is_known};
pub use words::{Hint, SetIdWords, Words, words};

/// What a policy asks of the syscall wall.
#[derive(Debug, Clone, Copy)]
pub struct Ours<'a> {
    /// Calls that the base denies or checks, allowed whatever their arguments, as far as the engine's profile allows them.
    pub allow: &'a BTreeSet<SyscallName>,
    /// Calls denied whatever else allows them.
    pub deny: &'a BTreeSet<SyscallName>,
    /// Whether files may be made set-user-ID or set-group-ID.
    pub set_id: bool,
    /// Whether extended attributes may be set.
    pub attributes: bool,
    /// Which set of rules stands on the base.
    pub profile: CallProfile,
    /// Whether there are devices of the node's choice, whose drivers have ioctls of their own.
    pub devices: bool,
    /// How denials are answered.
    pub denials: DenyMode,
}

/// What stands on the base rules: policies/syscalls/paranoid.toml or debug.toml. From least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallProfile {
    /// Requests and options by short lists, no memory that is written and then executed.
    Paranoid,
    /// The base rules alone.
    Agent,
    /// The calls of debuggers too.
    Debug,
}

/// How a denied call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenyMode {
    /// By the kernel, with the errno.
    Errno,
    /// By the sidecar, which holds the filter's listener: it logs the call and answers the errno in [`Verdict::Notify`].
    /// Errnos that only say that the kernel lacks something ([`rule::PLAIN`]) are answered by the kernel all the same, but for the
    /// calls that base.toml has as `logged`.
    Notify,
}

/// What goes into a filter.
#[derive(Debug, Clone, Copy)]
pub struct FilterInput<'a> {
    /// The policy's side; `None` is `unconfined`.
    pub ours: Option<Ours<'a>>,
    /// The engine's side; `None` where the spec has no profile, as for privileged containers.
    pub engine: Option<&'a LinuxSeccomp>,
}

/// A compiled filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// What the kernel runs.
    pub program: Program,
    /// seccomp(2)'s flags; with `SECCOMP_FILTER_FLAG_NEW_LISTENER` the load returns a descriptor.
    pub flags: u64,
    /// Who gets that descriptor.
    pub listener: Listener,
    /// What a person should know about it.
    pub notes: Vec<Note>,
}

/// Who answers the calls that a filter leaves to somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// It leaves none.
    Nobody,
    /// The agent that the engine's profile names.
    Agent,
    /// The container's sidecar, which only ever denies.
    Sidecar,
}

/// Something that `explain` has to say about a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The engine's profile has a listener of its own, and a filter has only one: our denials are answered by the kernel, and
    /// not logged.
    EngineNotifies,
    /// The engine's profile denies or checks this call, by which a process gives its listener away: as above.
    HandOverDenied(SyscallName),
    /// The engine's profile allows a call that Linux 6.18 does not have; it stays denied.
    UnknownName(String),
}

/// Why there is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeccompError {
    /// A policy denies what every start needs.
    #[error(
        "system call {name} cannot be denied: without it the runtime cannot start the program behind the filter"
    )]
    DeniesRuntime {
        /// the call
        name: SyscallName,
    },
    /// The engine's profile denies a call that is not known, so it cannot be denied.
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
    /// The rules are too many for one program.
    #[error("the seccomp rules do not fit")]
    Program(#[from] ProgramError),
}

/// Compiles both sides to one filter; `None` where neither side asks for one.
pub fn compile(input: &FilterInput<'_>) -> Result<Option<Filter>, SeccompError> {
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
    let sides = Sides { rules, profile };
    let wanted = ours.is_some_and(|ours| ours.denials == DenyMode::Notify);
    if wanted && agent == Agent::Unused {
        let program = sides.program(Denials::Notify)?;
        match not_always_allowed(&program) {
            None => {
                return Ok(Some(Filter {
                    program,
                    flags: flags | NEW_LISTENER | WAIT_KILLABLE_RECV,
                    listener: Listener::Sidecar,
                    notes,
                }));
            }
            Some(name) => notes.push(Note::HandOverDenied(name)),
        }
    } else if wanted {
        notes.push(Note::EngineNotifies);
    }
    Ok(Some(Filter {
        program: sides.program(Denials::Errno)?,
        flags,
        listener: match agent {
            Agent::Asked => Listener::Agent,
            Agent::Unused => Listener::Nobody,
        },
        notes,
    }))
}

/// What a process calls between loading its filter and having given the listener away: nobody would answer it.
const HAND_OVER: [&str; 4] = ["sendmsg", "close", "fcntl", "read"];
/// What a kernel says of a request that it does not know.
const EINVAL: u16 = 22;
/// The only request of fcntl(2) among them, by which debug builds see that a descriptor is open.
const F_GETFD: u64 = 1;

/// The first of those that the program may leave to somebody else.
fn not_always_allowed(program: &Program) -> Option<SyscallName> {
    let names = HAND_OVER.iter().filter_map(|name| name.parse().ok());
    let lets = |verdict: &Verdict| matches!(verdict, Verdict::Allow | Verdict::Log);
    names.into_iter().find(|name: &SyscallName| {
        let outcomes = outcomes(program, ARCH_X86_64, name.number());
        // `paranoid` lists the requests of fcntl, and the kernel itself answers the others.
        let made = Call {
            number: name.number(),
            arch: ARCH_X86_64,
            args: [0, F_GETFD, 0, 0, 0, 0],
        };
        let is_plain = |verdict: &Verdict| *verdict == Verdict::Errno(EINVAL);
        let is_listed = name.as_str() == "fcntl" && lets(&run(program, &made));
        !outcomes
            .iter()
            .all(|verdict| lets(verdict) || is_listed && is_plain(verdict))
    })
}

/// What is compiled, at least one of both.
struct Sides {
    rules: Option<OurRules>,
    profile: Option<Profile>,
}

impl Sides {
    fn program(&self, denials: Denials) -> Result<Program, ProgramError> {
        let mut graph = Graph::default();
        let native = self.native(&mut graph, denials);
        // Under a policy a foreign architecture kills the process: int 0x80 is how filters for x86_64 are walked around.
        let mut other = match (&self.rules, &self.profile) {
            (None, Some(profile)) => graph.rules(&[profile.foreign_rule()], denials),
            _ => graph.ret(Verdict::KillProcess),
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
        for number in edges(|row| row.1)
            .chain(edges(|row| row.3).map(|number| number | X32_BIT))
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
                [] => graph.ret(Verdict::KillProcess),
                rules => graph.rules(rules, denials),
            };
            ranges.push(number, id);
        }
        ranges.search(graph)
    }

    fn i386(&self, graph: &mut Graph, profile: &Profile, denials: Denials) -> Option<graph::Id> {
        let mut ranges = Ranges::default();
        for number in edges(|row| row.2) {
            ranges.push(number, graph.rules(&[profile.i386_rule(number)?], denials));
        }
        Some(ranges.search(graph))
    }
}

/// Numbers at which a high bit changes what a number means; -1 is a range of its own.
const BITS: [u32; 3] = [0x8000_0000, 0xc000_0000, u32::MAX];

/// Every number up to one past the last known: between two of these nothing can change.
fn edges(column: impl Fn(&numbers::Row) -> u16) -> impl Iterator<Item = u32> {
    let last = ROWS
        .iter()
        .map(column)
        .filter(|number| *number != numbers::NONE)
        .max();
    0..=last.map_or(0, |last| u32::from(last) + 1)
}

/// Ranges of numbers with what is done in them, in ascending order.
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

/// What a filter does, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Length of the program.
    pub instructions: usize,
    /// x86_64 calls that always happen.
    pub allowed: usize,
    /// x86_64 calls of which the arguments decide.
    pub checked: BTreeSet<SyscallName>,
    /// x86_64 calls that never happen, by how they end.
    pub denied: BTreeMap<Verdict, usize>,
}

impl Filter {
    /// What the filter says of a call.
    pub fn verdict(&self, call: &Call) -> Verdict {
        run(&self.program, call)
    }

    /// Counts for `explain`.
    pub fn describe(&self) -> Summary {
        let instructions = self.program.instructions().len();
        let mut summary = Summary {
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
