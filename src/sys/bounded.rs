#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! Runs a program of the user's for its output: with limits of time and size, in a session of its own, which ends with it.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Uid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use zeroize::Zeroizing;

use super::user_namespace::Ids;
use super::{process, user, user_namespace};

/// How long the kernel may take to end a process.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How often the caller hears that a program still runs.
const CALLED_EVERY: Duration = Duration::from_millis(250);

/// The user as whom a program runs.
#[derive(Debug, Clone)]
pub enum ProgramUser {
    /// The caller.
    Caller,
    /// Another user, for a caller who is root.
    Other {
        /// User and group.
        ids: Ids,
        /// Supplementary groups.
        groups: Vec<u32>,
    },
    /// The user whom a user namespace maps to root, for a caller in it: in one below it, by their own number.
    Below(Ids),
}

/// Limits of a program.
#[derive(Debug, Clone, Copy)]
pub struct OutputLimits {
    /// From its start to its end.
    pub time: Duration,
    /// Of its output.
    pub bytes: usize,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The program cannot be executed, or not be read.
    #[error("cannot be run ({0})")]
    Run(#[from] io::Error),
    /// It took too long.
    #[error("did not end within {0} s, and was killed")]
    Time(u64),
    /// It wrote too much.
    #[error("printed more than {0} bytes, and was killed")]
    Bytes(usize),
    /// It failed.
    #[error("failed ({0})")]
    Status(ExitStatus),
}

/// The output of a program that succeeds. What it leaves in its process group is killed, also after a success, and a process that
/// holds the pipe open is not waited for. `waiting` is called several times a second until then. To be called by a process with one thread.
pub fn output(
    command: &mut Command,
    user: ProgramUser,
    limits: OutputLimits,
    waiting: &mut dyn FnMut(),
) -> Result<Zeroizing<Vec<u8>>, OutputError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let parent = rustix::process::getpid();
    // SAFETY: the closure runs between fork and exec. This process has one thread when it executes programs, so no lock of the
    // allocator is held by another. It makes system calls, and reads what was moved into it.
    unsafe {
        command.pre_exec(move || {
            // Without a terminal: it can neither ask there nor be stopped by it. Also the group that is killed.
            rustix::process::setsid()?;
            // The caller's: with sudo they may be root's.
            process::close_on_exec_from(3)?;
            become_user(&user)?;
            // The limit of time ends with this process. A change of ids clears the setting, and a parent that has ended is too late
            // for it (PR_SET_PDEATHSIG(2const)).
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            match rustix::process::getppid() == Some(parent) {
                true => Ok(()),
                false => Err(io::ErrorKind::BrokenPipe.into()),
            }
        });
    }
    let child = command.spawn()?;
    let mut running = ProgramProcess::of(child)?;
    let read = running.read(limits, waiting);
    let status = running.end();
    let bytes = read?;
    match status? {
        status if status.success() => Ok(bytes),
        status => Err(OutputError::Status(status)),
    }
}

fn become_user(user: &ProgramUser) -> io::Result<()> {
    match user {
        ProgramUser::Caller => Ok(()),
        ProgramUser::Other { ids, groups } => {
            let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
            user::set_groups(groups)?;
            nix::unistd::setresgid(gid, gid, gid)?;
            Ok(nix::unistd::setresuid(uid, uid, uid)?)
        }
        ProgramUser::Below(ids) => {
            user_namespace::unshare_user()?;
            user_namespace::map_one(*ids, Ids { uid: 0, gid: 0 })
        }
    }
}

/// A program that was started.
struct ProgramProcess {
    child: Child,
    group: Pid,
    pidfd: OwnedFd,
    stdout: ChildStdout,
}

impl ProgramProcess {
    fn of(mut child: Child) -> Result<Self, OutputError> {
        let group = Pid::from_child(&child);
        let mut opened = || {
            let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            rustix::io::ioctl_fionbio(&stdout, true)?;
            io::Result::Ok((pidfd_open(group, PidfdFlags::empty())?, stdout))
        };
        match opened() {
            Ok((pidfd, stdout)) => Ok(Self {
                child,
                group,
                pidfd,
                stdout,
            }),
            Err(error) => {
                let _killed = child.kill();
                let _reaped = child.wait();
                Err(error.into())
            }
        }
    }

