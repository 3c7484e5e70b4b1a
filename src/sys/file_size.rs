#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! RLIMIT_FSIZE (getrlimit(2)): a limit of the caller's would cut the log and the records that agentbox writes. agentbox
//! raises its own limit. Programs that it executes get the caller's limit back.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The caller's limits, while this process has others; [`UNCHANGED`] while it has the same.
static SOFT: AtomicU64 = AtomicU64::new(UNCHANGED);
/// [`UNCHANGED`] also stands for no hard limit.
static HARD: AtomicU64 = AtomicU64::new(UNCHANGED);
const UNCHANGED: u64 = u64::MAX;

/// Limits of executed programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSizeLimit {
    /// Soft, in bytes.
    pub soft: Option<u64>,
    /// Hard, in bytes.
    pub hard: Option<u64>,
}

impl FileSizeLimit {
    /// Limits this process.
    fn set(self) -> io::Result<()> {
        let limit = Rlimit {
            current: self.soft,
            maximum: self.hard,
        };
        Ok(setrlimit(Resource::Fsize, limit)?)
    }
}

/// Removes this process's limit, or raises it to the hard limit. Returns the limit from now on, if there is one.
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Fsize);
    let soft = limit.current?;
    // Only root may raise the hard limit.
    for most in [None, limit.maximum] {
        let raised = FileSizeLimit {
            soft: most,
            hard: most,
        };
        if raised.set().is_ok() {
            // After a second call the first one's still counts.
            let first = SOFT.compare_exchange(UNCHANGED, soft, Relaxed, Relaxed);
            if first.is_ok() {
                HARD.store(limit.maximum.unwrap_or(UNCHANGED), Relaxed);
            }
            return most;
        }
    }
    Some(soft)
}

/// Takes the limits of programs for this process: `own` if the next one has limits of its own.
pub fn give_back(own: Option<FileSizeLimit>) -> io::Result<()> {
    let Some(callers) = of_caller() else {
        return Ok(());
    };
    own.unwrap_or(callers).set()?;
    SOFT.store(UNCHANGED, Relaxed);
    HARD.store(UNCHANGED, Relaxed);
    Ok(())
}

/// The caller's limits, if this process has others.
fn of_caller() -> Option<FileSizeLimit> {
    let [soft, hard] =
        [&SOFT, &HARD].map(|limit| Some(limit.load(Relaxed)).filter(|limit| *limit != UNCHANGED));
    soft.map(|soft| FileSizeLimit {
        soft: Some(soft),
        hard,
    })
}

/// Lets a command begin with the caller's limits.
pub fn limit(command: &mut Command) -> &mut Command {
    let Some(callers) = of_caller() else {
        return command;
    };
    // SAFETY: the closure runs between fork and exec. It makes one system call, takes no lock and allocates nothing.
    unsafe { command.pre_exec(move || callers.set()) }
}
