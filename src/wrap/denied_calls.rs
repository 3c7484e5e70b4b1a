//! PURE. The denied system calls of a run, for [`super::summary`].

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::policy::{SyscallProfile, Tool};

/// Names on a line.
const MOST: usize = 6;

/// The answer to a call that the kernel could do and the wall forbids. Other answers look like a kernel without the
/// feature: programs probe for these, and go on in another way (io_uring, kinds of sockets).
const NO_PERMISSION: &str = "EPERM";

type CallCounts = BTreeMap<String, u64>;

/// Calls by their names, each with its number.
#[derive(Debug, Default)]
pub struct DeniedCallSummary {
    /// Those that an option allows.
    debuggers: CallCounts,
    /// The others, without those that ordinary programs probe.
    others: CallCounts,
}

impl DeniedCallSummary {
    /// Counts a call that was answered by this errno.
    pub fn count(&mut self, name: &str, errno: &str, times: u64) {
        let of_kind = match SyscallProfile::Debug.adds().contains(&name) {
            true => &mut self.debuggers,
            false if errno == NO_PERMISSION => &mut self.others,
            false => return,
        };
        let count = of_kind.entry(name.to_owned()).or_default();
        *count = count.saturating_add(times);
    }

    /// Whether none was counted.
    pub fn is_empty(&self) -> bool {
        self.debuggers.is_empty() && self.others.is_empty()
    }

    /// A line for each kind that there is. `audit` finds the reasons by the container's id.
    pub fn lines(&self, id: Option<&str>) -> impl Iterator<Item = String> {
        let debuggers = names(&self.debuggers).map(|names| {
            let option = Tool::Wrap.debugs();
            format!("system calls of debuggers: {names}; {option} allows them")
        });
        let others = names(&self.others).map(|names| match id {
            Some(id) => format!("system calls: {names}; agentbox audit {id} has the reasons"),
            None => format!("system calls: {names}"),
        });
        debuggers.into_iter().chain(others)
    }

    /// The name, the number and the remedy of each, as Markdown.
    pub fn rows(&self) -> impl Iterator<Item = [String; 3]> {
        let option = format!("{} allows it", Tool::Wrap.debugs());
        let reasons = "`agentbox audit` has the reason".to_owned();
        let kinds = [(&self.debuggers, option), (&self.others, reasons)];
        kinds.into_iter().flat_map(|(calls, remedy)| {
            let row = move |(name, count): (&String, &u64)| {
                [name.clone(), count.to_string(), remedy.clone()]
            };
            calls.iter().map(row)
        })
    }
}

/// Calls with their numbers, the most frequent first. `None` if there is none.
fn names(calls: &CallCounts) -> Option<String> {
    let mut all: Vec<(&String, &u64)> = calls.iter().collect();
    all.sort_by_key(|(_, count)| Reverse(**count));
    let first = all.iter().take(MOST);
    let mut names: Vec<String> = first
        .map(|(name, count)| format!("{name}{}", times(**count)))
        .collect();
    let more = all.len().saturating_sub(MOST);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    (!names.is_empty()).then(|| names.join(", "))
}

/// How often, if more than once.
pub fn times(count: u64) -> String {
    match count {
        1 => String::new(),
        count => format!(" x{count}"),
    }
}
