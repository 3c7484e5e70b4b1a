//! SHELL. The verifying process's side of the program inside: its standard descriptors, input, output and end.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use serde::Serialize;

use super::inside::{Answer, OutputLine};
use super::probe::Finding;
use super::promise::Promise;
use crate::egress::tried::{TRIED_WITHIN, TriedPorts};
use crate::runtime::foreground::relay::Stdio;
use crate::sys::socket;

/// Time for its end.
const END_WITHIN: Duration = Duration::from_secs(1);
/// More bytes than all lines of all probes.
const MOST: usize = 1 << 20;

/// Our ends of the pipes.
pub struct ProbePipes {
    input: OwnedFd,
    output: OwnedFd,
}

/// The output of the program inside.
pub struct ProbeOutput {
    /// Findings, in the order of the output.
    pub findings: Vec<(String, Finding)>,
    /// Other lines: libcontainer's log under `--debug`, and errors of the program inside.
    noise: String,
    /// Whether its last line arrived.
    complete: bool,
}

impl ProbeOutput {
    /// Logs the other lines, as a warning if the output is incomplete.
    pub fn log_noise(&self) {
        let level = match self.complete {
            true => log::Level::Debug,
            false => log::Level::Warn,
        };
        if !self.noise.is_empty() {
            let noise = crate::text::escape(self.noise.trim_end());
            log::log!(level, "the probe process printed: {noise}");
        }
    }
}

impl ProbePipes {
    /// The descriptors of the program inside, and our ends.
    ///
    /// # Errors
    /// From the kernel.
    pub fn begin() -> Result<(Stdio, Self)> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context("make a pipe");
        let (theirs, input) = pipe()?;
        let (output, out) = pipe()?;
        // No process inside can block this one.
        rustix::io::ioctl_fionbio(&input, true).context("set up a pipe")?;
        rustix::io::ioctl_fionbio(&output, true).context("set up a pipe")?;
        let error = out.try_clone().context("copy a pipe")?;
        Ok((
            [Some(theirs), Some(out), Some(error)],
            Self { input, output },
        ))
    }

    /// Sends the promise, and reads the output to its last line. Calls `announce` with the ports of the network
    /// attempts.
    ///
    /// # Errors From the kernel. If the program ends early, or sends nothing in time, its probes were not tried.
    pub fn hear(
        &self,
        promise: &Promise,
        announce: impl Fn(TriedPorts) -> Answer,
    ) -> Result<ProbeOutput> {
        // The program stops by itself earlier.
        let end = Instant::now() + TRIED_WITHIN;
        self.tell(promise, end)?;
        let mut bytes = Vec::new();
        let mut said = ProbeOutput {
            findings: Vec::new(),
            noise: String::new(),
            complete: false,
        };
        while let Some(more) = self.read(end)? {
            bytes.extend(more);
            if bytes.len() > MOST {
                bail!("the probe process printed more than all results take");
            }
            while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = bytes.drain(..=at).collect();
                match serde_json::from_slice(&line) {
                    Ok(OutputLine::Ports(ports)) => self.tell(&announce(ports), end)?,
                    Ok(OutputLine::Finding { probe, finding }) => {
                        said.findings.push((probe, finding))
                    }
                    Ok(OutputLine::Done) => {
                        said.complete = true;
                        return Ok(said);
                    }
                    Err(_) => said.noise += &String::from_utf8_lossy(&line),
                }
            }
        }
        Ok(said)
    }

    /// Sends one line.
    fn tell(&self, what: &impl Serialize, end: Instant) -> Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        let mut rest = &line[..];
        while !rest.is_empty() {
            match rustix::io::write(&self.input, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if Instant::now() < end => {
                    let left = end.saturating_duration_since(Instant::now());
                    let mut polled = [PollFd::new(&self.input, PollFlags::OUT)];
                    rustix::event::poll(&mut polled, Some(&Timespec::try_from(left)?))?;
                }
                // It has ended, or does not read. Its output will show that.
                Err(Errno::PIPE | Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error).context("write to the probe process"),
            }
        }
        Ok(())
    }

    /// Reads what is available; `None` at the end of the output or of the time.
    fn read(&self, end: Instant) -> Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; 4096];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !socket::wait_readable(self.output.as_fd(), left)? {
                return Ok(None);
            }
            match rustix::io::read(&self.output, &mut buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => {
                    buffer.truncate(length);
                    return Ok(Some(buffer));
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error).context("read from the probe process"),
            }
        }
    }

    /// Ends the program, a child of this process: by closing its input, or else by SIGKILL.
    ///
    /// # Errors
    /// From the kernel, or if it does not end.
    pub fn end(self, pid: i32) -> Result<()> {
        drop(self.input);
        let pid = Pid::from_raw(pid).context("the kernel gave no process id")?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .context("watch the probe process")?;
        if !socket::wait_readable(process.as_fd(), END_WITHIN)? {
            rustix::process::pidfd_send_signal(&process, Signal::KILL)
                .context("end the probe process")?;
            if !socket::wait_readable(process.as_fd(), END_WITHIN)? {
                bail!("the probe process {pid} was killed and has not ended");
            }
        }
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()))
            .context("wait for the probe process")?;
        Ok(())
    }
}
