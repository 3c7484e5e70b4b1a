#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! RLIMIT_NOFILE (getrlimit(2)): a container with many mounts needs more descriptors than the usual soft limit of 1,024.
//! agentbox raises its own soft limit. Programs that it executes get the limit back that they would have had.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// The most that is useful: the kernel allows 100,000 mounts by default (fs.mount-max), and each takes two.
const MOST: u64 = 1 << 18;

/// The limits of executed programs, while this process has others; [`UNCHANGED`] while it has the same.
static SOFT: AtomicU64 = AtomicU64::new(UNCHANGED);
static HARD: AtomicU64 = AtomicU64::new(UNCHANGED);
const UNCHANGED: u64 = u64::MAX;

/// Limits of executed programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenFilesLimit {
    /// RLIMIT_NOFILE, soft.
    pub soft: u64,
    /// Hard; `None` for the one that the process has.
    pub hard: Option<u64>,
}

impl OpenFilesLimit {
    /// Limits this process. Descriptors above the limit stay open.
    pub fn set(self) -> io::Result<()> {
        let hard = self.hard.or(getrlimit(Resource::Nofile).maximum);
        set(self.soft.min(hard.unwrap_or(u64::MAX)), hard)
    }
}

/// Raises this process's soft limit to its hard limit. Returns the limit from now on. A failure is no error here: the
/// limit then stays as it is.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    let most = room(limit.maximum);
    if soft >= most || set(most, limit.maximum).is_err() {
        return soft;
    }
    // After a second call the first one's still counts.
    let _known = SOFT.compare_exchange(UNCHANGED, soft, Relaxed, Relaxed);
    most
}

/// Limits the programs that this process executes. Its own limits stay higher until [`give_back`].
pub fn limit_programs(soft: u64, hard: u64) -> io::Result<()> {
    let own = getrlimit(Resource::Nofile).maximum;
    // `None` is no limit.
    let highest = own.map(|own| own.max(hard));
    if soft > hard {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set(room(highest).max(soft), highest)?;
    HARD.store(hard, Relaxed);
    SOFT.store(soft, Relaxed);
    Ok(())
}

/// Takes the limits of programs for this process: `own` if the next one has limits of its own.
pub fn give_back(own: Option<OpenFilesLimit>) -> io::Result<()> {
    let Some(programs) = of_programs() else {
        return Ok(());
    };
    own.unwrap_or(programs).set()?;
    SOFT.store(UNCHANGED, Relaxed);
    HARD.store(UNCHANGED, Relaxed);
    Ok(())
}

/// The limits of programs, if this process has others.
pub fn of_programs() -> Option<OpenFilesLimit> {
    let [soft, hard] = [&SOFT, &HARD].map(|limit| limit.load(Relaxed));
    let hard = Some(hard).filter(|hard| *hard != UNCHANGED);
    (soft != UNCHANGED).then_some(OpenFilesLimit { soft, hard })
}

/// Lets a command begin with the limits of programs.
pub fn limit(command: &mut Command) -> &mut Command {
    let Some(programs) = of_programs() else {
        return command;
    };
    // SAFETY: the closure runs between fork and exec. It makes two system calls, takes no lock and allocates nothing.
    unsafe { command.pre_exec(move || programs.set()) }
}

fn room(hard: Option<u64>) -> u64 {
    hard.unwrap_or(MOST).min(MOST)
}

fn set(soft: u64, hard: Option<u64>) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(soft),
        maximum: hard,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names the test that a copy of the harness runs.
    const ALONE: &str = "AGENTBOX_TEST_ALONE";

    /// Limits are a process's, so each test has one of its own.
    fn alone(test: &str, work: impl FnOnce()) {
        if std::env::var_os(ALONE).is_some() {
            return work();
        }
        let itself = module_path!().split_once("::").unwrap().1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(format!("{itself}::{test}")).arg("--exact");
        let ended = command.env(ALONE, test).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(
            ended.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }

    fn limits() -> [Option<u64>; 2] {
        let limit = getrlimit(Resource::Nofile);
        [limit.current, limit.maximum]
    }

    fn of_a_program() -> String {
        let mut command = Command::new("/bin/sh");
        let said = limit(command.args(["-c", "ulimit -n"])).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_program_gets_the_limit_that_its_caller_had() {
        alone("a_program_gets_the_limit_that_its_caller_had", || {
            set(100, Some(600)).unwrap();
            assert_eq!([raise(), raise()], [600, 600]);
            assert_eq!(limits(), [Some(600); 2]);
            assert_eq!(of_a_program(), "100");
            give_back(None).unwrap();
            assert_eq!(limits(), [Some(100), Some(600)]);
            assert_eq!((of_programs(), of_a_program().as_str()), (None, "100"));
        });
    }

    #[test]
    fn limits_of_a_programs_own_count() {
        alone("limits_of_a_programs_own_count", || {
            set(100, Some(600)).unwrap();
            raise();
            limit_programs(50, 500).unwrap();
            assert_eq!((limits()[0], of_a_program().as_str()), (Some(600), "50"));
            give_back(None).unwrap();
            assert_eq!(limits(), [Some(50), Some(500)]);
            raise();
            let own = OpenFilesLimit {
                soft: 70,
                hard: Some(400),
            };
            give_back(Some(own)).unwrap();
            assert_eq!(limits(), [Some(70), Some(400)]);
            assert!(limit_programs(5, 4).is_err());
        });
    }

    #[test]
    fn a_limit_that_is_not_raised_stays() {
        alone("a_limit_that_is_not_raised_stays", || {
            set(600, Some(600)).unwrap();
            assert_eq!(raise(), 600);
            let own = OpenFilesLimit {
                soft: 70,
                hard: None,
            };
            give_back(Some(own)).unwrap();
            assert_eq!((limits(), of_programs()), ([Some(600); 2], None));
        });
    }
}
