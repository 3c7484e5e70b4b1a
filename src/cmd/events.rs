//! `events`: a container's resource usage and out-of-memory events, one JSON object a line.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libcontainer::container::ContainerStatus;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use serde::Serialize;

use crate::cgroup::controllers::Controllers;
use crate::cgroup::oom::OomWatch;
use crate::cgroup::stats;
use crate::cli::{Events, GlobalOptions};
use crate::cmd::out::{self, Reader};
use crate::runtime::state::find;
use crate::runtime::state::record::Record;
use crate::runtime::status;

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<stats::Stats>,
}

impl Event<'_> {
    fn print(&self) -> Result<Reader> {
        out::line(&crate::text::escape_json(&serde_json::to_string(self)?))
    }
}

/// Prints one sample, or samples until the container has ended.
pub fn run(global: &GlobalOptions, args: &Events) -> Result<ExitCode> {
    let interval = duration(&args.interval)
        .filter(|d| !d.is_zero())
        .with_context(|| {
            format!(
                "--interval {:?}: use a duration above 0 such as 500ms, 5s or 1m30s",
                args.interval
            )
        })?;
    let place = find::place(global, &args.id)?;
    if status::load(&place)?.status() == ContainerStatus::Stopped {
        bail!("container with id {} is not running", args.id);
    }
    let record = Record::read(&place.dir())?;
    let controllers = record.own_cgroup("count the use of")?;
    let event = |kind, data| Event {
        kind,
        id: &args.id,
        data,
    };
    if args.stats {
        event("stats", Some(stats::read(&controllers))).print()?;
        return Ok(ExitCode::SUCCESS);
    }
    let init = record.init.and_then(|i| Pid::from_raw(i.pid));
    let init = init.context("the container has no process")?;
    watch(&controllers, init, interval, &event)?;
    Ok(ExitCode::SUCCESS)
}

fn watch<'a>(
    controllers: &Controllers,
    init: Pid,
    interval: Duration,
    event: &impl Fn(&'static str, Option<stats::Stats>) -> Event<'a>,
) -> Result<()> {
    let ended = rustix::process::pidfd_open(init, PidfdFlags::empty())
        .context("watch the container's process")?;
    let mut oom = OomWatch::begin(controllers)?;
    let mut next = Instant::now() + interval;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).context("--interval is too long")?;
        let mut fds = vec![PollFd::new(&ended, PollFlags::IN)];
        if let Some(oom) = &oom {
            fds.push(PollFd::from_borrowed_fd(oom.fd(), PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).context("wait for events"),
        }
        let ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
        drop(fds);
        // Before the end: running out of memory may be its cause.
        if ready.get(1) == Some(&true)
            && oom.as_mut().is_some_and(OomWatch::happened)
            && event("oom", None).print()? == Reader::Gone
        {
            return Ok(());
        }
        if ready[0] {
            return Ok(());
        }
        if Instant::now() >= next {
            if event("stats", Some(stats::read(controllers))).print()? == Reader::Gone {
                return Ok(());
            }
            next += interval;
        }
    }
}

/// A duration as Go writes it: `1h`, `1m30s`, `1.5s`, `500ms`, `10us`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        seconds += number
            * match &rest[..end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[end..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_in_go() {
        for (text, millis) in [
            ("5s", 5000),
            ("100ms", 100),
            ("1m30s", 90_000),
            ("1.5s", 1500),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for bad in ["5", "s", "5x", "-1s", "1..5s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
