//! The program inside: this very program, executed by descriptor as the sandbox's init process or as an exec process.
//!
//! Standard input has the promise, one line. Standard output gets one line for each finding, and a last line. Then the
//! init process waits for the end of its input: while it lives, an exec process can join it.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use super::probe::{Attempt, Finding, Probe};
use super::probes::{self, network};
use super::promise::Promise;
use crate::egress::tried::TriedPorts;
use crate::enforce::privileges;
use crate::sys::{process, signal, socket};

/// The first argument that selects this program.
pub const VERB: &str = "verify-inside";
/// Time limit of one attempt. It is long: on a busy machine, a denied call must not look like one that no wall denied.
const WITHIN: Duration = Duration::from_secs(2);
/// Time limit of all attempts; the rest is not tried.
const IN_ALL: Duration = Duration::from_secs(10);

/// A line of the output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum OutputLine {
    /// The ports of the network attempts. The program waits for an [`Answer`].
    Ports(TriedPorts),
    /// A probe's finding.
    Finding {
        /// The probe's name.
        probe: String,
        /// The finding.
        finding: Finding,
    },
    /// All attempts are made.
    Done,
}

/// The answer to [`OutputLine::Ports`], one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The sidecar, which logs the network, knows the ports.
    Known,
    /// It does not, for this reason. The network attempts are omitted: the log would blame the workload for them.
    Unknown(String),
}

/// Runs the program inside.
pub fn main() -> ExitCode {
    // No process in the container may change the findings, but one of the same user could write to this one's memory.
    // It has been protected since its execution, and stays so.
    if let Err(error) = privileges::give_group_back() {
        let text = format!("agentbox: nothing is tried: hide from tracers: {error}");
        crate::log::complain(&text);
        return ExitCode::FAILURE;
    }
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    // A user who types this verb gets an error that says it is internal.
    let inherited = inherited();
    let Some(mut promise) = input
        .read_line(&mut line)
        .ok()
        .and_then(|_| serde_json::from_str::<Promise>(&line).ok())
    else {
        crate::log::complain("agentbox: verify-inside is started by `agentbox verify` alone");
        return ExitCode::FAILURE;
    };
    promise.inherited = inherited;
    // A process of the same user can send the signals by which a wall ends an attempt. Ignored, they work only if the
    // kernel forces them (force_sig_info_to_task of kernel/signal.c).
    if let Err(error) = signal::ignore(&[Signal::SYS, Signal::SEGV]) {
        crate::log::complain(&format!(
            "agentbox: nothing is tried: ignore signals: {error}"
        ));
        return ExitCode::FAILURE;
    }
    // Bind the ports before anything relies on them.
    let ports = network::open_sockets(&promise);
    let mut line = String::new();
    let answered = say(&OutputLine::Ports(ports)).and_then(|()| input.read_line(&mut line));
    match answered.map(|_| serde_json::from_str::<Answer>(&line)) {
        Ok(Ok(Answer::Known)) => {}
        Ok(Ok(Answer::Unknown(why))) => promise.untried_network = Some(why),
        Ok(Err(_)) | Err(_) => return ExitCode::FAILURE,
    }
    if try_all(&promise).is_err() {
        return ExitCode::FAILURE;
    }
    // Wait for the end of the input.
    match std::io::copy(&mut input, &mut std::io::sink()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Higher descriptors are not checked: the kernel assigns the lowest that is free.
const DESCRIPTORS: i32 = 1024;

/// Open descriptors besides the standard ones.
fn inherited() -> Vec<i32> {
    let all = 3..DESCRIPTORS;
    all.filter(|number| process::borrow_inherited(*number).is_some())
        .collect()
}

fn try_all(promise: &Promise) -> std::io::Result<()> {
    let end = Instant::now() + IN_ALL;
    for probe in probes::all() {
        let finding = match probe.attempt {
            Attempt::Read(_) => continue,
            _ if Instant::now() >= end => Finding::not_tried("no time was left for this attempt"),
            attempt => in_child(attempt, promise)
                .unwrap_or_else(|e| Finding::not_tried(format!("fork failed: {e}"))),
        };
        say(&OutputLine::Finding {
            probe: probe.id.to_owned(),
            finding,
        })?;
    }
    say(&OutputLine::Done)
}

fn say(line: &OutputLine) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Tries one attack in a child, which is killed at its time limit.
fn in_child(attempt: Attempt, promise: &Promise) -> std::io::Result<Finding> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = process::fork_into(|| {
        let finding = match attempt {
            Attempt::Finds(find) => find(promise),
            Attempt::Dies(find) => find(),
            Attempt::Read(_) => return 1,
        };
        match serde_json::to_vec(&finding) {
            // A pipe's buffer is large enough for a finding.
            Ok(bytes) if rustix::io::write(&writer, &bytes).is_ok() => 0,
            Ok(_) | Err(_) => 1,
        }
    })?;
    drop(writer);
    let in_time = socket::wait_readable(std::os::fd::AsFd::as_fd(&reader), WITHIN)?;
    if !in_time {
        rustix::process::kill_process(child, Signal::KILL)?;
    }
    let status =
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))?;
    if !in_time {
        return Ok(Finding::not_held(format!(
            "the call did not return within {} s: no wall denied it",
            WITHIN.as_secs()
        )));
    }
    let signal = status.and_then(|(_, status)| status.terminating_signal());
    if let Some(signal) = signal {
        return Ok(ended_by(attempt, signal));
    }
    let mut text = Vec::new();
    File::from(reader).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)
        .unwrap_or_else(|_| Finding::not_tried("the attempt ended without a result")))
}

/// The meaning of a child's end by a signal.
fn ended_by(attempt: Attempt, signal: i32) -> Finding {
    match attempt {
        Attempt::Dies(_) if signal == Signal::SYS.as_raw() => Finding::held("killed by SIGSYS"),
        // A kernel without the 32-bit entry point.
        Attempt::Dies(_) if signal == Signal::SEGV.as_raw() => {
            Finding::held("this kernel does not have the call")
        }
        _ => Finding::not_tried(format!("signal {signal} ended the attempt")),
    }
}

/// Whether a probe is tried inside.
pub fn is_tried_inside(probe: &Probe) -> bool {
    !matches!(probe.attempt, Attempt::Read(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::probe::{ContainerView, Outcome};

    #[test]
    fn only_the_filters_signals_are_a_walls_answer() {
        let dies = Attempt::Dies(|| Finding::not_held("it returned"));
        let finds = Attempt::Finds(|_| Finding::held("it answered"));
        let read = Attempt::Read(|_: &ContainerView<'_>| Finding::held("read"));
        for (attempt, signal, expected) in [
            (dies, Signal::SYS, Outcome::Held),
            (dies, Signal::SEGV, Outcome::Held),
            // Somebody else's signal, the end of memory, a fault of this program.
            (dies, Signal::KILL, Outcome::NotTried),
            (dies, Signal::TERM, Outcome::NotTried),
            (dies, Signal::ABORT, Outcome::NotTried),
            // An attempt that answers by an errno has not answered.
            (finds, Signal::SYS, Outcome::NotTried),
            (finds, Signal::SEGV, Outcome::NotTried),
            (read, Signal::SYS, Outcome::NotTried),
        ] {
            let found = ended_by(attempt, signal.as_raw());
            assert_eq!(found.outcome, expected, "{signal:?}: {}", found.saw);
        }
    }
}
