//! SHELL. Ends all processes of a run at once, however fast they fork, from Linux 6.12 on.
//!
//! Before its walls, the command's process enters a domain that restricts signals alone, and makes a keeper in it, a child
//! of `wrap`. A process in such a domain reaches only processes of the domain (LANDLOCK_SCOPE_SIGNAL, landlock(7)), so
//! that kill(2) of -1 by the keeper ends what the run has left and nothing else. No process that is being made escapes:
//! fork(2) takes the lock under which the kernel goes through the list, and fails where a signal is pending
//! (copy_process, kernel/fork.c). The walls' own domain keeps the command from signals to the keeper.
//!
//! The keeper acts when `wrap` asks, when `wrap` is gone, and when the time is over and `wrap` is held up ([`super::clock`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::Shutdown;

use super::enforce::LandlockSetup;
use super::{cannot, clock};
use crate::plan::TimePlan;
use crate::sys::{process, sibling, socket};

/// Between two rounds while `wrap` is held up.
const ROUND: Duration = Duration::from_millis(500);
/// How long `wrap` waits for the keeper's work. Any value from 1 to 10 s works; 2 is a guess.
const WITHIN: Duration = Duration::from_secs(2);

/// What the keeper gets.
pub struct DomainSetup {
    line: OwnedFd,
    timer: Option<OwnedFd>,
    abi: u32,
}

/// The first ABI that lets a domain log nothing (Linux 6.15).
const QUIET_ABI: u32 = 7;

/// `wrap`'s end. Dropping it ends all processes of the run.
pub struct DomainLine(OwnedFd);

/// The domain of a run where the kernel has scopes for signals; otherwise the second keeper of its time. Time counts from
/// here on.
pub fn prepare(
    time: Option<TimePlan>,
    abi: u32,
    walls: &mut LandlockSetup,
) -> Result<Option<DomainLine>> {
    let timer = time.map(clock::timer).transpose()?.flatten();
    if abi < cannot::LANDLOCK_SCOPES_ABI {
        timer.as_ref().map_or(Ok(()), clock::start)?;
        return Ok(None);
    }
    let (line, setup) = pair(timer, abi)?;
    walls.domain = Some(setup);
    Ok(Some(line))
}

/// Both ends. `timer` rings when the time is over, and some seconds more.
fn pair(timer: Option<OwnedFd>, abi: u32) -> Result<(DomainLine, DomainSetup)> {
    let (ours, line) = socket::pair().context("make a socket pair")?;
    Ok((DomainLine(ours), DomainSetup { line, timer, abi }))
}

impl DomainLine {
    /// Ends all processes of the run, and waits for the keeper's end. They are reaped afterwards.
    pub fn end_all(self) {
        let asked = rustix::net::shutdown(&self.0, Shutdown::Write).map_err(io::Error::from);
        match asked.and_then(|()| socket::wait_readable(self.0.as_fd(), WITHIN)) {
            Ok(true) => {}
            Ok(false) => log::warn!("the keeper of the run's processes does not answer"),
            Err(error) => log::debug!("ask the keeper of the run's processes: {error}"),
        }
    }
}

/// Enters the domain and makes the keeper, in the command's process. It needs the privilege to enter one, or `no_new_privs`.
pub fn enter(setup: DomainSetup) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty()).context("open the root directory")?;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        // Every domain denies renames and links between directories, unless a rule allows them (LANDLOCK_ACCESS_FS_REFER).
        .and_then(|ruleset| ruleset.handle_access(AccessFs::Refer))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer)))
        // The keeper tries every process of the machine.
        .and_then(|ruleset| match setup.abi >= QUIET_ABI {
            true => ruleset.log_same_exec(false),
            false => Ok(ruleset),
        })
        .and_then(RulesetCreated::restrict_self)
        .context("enter a Landlock domain for signals")?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        bail!("Landlock does not restrict signals: {:?}", status.ruleset);
    }
    // Otherwise the keeper would end all processes of the user.
    match rustix::process::getppid().map(rustix::process::test_kill_process) {
        Some(Err(rustix::io::Errno::PERM)) => {}
        reached => bail!("the Landlock domain does not restrict signals: {reached:?}"),
    }
    sibling::fork_beside(|| match keep(&setup) {
        Ok(()) => 0,
        Err(_) => 1,
    })
    .context("make the keeper of the run's processes")
}

/// The keeper's whole life.
fn keep(DomainSetup { line, timer, .. }: &DomainSetup) -> io::Result<()> {
    rustix::process::setsid()?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty())?;
    // The standard streams stay open below, and a reader of the command's output waits for their end.
    rustix::stdio::dup2_stdin(timer.as_ref().unwrap_or(&null))?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    process::close_all_but(line.as_fd())?;
    let timer = timer.is_some().then(rustix::stdio::stdin);
    if is_rung(line.as_fd(), timer)? {
        while !socket::wait_readable(line.as_fd(), ROUND)? {
            end_domain();
        }
    }
    end_domain();
    Ok(())
}

/// Waits for either; whether it was the timer.
fn is_rung(line: BorrowedFd<'_>, timer: Option<BorrowedFd<'_>>) -> io::Result<bool> {
    let mut fds = [
        PollFd::from_borrowed_fd(line, PollFlags::IN),
        PollFd::from_borrowed_fd(timer.unwrap_or(line), PollFlags::IN),
    ];
    rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
    Ok(fds[0].revents().is_empty())
}

/// Sends SIGKILL to all processes of the domain but this one.
fn end_domain() {
    // EPERM and ESRCH: none is left.
    let _none = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(-1),
        nix::sys::signal::Signal::SIGKILL,
    );
}
