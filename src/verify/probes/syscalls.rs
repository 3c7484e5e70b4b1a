//! The filter: calls that it answers instead of the kernel, S01 to S14.

use rustix::io::Errno;

use crate::sys::attempt::{self, TestCall};
use crate::verify::answer::Answers;
use crate::verify::probe::{Attempt, Finding, Outcome, Probe, ProbedWall};
use crate::verify::promise::Promise;

const MEANS: &str =
    "the filter does not deny it: the container can use kernel features that its policy denies";
const REMEDY: &str = "recreate the container; if it persists, see the allowed calls in `agentbox explain --syscalls ID`";

/// The filter's errnos: for privileged calls, for calls that C libraries probe, for families and their protocols.
const DENIED: Answers = Answers::or_not_held(&[
    Errno::PERM,
    Errno::NOSYS,
    Errno::AFNOSUPPORT,
    Errno::PROTONOSUPPORT,
]);
/// Errnos of the short lists: a kernel's answer if it does not know the request.
const UNKNOWN: Answers =
    Answers::or_not_held(&[Errno::PERM, Errno::NOSYS, Errno::INVAL, Errno::NOTTY]);

const fn probe(
    id: &'static str,
    threats: &'static [&'static str],
    tried: &'static str,
    promised: fn(&Promise) -> bool,
    attempt: Attempt,
) -> Probe {
    Probe {
        id,
        wall: ProbedWall::Syscalls,
        threats,
        tried,
        expected: "an errno of the filter, such as EPERM or ENOSYS",
        means: MEANS,
        remedy: REMEDY,
        promised,
        attempt,
    }
}

/// A promise of every policy. A probe omits calls that the policy adds.
fn always(promise: &Promise) -> bool {
    promise.walls.is_some()
}

/// Of calls that every policy denies.
const fn calls(
    id: &'static str,
    threats: &'static [&'static str],
    tried: &'static str,
    find: fn(&Promise) -> Finding,
) -> Probe {
    probe(id, threats, tried, always, Attempt::Finds(find))
}

/// The probes.
#[rustfmt::skip]
pub const PROBES: &[Probe] = &[
    Probe {
        expected: "the mode 2 of prctl(PR_GET_SECCOMP)",
        means: "no filter is loaded: every system call reaches the kernel",
        ..probe(
            "seccomp-mode",
            &["S13"],
            "read the process's filter mode from the kernel",
            always,
            Attempt::Finds(mode),
        )
    },
    calls("io-uring", &["S01"], "set up io_uring", |p| denied(p, attempt::IO_URING)),
    calls("other-processes", &["S02"], "trace, read and copy descriptors of processes that do not exist", |p| denied(p, attempt::OTHERS)),
    calls("kernel-programs", &["S03"], "call bpf, perf_event_open and userfaultfd", |p| denied(p, attempt::PROGRAMMABLE)),
    calls("namespaces", &["S04"], "create namespaces by unshare, and join by setns", |p| denied(p, attempt::NAMESPACES)),
    probe(
        "mounts",
        &["S05"],
        "call the old and new mount calls without arguments",
        always,
        Attempt::Finds(mounts),
    ),
    calls("keys", &["S06", "S19"], "look up the session keyring", |p| denied(p, attempt::KEYS)),
    calls("handles", &["S07"], "open files by handle", |p| denied(p, attempt::HANDLES)),
    calls("personality", &["S08"], "switch off memory protection and random addresses", |p| denied(p, attempt::PERSONALITY)),
    calls("administration", &["S09"], "call modules, swap, clocks, kexec and reboot with wrong arguments", |p| denied(p, attempt::ADMINISTRATION)),
    calls("terminal-input", &["S10"], "type into a terminal, also with high bits in the request", |p| denied(p, attempt::TERMINALS)),
    Probe {
        expected: "death by SIGSYS",
        ..probe(
            "x32",
            &["S11"],
            "call by an x32 number",
            always,
            Attempt::Dies(x32),
        )
    },
    Probe {
        expected: "death by SIGSYS",
        ..probe(
            "i386",
            &["S11"],
            "call by the 32-bit entry",
            always,
            Attempt::Dies(i386),
        )
    },
    calls("socket-families", &["S12"], "open sockets of other families, also with high bits", |p| denied(p, attempt::FAMILIES)),
    calls("raw-sockets", &["S12", "N13"], "open raw sockets and sockets of other protocols", |p| denied(p, attempt::RAW)),
    calls("netlink", &["N17"], "open netlink sockets other than route", |p| denied(p, attempt::NETLINK)),
    calls("listener", &["S13"], "load a filter with a listener", |p| denied(p, attempt::LISTENER)),
    calls("prctl", &["S14"], "call prctl for memory maps and securebits", |p| denied(p, attempt::PRCTL)),
    Probe {
        means: "the container can leave set-user-ID files in its workspace that work on the node",
        ..probe(
            "set-id-modes",
            &["F21"],
            "set a set-user-ID mode on a descriptor that does not exist",
            |p| p.has(|w| w.set_id_refused),
            Attempt::Finds(|p| denied(p, attempt::SET_ID)),
        )
    },
    Probe {
        means: "written memory can be executed: foreign code runs without a file",
        ..probe(
            "executed-memory",
            &["S16", "S17"],
            "make written memory executable, and create an executable file in memory",
            |p| p.has(|w| w.paranoid),
            Attempt::Finds(|p| denied(p, attempt::EXECUTED_MEMORY)),
        )
    },
    Probe {
        expected: "EINVAL or ENOTTY, as for an unknown request",
        ..probe(
            "short-lists",
            &["S23"],
            "make unlisted requests of ioctl, prctl and fcntl",
            |p| p.has(|w| w.paranoid),
            Attempt::Finds(unlisted),
        )
    },
];

