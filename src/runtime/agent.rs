//! The seccomp agent: a program beside the engine that answers the system calls for which a profile says
//! `SCMP_ACT_NOTIFY` (runtime-spec, config-linux.md, "Seccomp" and "The Container Process State").
//!
//! Only the process that loads a filter gets its listener. As with runc, that process writes the listener's number with
//! write(2) and waits. So the profile may neither deny write(2) nor leave it to the agent. The runtime copies the
//! listener with pidfd_getfd(2) and sends it to the agent. The profile may therefore leave every other call to the
//! agent, even those that the process itself still makes.
//!
//! Without a policy this happens at `create`. There and at `exec`, libcontainer keeps the runtime busy, so a forked
//! child does it. Under a policy the init process loads its filter at `start`, and `start` does it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use oci_spec::runtime::LinuxSeccomp;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::enforce::listener::AgentSocket;
use crate::runtime::error::{AgentError, RuntimeError};
use crate::runtime::files::write_whole;
use crate::runtime::state::record::Record;
use crate::seccomp::{NotifyListener, SyscallFilter};
use crate::sys::owned_child::OwnedChild;
use crate::sys::socket;

const FILE: &str = "agent.json";

/// How long a process may take to load its filter and report it, and how long the runtime may take to answer.
const WITHIN: Duration = Duration::from_secs(30);

/// The agent, saved in the container's directory for `start` and `exec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SeccompAgent {
    /// linux.seccomp.listenerPath: a socket's path, or `@` and an abstract name.
    path: String,
    /// linux.seccomp.listenerMetadata
    metadata: String,
    /// Under a policy: the init process's descriptor that holds the runtime's end of their socket until `start`.
    kept_in_init: Option<i32>,
}

/// The state that the agent is told, in the specification's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// `create`: the container is not created before its filter is loaded.
    Creating,
    /// `start` under a policy.
    Created,
    /// `exec`
    Running,
}

impl SeccompAgent {
    /// The agent that a filter needs; `None` if no rule uses one. The words of the errors are runc's.
    pub fn of(
        engine: Option<&LinuxSeccomp>,
        filter: Option<&SyscallFilter>,
    ) -> Result<Option<Self>, RuntimeError> {
        let Some(engine) = engine
            .filter(|_| filter.is_some_and(|filter| filter.listener == NotifyListener::Agent))
        else {
            return Ok(None);
        };
        let path = engine.listener_path().clone().unwrap_or_default();
        let path = path.into_os_string().into_string().unwrap_or_default();
        if path.is_empty() {
            return Err(AgentError::NoPath.into());
        }
        let agent = Self {
            path,
            metadata: engine.listener_metadata().clone().unwrap_or_default(),
            kept_in_init: None,
        };
        // Now, while there is nothing to undo: a missing agent fails `create`.
        agent.connect()?;
        Ok(Some(agent))
    }

