//! The clocks by which rules, approvals and secrets end.

use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};

use crate::rules::ClockReading;

/// Reads both clocks.
pub fn read() -> ClockReading {
    let boot = clock_gettime(ClockId::Boottime);
    // The kernel's is never negative.
    let seconds = boot.tv_sec.unsigned_abs().saturating_mul(1000);
    let unix = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
    ClockReading {
        boot_ms: seconds.saturating_add(boot.tv_nsec.unsigned_abs() / 1_000_000),
        unix,
    }
}