fn unlisted(promise: &Promise) -> Finding {
    let calls = attempt::UNLISTED.iter();
    judge(
        promise,
        &UNKNOWN,
        calls.map(|call| (call.name, call.make())),
    )
}

fn mode(_: &Promise) -> Finding {
    match rustix::thread::secure_computing_mode() {
        Ok(rustix::thread::SecureComputingMode::Filter) => Finding::held("mode 2, a filter"),
        Ok(mode) => Finding::not_held(format!("mode {mode:?}")),
        Err(error) => Finding::not_tried(format!("prctl: {error}")),
    }
}

fn denied(promise: &Promise, calls: &[TestCall]) -> Finding {
    let answers = calls.iter().map(|call| (call.name, call.make()));
    judge(promise, &DENIED, answers)
}

fn mounts(promise: &Promise) -> Finding {
    let unmount = (attempt::UNMOUNT.name, attempt::UNMOUNT.make());
    let calls = attempt::MOUNTS.iter();
    let answers = calls.map(|call| (call.name, call.make())).chain([unmount]);
    judge(promise, &DENIED, answers)
}

/// Held if the filter's errno answered each call that the policy does not add. Any other answer came from the kernel,
/// after the filter let the call through.
fn judge<'a>(
    promise: &Promise,
    denied: &Answers,
    answers: impl Iterator<Item = (&'a str, Result<(), Errno>)>,
) -> Finding {
    let (mut faults, mut count) = (Vec::new(), 0);
    let added = |name: &str| {
        let call = name.split(['(', ',']).next().unwrap_or(name);
        promise.has(|walls| walls.calls.contains(call))
    };
    for (name, answer) in answers.filter(|(name, _)| !added(name)) {
        count += 1;
        match answer {
            Err(errno) if denied.outcome(errno) == Outcome::Held => {}
            Err(errno) => faults.push(format!("{name}: the kernel answered {errno}")),
            Ok(()) => faults.push(format!("{name} succeeded")),
        }
    }
    match count {
        0 => Finding::not_tried("the policy allows all of these calls"),
        _ => Finding::of_faults(&faults, format!("{count} calls denied")),
    }
}

fn x32() -> Finding {
    match attempt::X32.make() {
        Ok(()) => Finding::not_held("the call succeeded"),
        Err(errno) => Finding::not_held(format!("the kernel answered {errno}")),
    }
}

fn i386() -> Finding {
    Finding::not_held(format!("the call returned {}", attempt::enter_as_i386()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(promise: &Promise, answers: &[(&str, Result<(), Errno>)]) -> Outcome {
        judge(promise, &DENIED, answers.iter().copied()).outcome
    }

    #[test]
    fn only_the_filters_answers_are_denials() {
        let promise = Promise::default();
        assert_eq!(
            outcome(&promise, &[("bpf", Err(Errno::PERM))]),
            Outcome::Held
        );
        for answer in [
            Ok(()),
            Err(Errno::INVAL),
            Err(Errno::FAULT),
            Err(Errno::BADF),
            Err(Errno::MFILE),
        ] {
            let answers = [("io_uring_setup", Err(Errno::NOSYS)), ("bpf", answer)];
            assert_eq!(outcome(&promise, &answers), Outcome::NotHeld, "{answer:?}");
        }
    }

    #[test]
    fn a_call_that_the_policy_adds_is_no_fault() {
        let mut promise = Promise::default();
        let walls = promise.walls.insert(Default::default());
        walls.calls.insert("ptrace".to_owned());
        let answers = [
            ("ptrace(PTRACE_SEIZE)", Err(Errno::SRCH)),
            ("kcmp", Err(Errno::PERM)),
        ];
        assert_eq!(outcome(&promise, &answers), Outcome::Held);
        assert_eq!(outcome(&promise, &answers[..1]), Outcome::NotTried);
    }
}
