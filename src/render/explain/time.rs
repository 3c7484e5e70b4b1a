//! PURE. The time limit as text.

use super::page::Page;
use crate::plan::time::TimeLeft;
use crate::plan::{ExecTime, NetworkPlan, TimePlan};
use crate::policy::SleepRule;
use crate::rules::{ClockReading, Expiry};

/// When the container ends.
pub(super) fn explain(page: &mut Page, limit: Option<TimePlan>) {
    let Some(limit) = limit else { return };
    let TimePlan {
        wall,
        idle,
        grace,
        sleep,
        most: _,
    } = limit;
    let suspended = match sleep {
        SleepRule::Counts => "counts",
        SleepRule::Pauses => "does not count",
    };
    let wall = wall
        .lifetime()
        .map(|wall| format!("{wall} after `create` (time.wall)"));
    let idle = idle
        .lifetime()
        .map(|idle| format!("after {idle} without activity (time.idle)"));
    let due: Vec<String> = wall.into_iter().chain(idle).collect();
    let due = due.join(" or ");
    page.head(
        "time",
        format_args!(
            "ended {due} by SIGTERM, and {grace} later by SIGKILL (time.grace); suspension {suspended} (time.sleep)"
        ),
    );
}

/// When a process of `exec` ends.
pub(super) fn explain_exec(page: &mut Page, limit: Option<ExecTime>) {
    let Some(ExecTime { limit, grace, .. }) = limit else {
        return;
    };
    page.head(
        "exec",
        format_args!(
            "each ended {limit} after its start by SIGTERM (time.exec), and {grace} later with everything that it started"
        ),
    );
}

/// What is left of it, for a container that runs.
pub(super) fn left(page: &mut Page, left: TimeLeft) {
    let of = |seconds: u64| format!("{} min {} s", seconds / 60, seconds % 60);
    let wall = left.seconds_left.map(of);
    let idle = left.idle_seconds_left.map(of);
    let idle = idle.map(|left| format!("{left} if it stays idle"));
    let all: Vec<String> = wall.into_iter().chain(idle).collect();
    if !all.is_empty() {
        page.head("time left", all.join("; "));
    }
}

/// The ends of rules and secrets.
pub(super) fn ends(page: &mut Page, network: &NetworkPlan, now: Option<ClockReading>) {
    for line in expiries(network, now) {
        page.head("expires", line);
    }
}

/// The same, a line for each; without the time not what is left.
pub fn expiries(network: &NetworkPlan, now: Option<ClockReading>) -> Vec<String> {
    let words = |end: Expiry| match now {
        Some(now) => end.words(now),
        None => format!("until {}", end.date()),
    };
    let rules = network.rules.ends.iter();
    let rules = rules.map(|(rule, end)| format!("rule {rule}: {}", words(*end)));
    let secrets = network.secrets.iter().filter_map(|secret| {
        let end = Expiry::at(secret.until?);
        Some(format!("secret {}: {}", secret.name, words(end)))
    });
    rules.chain(secrets).collect()
}
