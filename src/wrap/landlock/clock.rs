//! SHELL. A second keeper of the time limit, for a `wrap` that is held up: stopped, or in a call to a file system that does
//! not answer. `wrap` is one thread, and it reads the command's memory and opens files by the command's paths. From Linux
//! 6.12 on [`super::domain`] does this instead.
//!
//! It is a child of `wrap` outside of the command's walls, in a session of its own: no terminal stops it. Some seconds after
//! `wrap` should have ended the command it kills all other processes below `wrap`, until that ends. `wrap` is the subreaper
//! of the command's orphans, so they are all below it. It ends with `wrap`.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal};

use crate::plan::TimePlan;
use crate::sidecar::timekeeper;
use crate::sys::process;
use crate::sys::process_id::parent;

/// How much later than `wrap` it acts. Any value from 2 to 30 s works; 5 is a guess.
const LAG: Duration = Duration::from_secs(5);
/// Between two rounds while processes are left. They may be forking.
const ROUND: Duration = Duration::from_millis(2);
/// Between two rounds while none is left, and `wrap` still is.
const REST: Duration = Duration::from_millis(500);
/// The most steps from a process up to `wrap`. A deeper one is a child of `wrap` once those above it have ended.
const DEEPEST: usize = 64;

/// When a second keeper acts, if the command's time is limited. Time counts from here on.
pub fn timer(plan: TimePlan) -> Result<Option<OwnedFd>> {
    let Some(wall) = plan.wall.lifetime() else {
        return Ok(None);
    };
    // `wrap` sends SIGTERM, and SIGKILL after this time, and once more if that has no effect.
    let grace = Duration::from_secs(plan.grace.seconds().max(1).into());
    let wall = Duration::from_secs(wall.seconds().into());
    let due = timekeeper::now(plan.sleep) + wall + 2 * grace + LAG;
    let step = "set the second timer of the time limit";
    let timer = timekeeper::timer(plan.sleep).context(step)?;
    timekeeper::ring_at(&timer, due).context(step)?;
    Ok(Some(timer))
}

/// Starts it.
pub fn start(timer: &OwnedFd) -> Result<()> {
    let step = "make the second keeper of the time limit";
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty()).context(step)?;
    let wrap = getpid();
    process::fork_into(|| match keep(wrap, timer, &null) {
        Ok(()) => 0,
        Err(_) => 1,
    })
    .context(step)?;
    Ok(())
}

/// The keeper's whole life. It has nothing of `wrap`'s open: neither its output, whose reader waits for its end, nor the listener.
fn keep(wrap: Pid, timer: &OwnedFd, null: &OwnedFd) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(wrap) {
        return Ok(());
    }
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdin(null)?;
    rustix::stdio::dup2_stdout(null)?;
    rustix::stdio::dup2_stderr(null)?;
    process::close_all_but(timer.as_fd())?;
    let mut fds = [PollFd::new(timer, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
    let own = getpid();
    while getppid() == Some(wrap) {
        let found = below(wrap).into_iter().filter(|pid| *pid != own);
        let killed = found.filter(|pid| kill(*pid, wrap)).count();
        std::thread::sleep(if killed > 0 { ROUND } else { REST });
    }
    Ok(())
}

/// The processes below another one, by a table of parents. It may be old when it is used.
fn below(ancestor: Pid) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents: HashMap<i32, i32> = pids
        .filter_map(|pid| Some((pid, parent(pid).ok()?)))
        .collect();
    let found = parents.keys().copied();
    let found = found.filter(|pid| is_below(*pid, ancestor, |pid| parents.get(&pid).copied()));
    found.filter_map(Pid::from_raw).collect()
}

fn is_below(pid: i32, ancestor: Pid, parent: impl Fn(i32) -> Option<i32>) -> bool {
    let above = std::iter::successors(parent(pid), |pid| parent(*pid));
    above.take(DEEPEST).any(|pid| pid == ancestor.as_raw_pid())
}

/// Kills a process below another one. `false` if it has ended: its number may be another process's by now.
fn kill(pid: Pid, ancestor: Pid) -> bool {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    // As long as the opened process lives, the number is its own.
    let is_below = is_below(pid.as_raw_pid(), ancestor, |pid| parent(pid).ok());
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    let lives = poll(&mut fds, Some(&Timespec::default())) == Ok(0);
    is_below && lives && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_processes_below_are_killed() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000; true"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (own, pid) = (getpid(), Pid::from_child(&child));
        let begun = std::time::Instant::now();
        let under = |pid| {
            let found = below(pid);
            found.first().copied()
        };
        while under(pid).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        let sleep = under(pid).unwrap();
        assert!(below(own).contains(&sleep) && below(own).contains(&pid));
        // Neither its parent, nor one beside it, nor itself.
        for (victim, ancestor) in [(pid, sleep), (own, pid), (pid, pid)] {
            assert!(!kill(victim, ancestor));
        }
        assert!(kill(sleep, own));
        // The shell goes on, and ends.
        assert!(child.wait().unwrap().success());
        assert!(!kill(pid, own));
    }

    #[test]
    fn one_that_is_too_deep_waits_for_the_end_of_those_above() {
        let ancestor = Pid::from_raw(10).unwrap();
        let chain = |pid: i32| (pid > 0).then(|| pid - 1);
        let deepest = 10 + i32::try_from(DEEPEST).unwrap();
        assert!(is_below(11, ancestor, chain) && is_below(deepest, ancestor, chain));
        assert!(!is_below(deepest + 1, ancestor, chain));
        assert!(!is_below(10, ancestor, chain) && !is_below(9, ancestor, chain));
    }
}