    /// What it writes until it ends.
    fn read(
        &mut self,
        limits: OutputLimits,
        waiting: &mut dyn FnMut(),
    ) -> Result<Zeroizing<Vec<u8>>, OutputError> {
        let end = Instant::now() + limits.time;
        // Never moved to a larger place, which would leave a copy.
        let mut bytes = Zeroizing::new(Vec::with_capacity(limits.bytes));
        let mut is_open = true;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(OutputError::Time(limits.time.as_secs()));
            }
            waiting();
            let left = left.min(CALLED_EVERY);
            let has_ended = wait(&self.pidfd, is_open.then_some(&self.stdout), left)?;
            is_open = is_open && self.drain(&mut bytes, limits.bytes)?;
            if has_ended {
                return Ok(bytes);
            }
        }
    }

    /// Reads what there is. Returns whether there may be more later.
    fn drain(&mut self, bytes: &mut Vec<u8>, most: usize) -> Result<bool, OutputError> {
        let mut part = Zeroizing::new([0; 4096]);
        loop {
            match self.stdout.read(&mut part[..]) {
                Ok(0) => return Ok(false),
                Ok(length) if bytes.len() + length > most => return Err(OutputError::Bytes(most)),
                Ok(length) => bytes.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills it and its group, whose number is not reused before it is reaped.
    fn end(mut self) -> Result<ExitStatus, OutputError> {
        // The group is empty, or has no other process.
        let _killed = kill_process_group(self.group, Signal::KILL);
        match wait(&self.pidfd, None, ENDS_WITHIN)? {
            true => Ok(self.child.wait()?),
            // The kernel holds it, as on a dead file system.
            false => Err(OutputError::Time(ENDS_WITHIN.as_secs())),
        }
    }
}

/// Waits for output or the end. Returns whether it has ended.
fn wait(pidfd: &OwnedFd, stdout: Option<&ChildStdout>, left: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(left).map_err(io::Error::other)?;
    let mut fds = vec![PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    fds.extend(stdout.map(|stdout| PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN)));
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(!fds[0].revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::program;

    fn said(script: &str, seconds: u64) -> Result<String, OutputError> {
        let mut command = program::command(&program::find("sh").unwrap(), &[]);
        command.args(["-c", script]);
        let limits = OutputLimits {
            time: Duration::from_secs(seconds),
            bytes: 10_000,
        };
        let read = output(&mut command, ProgramUser::Caller, limits, &mut || {})?;
        Ok(String::from_utf8(read.to_vec()).unwrap())
    }

    #[test]
    fn the_output_of_a_program_has_an_end() {
        assert_eq!(said("echo one; echo two", 20).unwrap(), "one\ntwo\n");
        assert_eq!(said("true", 20).unwrap(), "");
        assert_eq!(said("exec >&-; exit 0", 20).unwrap(), "");
        let begin = Instant::now();
        let hangs = said("echo key; exec sleep 1000", 1).unwrap_err();
        assert!(matches!(hangs, OutputError::Time(1)), "{hangs}");
        let closes = said("exec >&-; exec sleep 1000", 1).unwrap_err();
        assert!(matches!(closes, OutputError::Time(1)), "{closes}");
        let much = said("while :; do echo 0123456789abcdef; done", 60).unwrap_err();
        assert!(matches!(much, OutputError::Bytes(10_000)), "{much}");
        let fails = said("echo key; exit 1", 20).unwrap_err();
        assert!(matches!(fails, OutputError::Status(_)), "{fails}");
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_it_leaves_is_killed_and_not_waited_for() {
        let begin = Instant::now();
        // The child holds the pipe.
        let text = said("sleep 1000 & echo $!; echo key", 20).unwrap();
        let (pid, key) = text.split_once('\n').unwrap();
        assert_eq!(key, "key\n");
        // A process that has left the group holds it too.
        assert_eq!(
            said("setsid sleep 30 & sleep 0.2; echo key", 20).unwrap(),
            "key\n"
        );
        assert!(begin.elapsed() < Duration::from_secs(15));
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
        };
        while !is_gone() {
            assert!(begin.elapsed() < Duration::from_secs(15));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
