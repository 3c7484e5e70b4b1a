//! The clocks by which rules, approvals and secrets end.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::time::SystemTime;

use crate::rules::ClockReading;

/// Reads both clocks. By the C library, which knows the vDSO from the start: rustix looks for it at the first call, by calls
/// that the sidecar's filter does not allow.
pub fn read() -> ClockReading {
    let mut boot = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec, and `boot` is one.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut boot) };
    let boot_ms = match failed {
        // The kernel's is never negative.
        0 => {
            let seconds = boot.tv_sec.unsigned_abs().saturating_mul(1000);
            seconds.saturating_add(boot.tv_nsec.unsigned_abs() / 1_000_000)
        }
        // Every kernel since 2.6.39 has this clock. Without it everything has expired.
        _ => u64::MAX,
    };
    let unix = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
    ClockReading { boot_ms, unix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_go() {
        let first = read();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let second = read();
        assert!(second.boot_ms >= first.boot_ms + 20);
        assert!(first.boot_ms > 0 && second.boot_ms < u64::MAX);
        assert!(first.unix > 1_700_000_000 && second.unix >= first.unix);
    }
}
