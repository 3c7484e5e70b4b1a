//! Namespaces, descriptors, terminals and core files.

use std::collections::BTreeMap;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;

use crate::verify::answer::Answers;
use crate::verify::probe::{Attempt, Finding, Probe, ProbedWall};
use crate::verify::promise::Promise;

/// Kinds of namespaces, by the kernel's name.
pub const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

const fn probe(
    id: &'static str,
    threats: &'static [&'static str],
    tried: &'static str,
    expected: &'static str,
    means: &'static str,
    attempt: fn(&Promise) -> Finding,
) -> Probe {
    Probe {
        id,
        wall: ProbedWall::Processes,
        threats,
        tried,
        expected,
        means,
        remedy: "recreate the container under a policy without them",
        promised: |p| p.walls.is_some(),
        attempt: Attempt::Finds(attempt),
    }
}

/// The probes.
pub const PROBES: &[Probe] = &[
    probe(
        "own-namespaces",
        &["F14"],
        "compare the process's namespaces with the node's",
        "not the node's, if the container has its own",
        "the container can see or change processes, mounts, names or networks of the node",
        namespaces,
    ),
    probe(
        "descriptors",
        &["S18", "F05"],
        "look for open descriptors from 3 to 1023",
        "none is open",
        "the container holds a descriptor of the runtime",
        descriptors,
    ),
    probe(
        "caller-terminal",
        &["F28"],
        "open the controlling terminal by /dev/tty",
        "there is none",
        "the container can read from and type into its caller's terminal",
        terminal,
    ),
    Probe {
        promised: |p| p.has(|w| w.crashes_kept),
        ..probe(
            "core-files",
            &["F16", "F24"],
            "read the limit of core files from the kernel",
            "1 byte, soft and hard",
            "a crash in the container can start the node's core_pattern program",
            core_files,
        )
    },
];

/// No terminal, or no device to open it.
const NO_TERMINAL: Answers = Answers::or_not_tried(&[
    Errno::NXIO,
    Errno::NOENT,
    Errno::NOTDIR,
    Errno::NODEV,
    Errno::ACCESS,
    Errno::PERM,
]);

/// The namespaces of a process (`self`, or a number), by kind.
pub fn of(process: &str) -> BTreeMap<String, String> {
    let link = |kind: &&str| {
        let link = std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()?;
        Some(((*kind).to_owned(), link.to_string_lossy().into_owned()))
    };
    NAMESPACES.iter().filter_map(link).collect()
}

/// For each kind that must differ from the node's, whether it does.
pub fn compared(promise: &Promise, own: &BTreeMap<String, String>) -> Vec<Finding> {
    let wanted = |kind: &String| match &promise.walls {
        Some(walls) => walls.namespaces.contains(kind),
        None => kind != "user",
    };
    let node = promise.node.iter().filter(|(kind, _)| wanted(kind));
    node.map(|(kind, link)| match own.get(kind) {
        Some(found) if found == link => {
            Finding::not_held(format!("the node's {kind} namespace ({link})"))
        }
        Some(found) => Finding::held(found),
        None => Finding::not_tried(format!("its {kind} namespace cannot be read")),
    })
    .collect()
}

fn namespaces(promise: &Promise) -> Finding {
    let own = of("self");
    if own.is_empty() || promise.node.is_empty() {
        return Finding::not_tried("/proc/self/ns cannot be read");
    }
    Finding::of_all(compared(promise, &own), "none of the node's")
}

fn descriptors(promise: &Promise) -> Finding {
    let open = promise.inherited.iter();
    let faults: Vec<String> = open.map(|number| format!("descriptor {number}")).collect();
    Finding::of_faults(&faults, "only 0, 1 and 2")
}

fn terminal(_: &Promise) -> Finding {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    judge_terminal(rustix::fs::open("/dev/tty", flags, Mode::empty()).map(drop))
}

fn judge_terminal(opened: Result<(), Errno>) -> Finding {
    match opened {
        Ok(()) => Finding::not_held("/dev/tty was opened"),
        Err(Errno::NXIO) => Finding::held("the process has none"),
        Err(errno) => NO_TERMINAL.finding("/dev/tty", errno),
    }
}

fn core_files(_: &Promise) -> Finding {
    let limit = rustix::process::getrlimit(Resource::Core);
    judge_core_limit(limit.current, limit.maximum)
}

/// With 0, the kernel starts the program of core_pattern all the same (core(5)). A higher hard limit can be taken.
fn judge_core_limit(soft: Option<u64>, hard: Option<u64>) -> Finding {
    match (soft, hard) {
        (Some(1), Some(1)) => Finding::held("1 byte"),
        (soft, hard) => Finding::not_held(format!("soft {}, hard {}", words(soft), words(hard))),
    }
}

fn words(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::probe::Outcome;

    #[test]
    fn one_byte_alone_keeps_crashes_inside() {
        assert_eq!(judge_core_limit(Some(1), Some(1)).outcome, Outcome::Held);
        for (soft, hard) in [
            (Some(0), Some(0)),
            (Some(1), Some(2)),
            (Some(1), None),
            (Some(0), Some(1)),
            (None, None),
        ] {
            let found = judge_core_limit(soft, hard);
            assert_eq!(found.outcome, Outcome::NotHeld, "{soft:?} {hard:?}");
        }
        assert!(
            judge_core_limit(Some(1), None)
                .saw
                .contains("hard unlimited")
        );
    }

    #[test]
    fn an_opened_terminal_is_a_fault_and_a_full_table_proves_nothing() {
        assert_eq!(judge_terminal(Ok(())).outcome, Outcome::NotHeld);
        assert_eq!(judge_terminal(Err(Errno::NXIO)).outcome, Outcome::Held);
        assert_eq!(judge_terminal(Err(Errno::NOENT)).outcome, Outcome::Held);
        assert_eq!(judge_terminal(Err(Errno::MFILE)).outcome, Outcome::NotTried);
    }

    #[test]
    fn a_namespace_of_the_nodes_is_noticed() {
        let of = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
            all.iter().map(owned).collect()
        };
        let mut promise = Promise {
            node: of(&[("pid", "pid:[1]"), ("ipc", "ipc:[2]"), ("user", "user:[3]")]),
            ..Promise::default()
        };
        let own = of(&[("pid", "pid:[1]"), ("ipc", "ipc:[9]"), ("user", "user:[3]")]);
        let shared = |promise: &Promise| Finding::of_all(compared(promise, &own), "none");
        assert_eq!(
            shared(&promise),
            Finding::not_held("the node's pid namespace (pid:[1])")
        );
        let walls = promise.walls.insert(Default::default());
        // The node lets it share this namespace, so it is not promised.
        walls.namespaces = ["ipc".to_owned()].into();
        assert_eq!(shared(&promise), Finding::held("none"));
        promise
            .walls
            .as_mut()
            .unwrap()
            .namespaces
            .insert("user".to_owned());
        assert_eq!(
            shared(&promise),
            Finding::not_held("the node's user namespace (user:[3])")
        );
        // An unreadable link is no proof of a difference.
        let unread = Finding::of_all(compared(&promise, &of(&[("ipc", "ipc:[9]")])), "none");
        assert_eq!(unread.outcome, Outcome::NotTried);
    }
}
