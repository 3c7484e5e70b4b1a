//! Denied calls for the log: the first of each kind at once, the others as a count.
//!
//! The log folds events too. Here it happens before the words are made, so that the caller's next call does not wait
//! for them.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::audit::{Actor, Event, EventDetail, Verdict, WallName};
use crate::policy::Tool;
use crate::seccomp::{DenialWords, FilterWords, Hint, SyscallData, words};

/// Kinds of one call that are distinguished by arguments; all others are one kind.
const KINDS: usize = 8;
/// The shortest time between two counts.
const EVERY: Duration = Duration::from_secs(2);

/// Where events go.
pub(in crate::sidecar) type Sink = Rc<dyn Fn(Event)>;

/// Calls that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    number: u32,
    errno: u16,
    /// Its text; `None` for every kind beyond the first [`KINDS`].
    call: Option<String>,
}

/// Equal calls that were denied since the last line of the log.
#[derive(Debug)]
struct CallCount {
    /// Since the last event.
    pending: u64,
    /// When the last event was sent.
    told: Option<Instant>,
    /// The event to send.
    event: Event,
}

/// The denied calls of one container.
#[derive(Default)]
pub(super) struct DeniedCallLog {
    sink: Option<Sink>,
    /// The tool whose words the hints use.
    tool: Tool,
    /// The actor, if it is not the workload.
    by: Option<Actor>,
    /// What the plan says of the filter.
    filter: FilterWords,
    kinds: BTreeMap<Kind, CallCount>,
    last: Option<LastCall>,
}

/// The last denied call: loops repeat a call, which then needs no new words.
struct LastCall {
    call: SyscallData,
    errno: u16,
    kind: Kind,
}

impl fmt::Debug for DeniedCallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denied")
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

impl DeniedCallLog {
    /// For a container with this filter.
    pub fn with(filter: FilterWords) -> Self {
        Self {
            filter,
            ..Self::default()
        }
    }

    /// The calls of an actor in the same container.
    pub fn apart(&self, by: Actor) -> Self {
        Self {
            by: Some(by),
            ..Self::with(self.filter.clone())
        }
    }

    /// Sends events to `sink` from now on; before, there are none.
    pub fn log_to(&mut self, tool: Tool, sink: Sink) {
        self.sink = Some(sink);
        self.tool = tool;
    }

    /// Counts a denied call.
    pub fn note(&mut self, call: &SyscallData, errno: u16) {
        let known = self
            .last
            .take_if(|last| (&last.call, last.errno) == (call, errno));
        let kind = match known {
            Some(last) => last.kind,
            None => self.kind_of(call, errno),
        };
        if let Some(counted) = self.kinds.get_mut(&kind) {
            counted.pending = counted.pending.saturating_add(1);
            if counted.told.is_none_or(|told| told.elapsed() >= EVERY) {
                self.tell(&kind);
            }
        }
        self.last = Some(LastCall {
            call: *call,
            errno,
            kind,
        });
    }

    /// Finds or adds the kind of a call.
    fn kind_of(&mut self, call: &SyscallData, errno: u16) -> Kind {
        let words = words(call, errno, &self.filter);
        let (number, known, tool) = (call.number, &self.kinds, self.tool);
        let mut kind = Kind {
            number,
            errno,
            call: Some(words.call.clone()),
        };
        let of_number = known.keys().filter(|kind| kind.number == number).count();
        if !known.contains_key(&kind) && of_number >= KINDS {
            kind.call = None;
        }
        let counted = || CallCount {
            pending: 0,
            told: None,
            event: event(words, kind.call.clone(), tool),
        };
        self.kinds.entry(kind.clone()).or_insert_with(counted);
        kind
    }

    /// Sends what was only counted so far.
    pub fn settle(&mut self) {
        let waiting = self.kinds.iter().filter(|(_, counted)| counted.pending > 0);
        let waiting: Vec<Kind> = waiting.map(|(kind, _)| kind.clone()).collect();
        for kind in waiting {
            self.tell(&kind);
        }
    }

    fn tell(&mut self, kind: &Kind) {
        let (Some(counted), Some(sink)) = (self.kinds.get_mut(kind), &self.sink) else {
            return;
        };
        counted.told = Some(Instant::now());
        let times = std::mem::take(&mut counted.pending);
        sink(Event {
            count: (times != 1).then_some(times),
            by: self.by,
            ..counted.event.clone()
        });
    }
}