    /// Saves it for `start` and `exec`.
    pub fn save(&self, dir: &Path) -> Result<(), RuntimeError> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec(self).map_err(|e| RuntimeError::Input {
            path: path.clone(),
            why: e.to_string(),
        })?;
        write_whole(&path, &text)
    }

    /// Reads the saved agent; `None` if the container has none.
    pub fn read(dir: &Path) -> Result<Option<Self>, RuntimeError> {
        let path = dir.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        crate::runtime::input::bundle::read_json(&path).map(Some)
    }

    /// For the init process under a policy: it keeps both ends, and the runtime fetches its end at `start`.
    pub fn socket_kept_in_init(&mut self) -> Result<AgentSocket, RuntimeError> {
        let (near, far) = channel()?;
        self.kept_in_init = Some(far.as_raw_fd());
        Ok(AgentSocket {
            near,
            far: Some(far),
        })
    }

    /// For `start`: the end that [`SeccompAgent::socket_kept_in_init`] left; `None` if `create` has done everything.
    pub fn fetch(&self, init: i32) -> Result<Option<OwnedFd>, RuntimeError> {
        self.kept_in_init
            .map(|number| copy(init, number))
            .transpose()
    }

    fn connect(&self) -> Result<OwnedFd, RuntimeError> {
        let failed = |e: rustix::io::Errno| {
            RuntimeError::io(format!(
                "failed to connect with seccomp agent specified in the seccomp profile: {:?}",
                self.path
            ))(e)
        };
        let address = match self.path.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(&self.path),
        }
        .map_err(failed)?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(failed)?;
        rustix::net::connect(&socket, &address).map_err(failed)?;
        Ok(socket)
    }

    /// For `start`: sends the init process's listener to the agent. Stops if the init process ends, or reports an
    /// error, before it has loaded its filter.
    pub fn serve(
        &self,
        far: &OwnedFd,
        reader: &OwnedFd,
        record: &Record,
    ) -> Result<(), RuntimeError> {
        let ready = socket::wait_any([far.as_fd(), reader.as_fd()], WITHIN)
            .map_err(RuntimeError::io("wait for the seccomp listener"))?;
        match ready {
            [true, _] => {
                let (pid, number) = heard(far.as_fd())?;
                self.bring(far.as_fd(), pid, number, record, Moment::Created)
                    .inspect_err(|_| end(pid))
            }
            // `start` prints the report.
            [false, true] => Ok(()),
            [false, false] => Err(AgentError::NotLoaded(WITHIN.as_secs()).into()),
        }
    }

    fn bring(
        &self,
        far: BorrowedFd<'_>,
        pid: i32,
        number: i32,
        record: &Record,
        moment: Moment,
    ) -> Result<(), RuntimeError> {
        let listener = copy(pid, number)?;
        let step = || format!("send the seccomp listener to {:?}", self.path);
        let text = self.message(record, pid, moment).to_string();
        let agent = self.connect()?;
        socket::send_stream(agent.as_fd(), text.as_bytes(), &[listener.as_fd()])
            .map_err(RuntimeError::io(step()))?;
        socket::send(far, b"+", &[]).map_err(RuntimeError::io("answer the container's process"))
    }

    /// The container process state.
    fn message(&self, record: &Record, pid: i32, moment: Moment) -> serde_json::Value {
        let status = match moment {
            Moment::Creating => "creating",
            Moment::Created => "created",
            Moment::Running => "running",
        };
        let init = match moment {
            Moment::Creating => pid,
            Moment::Created | Moment::Running => record.init.map_or(pid, |init| init.pid),
        };
        json!({
            "ociVersion": record.oci_version,
            "fds": ["seccompFd"],
            "pid": pid,
            "metadata": self.metadata,
            "state": {
                "ociVersion": record.oci_version,
                "id": record.id,
                "status": status,
                "pid": init,
                "bundle": record.bundle,
                "annotations": record.annotations,
            },
        })
    }
}

/// The socket between a process of the container and the runtime: the process's end, and ours.
fn channel() -> Result<(OwnedFd, OwnedFd), RuntimeError> {
    fn step<E: Into<std::io::Error>>(error: E) -> RuntimeError {
        RuntimeError::io("make a socket for the seccomp listener")(error)
    }
    let (near, far) = socket::pair().map_err(step)?;
    // The kernel then adds the sender's pid to the message, as our pid namespace sees it.
    rustix::net::sockopt::set_socket_passcred(&far, true).map_err(step)?;
    rustix::net::sockopt::set_socket_timeout(
        &near,
        rustix::net::sockopt::Timeout::Recv,
        Some(WITHIN),
    )
    .map_err(step)?;
    Ok((near, far))
}

/// The process that loaded the filter, and the listener's number in it.
fn heard(far: BorrowedFd<'_>) -> Result<(i32, i32), RuntimeError> {
    let mut buffer = [0; 4];
    let message = socket::receive_with_sender(far, &mut buffer, WITHIN)
        .map_err(RuntimeError::io("hear of the seccomp listener"))?;
    match message {
        (4, Some(pid)) => Ok((pid, i32::from_ne_bytes(buffer))),
        _ => Err(AgentError::Ended.into()),
    }
}

/// A copy of another process's descriptor.
fn copy(pid: i32, number: i32) -> Result<OwnedFd, RuntimeError> {
    let failed = || RuntimeError::io(format!("copy descriptor {number} of process {pid}"));
    let pid = Pid::from_raw(pid).ok_or(RuntimeError::NotRunning)?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(failed())?;
    rustix::process::pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).map_err(failed())
}

/// Forks a child that sends the listener to the agent while libcontainer creates the container. The calling process must be
/// single-threaded. Errors reach `create` through the report pipe.
pub fn serve_in_child(
    agent: &SeccompAgent,
    record: &Record,
    report: &Path,
    moment: Moment,
) -> Result<(OwnedChild, AgentSocket), RuntimeError> {
    let (near, far) = channel()?;
    let work = || match serve_from_child(agent, far.as_fd(), record, report, moment) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    let child = OwnedChild::fork("the child that serves the seccomp agent", work)
        .map_err(RuntimeError::io("fork a child"))?;
    Ok((child, AgentSocket { near, far: None }))
}

