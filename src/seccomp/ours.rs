//! Our side of the wall: the base rules, and a policy's additions and removals.

use super::FilterPolicy;
use super::SeccompError;
use super::rule::{ENOSYS, EPERM, Rule, SyscallVerdict};
use super::tables::{
    ATTRIBUTES, BASE, BaseRule, DEBUG, DEVICES, ExtraRule, LOGGED, PARANOID, REASONS, SET_ID,
};
use crate::kernel::SyscallName;
use crate::policy::SyscallProfile;

/// `__X32_SYSCALL_BIT`
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// Calls that the runtime needs to hand the container over: it still has to execute the program behind the filter, send
/// the filter's listener away, and report errors.
const REQUIRED: [&str; 9] = [
    "close",
    "execve",
    "exit",
    "exit_group",
    "fcntl",
    "read",
    "rt_sigreturn",
    "sendmsg",
    "write",
];

/// Our rules for x86_64, by number.
pub(super) struct OurRules {
    by_number: Vec<Rule>,
    /// Additional rules; the stricter verdict counts. No call is in two of them.
    besides: [&'static [ExtraRule]; 2],
    unknown: Rule,
    x32: Rule,
}

impl OurRules {
    pub(super) fn new(ours: &FilterPolicy<'_>) -> Result<Self, SeccompError> {
        let FilterPolicy {
            allow,
            deny,
            set_id,
            attributes,
            profile,
            devices,
            denials: _,
        } = *ours;
        let end = BASE.last().map_or(0, |base| usize::from(base.number) + 1);
        let mut by_number = vec![Rule::always(ENOSYS); end];
        for base in BASE {
            by_number[usize::from(base.number)] = base.rule.clone();
        }
        for more in DEVICES.iter().filter(|_| devices) {
            by_number[usize::from(more.number)] = more.rule.clone();
        }
        // After the devices' rules: this profile does not list their drivers' requests.
        for more in rules_of(profile) {
            by_number[usize::from(more.number)] = more.rule.clone();
        }
        for name in allow {
            by_number[name.number() as usize] = Rule::always(SyscallVerdict::Allow);
        }
        // After the allowed ones: a denied call stays denied, whatever else allows it.
        for name in deny {
            if REQUIRED.contains(&name.as_str()) {
                return Err(SeccompError::DeniesRuntime { name: *name });
            }
            by_number[name.number() as usize] = denied(*name);
        }
        Ok(OurRules {
            by_number,
            besides: [
                if set_id { &[] } else { SET_ID },
                if attributes { &[] } else { ATTRIBUTES },
            ],
            unknown: Rule::always(ENOSYS),
            x32: Rule::always(SyscallVerdict::KillProcess),
        })
    }

    /// The additional rule for a number, beside [`Self::rule`].
    pub(super) fn besides(&self, number: u32) -> Option<&Rule> {
        self.besides.iter().find_map(|list| {
            let found = list.binary_search_by_key(&number, |more| u32::from(more.number));
            found.ok().map(|index| &list[index].rule)
        })
    }

    /// Our rule for a number. x32 calls kill: ordinary programs make none, and they are the same calls under numbers
    /// that filters forget. -1 has that bit too but is no call of any ABI, so the kernel answers it.
    pub(super) fn rule(&self, number: u32) -> &Rule {
        if number & X32_BIT != 0 && number != u32::MAX {
            return &self.x32;
        }
        usize::try_from(number)
            .ok()
            .and_then(|index| self.by_number.get(index))
            .unwrap_or(&self.unknown)
    }
}

/// Whether a denial of this call is logged even if its errno only means a missing feature.
pub(super) fn is_logged(number: u32) -> bool {
    u16::try_from(number).is_ok_and(|number| LOGGED.binary_search(&number).is_ok())
}

/// The verdict for a policy's `deny`: the base's own errno if the base always denies the call, else EPERM.
fn denied(name: SyscallName) -> Rule {
    match base(name) {
        BaseRule { rule, .. } if rule.cases.is_empty() && rule.otherwise.is_denial() => {
            rule.clone()
        }
        _ => Rule::always(EPERM),
    }
}

fn base(name: SyscallName) -> &'static BaseRule {
    let number = name.number();
    let index = BASE.binary_search_by_key(&number, |base| u32::from(base.number));
    &BASE[index.expect("a test holds that every name has a rule")]
}

/// The rules of policies/syscalls/paranoid.toml or debug.toml.
fn rules_of(profile: SyscallProfile) -> &'static [ExtraRule] {
    match profile {
        SyscallProfile::Paranoid => PARANOID,
        SyscallProfile::Agent => &[],
        SyscallProfile::Debug => DEBUG,
    }
}

/// Why policies/syscalls/attributes.toml denies a call, if it does.
pub fn denies_attributes(name: SyscallName) -> Option<&'static str> {
    let number = name.number();
    let mut rules = ATTRIBUTES.iter();
    let rule = rules.find(|more| u32::from(more.number) == number);
    rule.map(|more| more.reason)
}

/// Why this profile treats a call differently than the base rules, in its file's words.
pub fn profile_reason(profile: SyscallProfile, name: SyscallName) -> Option<&'static str> {
    let number = name.number();
    let mut rules = rules_of(profile).iter();
    let rule = rules.find(|more| u32::from(more.number) == number);
    rule.map(|more| more.reason)
}

/// Whether policies/syscalls/set-id.toml has a rule for a call, because it sets a file's mode.
pub fn sets_modes(name: SyscallName) -> bool {
    let number = name.number();
    SET_ID.iter().any(|more| u32::from(more.number) == number)
}

/// Whether debuggers need this call, which `syscalls.limit` of `standard` leaves to annotations (a test in
/// `src/cmd/suggest.rs` compares them).
pub(super) fn is_a_debuggers(name: SyscallName) -> bool {
    profile_reason(SyscallProfile::Debug, name).is_some()
}

/// Whether policies/syscalls/set-id.toml denies it with these arguments.
pub(super) fn denies_set_id(name: SyscallName, args: &[u64; 6]) -> bool {
    let number = name.number();
    let mut rules = SET_ID.iter();
    let rule = rules.find(|more| u32::from(more.number) == number);
    rule.is_some_and(|more| more.rule.verdict(args).is_denial())
}

/// Why the base rules treat a call as they do, in the words of policies/syscalls/base.toml.
pub fn reason(name: SyscallName) -> &'static str {
    REASONS[usize::from(base(name).reason)]
}

/// The same if they deny the call with these arguments; `None` if they allow it.
pub(super) fn denial(name: SyscallName, args: &[u64; 6]) -> Option<&'static str> {
    base(name)
        .rule
        .verdict(args)
        .is_denial()
        .then(|| reason(name))
}