/// The event of a kind. `call` is its text, if it has one.
fn event(words: DenialWords, call: Option<String>, tool: Tool) -> Event {
    let DenialWords {
        name,
        call: _,
        errno,
        why,
        hint,
    } = words;
    let call = call.unwrap_or_else(|| format!("{name}(other arguments)"));
    Event {
        reason: Some(why.into()),
        hint: Some(match hint {
            Hint::DebugProfile => {
                let named = tool.names(&tool.debugs());
                // A user of `wrap` owns what is at stake, and has a ceiling only where root set one.
                match tool {
                    Tool::Wrap => named.into(),
                    Tool::Engine | Tool::Annotating | Tool::Pod | Tool::PodmanPod => {
                        format!("within the ceiling, {named}").into()
                    }
                }
            }
            Hint::Words(words) => words.into(),
        }),
        ..Event::new(
            WallName::Syscalls,
            Verdict::Denied,
            EventDetail::Syscall {
                name: name.into(),
                call: call.into(),
                errno: errno.into(),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::seccomp::ARCH_X86_64;

    fn events(act: impl FnOnce(&mut DeniedCallLog)) -> Vec<(String, u64)> {
        let told = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&told);
        let mut denied = DeniedCallLog::default();
        denied.log_to(
            Tool::Engine,
            Rc::new(move |event: Event| {
                let times = event.times();
                match event.what {
                    EventDetail::Syscall { call, .. } => {
                        heard.borrow_mut().push((call.to_string(), times))
                    }
                    other => panic!("{other:?}"),
                }
            }),
        );
        act(&mut denied);
        drop(denied);
        told.take()
    }

    fn call(number: libc::c_long, args: [u64; 6]) -> SyscallData {
        SyscallData {
            number: u32::try_from(number).unwrap(),
            arch: ARCH_X86_64,
            args,
        }
    }

    #[test]
    fn the_first_call_is_logged_at_once_and_the_others_as_a_count() {
        let mount = call(libc::SYS_mount, [0; 6]);
        let first = events(|denied| denied.note(&mount, 1));
        assert_eq!(first, [("mount(...)".to_owned(), 1)]);
        let all = events(|denied| {
            for _ in 0..100_000 {
                denied.note(&mount, 1);
            }
            denied.settle();
            denied.settle();
        });
        let count: u64 = all.iter().map(|(_, times)| times).sum();
        assert_eq!((all[0].1, count), (1, 100_000));
    }

    /// The hint is in the words of the tool that started the container.
    #[test]
    fn the_hint_for_a_debuggers_call_is_in_the_words_of_the_tool() {
        for (tool, wanted) in [
            (
                Tool::Engine,
                "within the ceiling, the annotation dev.agentbox.syscalls.profile=debug",
            ),
            (Tool::Wrap, "--set syscalls.profile=debug"),
        ] {
            let heard = Rc::new(RefCell::new(Vec::new()));
            let told = Rc::clone(&heard);
            let mut denied = DeniedCallLog::default();
            denied.log_to(tool, Rc::new(move |event| told.borrow_mut().push(event)));
            denied.note(&call(libc::SYS_ptrace, [0; 6]), 1);
            assert_eq!(heard.borrow()[0].hint.as_deref(), Some(wanted));
        }
    }

    #[test]
    fn a_flood_of_one_call_with_many_arguments_is_few_kinds() {
        let all = events(|denied| {
            for protocol in 0..20_000 {
                denied.note(&call(libc::SYS_socket, [17, 3, protocol, 0, 0, 0]), 97);
            }
            denied.note(&call(libc::SYS_bpf, [0; 6]), 1);
            denied.settle();
        });
        let kinds: std::collections::BTreeSet<_> = all.iter().map(|(call, _)| call).collect();
        assert_eq!(kinds.len(), KINDS + 2, "{kinds:?}");
        assert!(kinds.contains(&"bpf(0, ...)".to_owned()));
        let count: u64 = all.iter().map(|(_, times)| times).sum();
        assert_eq!(count, 20_001);
    }

    #[test]
    fn a_process_of_verify_uses_up_no_kind_of_the_workloads() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let (mut own, mut verify) = (
            DeniedCallLog::default(),
            DeniedCallLog::default().apart(Actor::Verify),
        );
        for denied in [&mut own, &mut verify] {
            let heard = Rc::clone(&told);
            denied.log_to(
                Tool::Engine,
                Rc::new(move |event| heard.borrow_mut().push(event)),
            );
        }
        for protocol in 0..20 {
            verify.note(&call(libc::SYS_socket, [17, 3, protocol, 0, 0, 0]), 97);
        }
        own.note(&call(libc::SYS_socket, [17, 3, 99, 0, 0, 0]), 97);
        let events = told.take();
        let (verifys, others): (Vec<_>, Vec<_>) = events.into_iter().partition(Event::is_verifys);
        assert_eq!((verifys.len() > KINDS, others.len()), (true, 1));
        assert!(
            matches!(&others[0].what, EventDetail::Syscall { call, .. } if call.contains("99")),
            "{others:?}"
        );
    }
}
