//! Signals to a container's processes: by pidfd to one process, by the cgroup to all.

use std::time::{Duration, Instant};

use libcgroups::common::{
    AnyCgroupManager, CgroupConfig, CgroupManager, FreezerState, create_cgroup_manager,
};
use libcontainer::container::{Container, ContainerStatus};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::runtime::RuntimeError;
use crate::runtime::state::record::ProcessId;

/// How long processes may take to die of SIGKILL.
pub const END_WITHIN: Duration = Duration::from_secs(10);

/// Parses `KILL`, `SIGKILL`, `kill` or `9`, and SIGRTMIN+n. `None` is signal 0, which only tests whether a process
/// exists (kill(2)).
pub fn parse(text: &str) -> Result<Option<Signal>, RuntimeError> {
    if text == "0" {
        return Ok(None);
    }
    parse_real(text).map(Some)
}

fn parse_real(text: &str) -> Result<Signal, RuntimeError> {
    let unknown = || RuntimeError::Signal(text.chars().take(40).collect());
    if let Ok(number) = text.parse::<i32>() {
        return crate::sys::signal::of(number).ok_or_else(unknown);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(offset) = name
        .strip_prefix("RTMIN")
        .map(|r| r.trim_start_matches('+'))
    {
        let offset: i32 = if offset.is_empty() {
            0
        } else {
            offset.parse().map_err(|_| unknown())?
        };
        return crate::sys::signal::of(libc::SIGRTMIN() + offset).ok_or_else(unknown);
    }
    let signal: nix::sys::signal::Signal = format!("SIG{name}").parse().map_err(|_| unknown())?;
    crate::sys::signal::of(signal as i32).ok_or_else(unknown)
}

/// Sends a signal to the process with this pid and start time; `false` if it has ended.
pub fn send(process: ProcessId, signal: Signal) -> Result<bool, RuntimeError> {
    let Some(pid) = rustix::process::Pid::from_raw(process.pid) else {
        return Ok(false);
    };
    let step = || format!("signal process {}", process.pid);
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(false),
        Err(e) => return Err(RuntimeError::io(step())(e)),
    };
    // The pid may have been reused before the descriptor was opened; check afterwards.
    if !process.is_alive() {
        return Ok(false);
    }
    match pidfd_send_signal(&pidfd, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(e) => Err(RuntimeError::io(step())(e)),
    }
}

/// Sends SIGKILL to a process; it may have ended.
pub fn kill_process(process: ProcessId) -> Result<(), RuntimeError> {
    send(process, Signal::KILL).map(|_| ())
}

/// Waits, in short steps, until a killed process is gone: its cgroup cannot be removed earlier.
pub fn wait_for_end(process: ProcessId) {
    wait_for_end_within(process, END_WITHIN);
}

/// The same, for so long.
pub fn wait_for_end_within(process: ProcessId, time: Duration) {
    let end = Instant::now() + time;
    let mut pause = Duration::from_micros(200);
    while process.is_alive() && Instant::now() < end {
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Sends a signal to every process in the container's cgroup. The cgroup is frozen meanwhile, so that none can fork
/// away.
pub fn kill_all(container: &Container, signal: Signal) -> Result<(), RuntimeError> {
    let cgroup = cgroup(container)?;
    let failed = |step| RuntimeError::container(step);
    if all(container)?.is_empty() {
        return Ok(());
    }
    // A cgroup without a freezer can still be signalled.
    let frozen = cgroup.freeze(FreezerState::Frozen).is_ok();
    let pids = listed(&cgroup);
    let mut result = Ok(());
    for pid in pids.iter().flatten() {
        if let Some(process) = ProcessId::of(pid.as_raw())
            && let Err(error) = send(process, signal)
        {
            result = Err(error);
        }
    }
    if frozen {
        cgroup
            .freeze(FreezerState::Thawed)
            .map_err(failed("thaw the container"))?;
    }
    // After the thaw: without it the container would stay frozen.
    pids.and(result)
}

/// The pids in a cgroup and below it. A timekeeper of an `exec` may remove a cgroup below it meanwhile.
pub fn listed(cgroup: &AnyCgroupManager) -> Result<Vec<Pid>, RuntimeError> {
    const TRIES: usize = 5;
    let mut tried = cgroup.get_all_pids();
    for _ in 1..TRIES {
        if tried.is_ok() {
            break;
        }
        tried = cgroup.get_all_pids();
    }
    tried.map_err(RuntimeError::container("list the container's processes"))
}

/// The pids in a container's cgroup.
pub fn all(container: &Container) -> Result<Vec<Pid>, RuntimeError> {
    listed(&cgroup(container)?).or_else(|error| none_if_over(container, error))
}

/// If the cgroup is gone with its processes (a kubelet removes it), there are none: as with runc.
fn none_if_over(container: &Container, error: RuntimeError) -> Result<Vec<Pid>, RuntimeError> {
    if !is_over(container) {
        return Err(error);
    }
    log::debug!("{}", crate::log::chain(&error));
    Ok(Vec::new())
}

/// Whether a container's init process has ended.
fn is_over(container: &Container) -> bool {
    container.status() == ContainerStatus::Stopped
}

/// The container's cgroup.
pub fn cgroup(container: &Container) -> Result<AnyCgroupManager, RuntimeError> {
    let config = container
        .spec()
        .map_err(RuntimeError::container("read the container's cgroup path"))?;
    create_cgroup_manager(CgroupConfig {
        cgroup_path: config.cgroup_path,
        systemd_cgroup: container.systemd(),
        container_name: container.id().to_owned(),
    })
    .map_err(RuntimeError::container("open the container's cgroup"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for text in ["KILL", "SIGKILL", "kill", "9"] {
            assert_eq!(parse(text).expect(text), Some(Signal::KILL));
        }
        assert_eq!(
            parse("SIGRTMIN+3")
                .expect("a real-time signal")
                .map(Signal::as_raw),
            Some(libc::SIGRTMIN() + 3)
        );
        assert_eq!(parse("0").expect("the question"), None);
        for text in ["", "SIGNOPE", "0x9", "-1", "65", "RTMIN+99"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