fn serve_from_child(
    agent: &SeccompAgent,
    far: BorrowedFd<'_>,
    record: &Record,
    report: &Path,
    moment: Moment,
) -> Result<(), RuntimeError> {
    // The child has copies of all the runtime's descriptors, also of the process's end, so it never sees the socket close.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(RuntimeError::io("ask to end with the runtime"))?;
    let writer = crate::runtime::state::report::writer(report)?;
    let (pid, number) = heard(far)?;
    let Err(error) = agent.bring(far, pid, number, record, moment) else {
        return Ok(());
    };
    // Send the reason first: the runtime looks for it when the process ends.
    let text = crate::log::chain(&error);
    rustix::io::write(&writer, text.as_bytes()).map_err(RuntimeError::io("report"))?;
    end(pid);
    Err(error)
}

/// Kills a process that waits for an answer that will not come, perhaps inside an endless call.
fn end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = rustix::process::kill_process(pid, Signal::KILL)
    {
        log::debug!("kill the process that has no agent: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::runtime::state::record::ProcessId;

    fn profile(more: &str) -> LinuxSeccomp {
        let text = format!(
            r#"{{"defaultAction": "SCMP_ACT_ALLOW", {more}
                "syscalls": [{{"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn agent(profile: &LinuxSeccomp) -> Result<Option<SeccompAgent>, RuntimeError> {
        let filter = super::super::filter::compile(None, Some(profile)).unwrap();
        SeccompAgent::of(Some(profile), filter.as_ref())
    }

    fn record() -> Record {
        Record {
            annotations: [("a".to_owned(), "b".to_owned())].into(),
            init: Some(ProcessId {
                pid: 7,
                start_time: 1,
            }),
            filtered: true,
            ..Record::bare("c")
        }
    }

    #[test]
    fn a_notify_rule_needs_a_reachable_agent() {
        let error = |more: &str| crate::log::chain(&agent(&profile(more)).unwrap_err());
        assert!(error("").contains("seccomp listenerPath is not set"));
        assert!(error(r#""listenerPath": "","#).contains("seccomp listenerPath is not set"));
        for path in ["/nonexistent/agent.sock", "@nobody-listens-here"] {
            let more = format!(r#""listenerPath": {path:?},"#);
            assert!(error(&more).starts_with("failed to connect with seccomp agent"));
        }
    }

    #[test]
    fn an_agent_path_without_a_notify_rule_is_ignored() {
        let text =
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/nonexistent/agent.sock"}"#;
        let profile: LinuxSeccomp = serde_json::from_str(text).unwrap();
        assert_eq!(agent(&profile).unwrap(), None);
    }

    /// This process plays the container's process: it announces a descriptor, and the agent gets a copy and the state.
    #[test]
    fn the_agent_gets_the_listener_and_the_state_of_the_process() {
        let dir = std::env::temp_dir().join(format!("agentbox-agent-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("agent.sock");
        let server = UnixListener::bind(&path).unwrap();
        let more = format!(r#""listenerPath": {path:?}, "listenerMetadata": "m","#);
        let agent = agent(&profile(&more)).unwrap().unwrap();
        agent.save(&dir).unwrap();
        assert_eq!(SeccompAgent::read(&dir).unwrap().as_ref(), Some(&agent));
        drop(server.accept().unwrap());

        let (near, far) = channel().unwrap();
        let (ours, theirs) = std::io::pipe().unwrap();
        rustix::io::write(&near, &theirs.as_raw_fd().to_ne_bytes()).unwrap();
        let (pid, number) = heard(far.as_fd()).unwrap();
        agent
            .bring(far.as_fd(), pid, number, &record(), Moment::Running)
            .unwrap();
        let mut answer = [0];
        assert_eq!(rustix::io::read(&near, &mut answer), Ok(1));

        let (stream, _) = server.accept().unwrap();
        let mut buffer = vec![0; 4096];
        let received = socket::receive(stream.as_fd(), &mut buffer).unwrap();
        let state: serde_json::Value = serde_json::from_slice(&buffer[..received.len]).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(state["fds"], json!(["seccompFd"]));
        assert_eq!(
            (&state["pid"], &state["metadata"]),
            (&json!(own), &json!("m"))
        );
        assert_eq!(
            state["state"],
            json!({
                "ociVersion": "1.0.2", "id": "c", "status": "running", "pid": 7, "bundle": "/b",
                "annotations": {"a": "b"},
            })
        );
        // The copy refers to the same pipe.
        drop(theirs);
        rustix::io::write(&received.fds[0], b"x").unwrap();
        drop(received);
        let mut text = String::new();
        (&ours).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_process_that_ends_silently_is_an_error() {
        let (near, far) = channel().unwrap();
        drop(near);
        assert!(heard(far.as_fd()).is_err());
    }
}
