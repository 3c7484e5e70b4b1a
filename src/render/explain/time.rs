//! PURE. The time limit as text.

use super::page::Page;
use crate::plan::TimePlan;
use crate::policy::SleepRule;

/// When the container ends.
pub(super) fn explain(page: &mut Page, limit: Option<TimePlan>) {
    let Some(limit) = limit else { return };
    let TimePlan {
        wall,
        grace,
        sleep,
        most: _,
    } = limit;
    let suspended = match sleep {
        SleepRule::Counts => "counts",
        SleepRule::Pauses => "does not count",
    };
    page.head(
        "time",
        format_args!(
            "ended {wall} after `create` (time.wall) by SIGTERM, and {grace} later by SIGKILL (time.grace); suspension {suspended} (time.sleep)"
        ),
    );
}

/// What is left of it, for a container that runs.
pub(super) fn left(page: &mut Page, seconds: Option<u64>) {
    if let Some(seconds) = seconds {
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        page.head("time left", format_args!("{minutes} min {seconds} s"));
    }
}
