//! The sidecar for users who may not make a namespace: `agentbox wrap --walls landlock`.
//!
//! It is a child of `wrap`, with the same user, network and view of processes as the command. The command's Landlock
//! domain separates them: a process in a domain cannot trace a process outside or, from ABI 6 on, signal it. The
//! sidecar itself opens no file, binds no port and has no capability.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::network::with_causes;
use crate::sidecar::attach::routes;
use crate::sidecar::confine::{self, ConfineError, SidecarRlimits};
use crate::sidecar::error::SidecarError;
use crate::sidecar::inside::DenialFile;
use crate::sidecar::protocol::{self, Duty, Reply};
use crate::sidecar::reader;
use crate::sidecar::serve::{self, Clients, EngineNames, ServingConfig};
use crate::sidecar::{ARGV0, filter};
use crate::sys::{process, socket};

/// It takes milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Without an answer, every user of this machine would be served.
const WHOSE: &str = "ask the kernel whose a connection is (CONFIG_INET_DIAG, the module tcp_diag)";

/// What the sidecar serves, and for how long.
#[derive(Debug)]
pub struct BareSidecar {
    /// Rules and budgets; the proxy's port is the only one.
    pub serving: ServingConfig,
    /// The resolvers, and the upstream proxy.
    pub names: EngineNames,
    /// The proxy's listener.
    pub listener: OwnedFd,
    /// Receives a message for each socket that the command gets.
    pub clients: OwnedFd,
    /// The log, opened to append.
    pub journal: OwnedFd,
    /// Whether the command can read its denials, at `/denied` of the proxy.
    pub shows: bool,
    /// The input of its reader of requests, if it has one.
    pub reading: Option<OwnedFd>,
    /// The sidecar ends with the process of this pidfd.
    pub guarded: OwnedFd,
    /// Resource limits.
    pub limits: SidecarRlimits,
}

/// Starts the sidecar, and waits until it is confined. Returns its pidfd. The calling process must be single-threaded.
pub fn spawn(bare: BareSidecar) -> Result<OwnedFd, SidecarError> {
    let (ours, theirs) = socket::pair().map_err(SidecarError::step("make a socket pair"))?;
    // Not clone3(2): engines' filters report that it does not exist.
    let child = process::fork_into(|| {
        let served = live(bare, &theirs);
        if let Err(error) = &served {
            // If `wrap` cannot hear it, it is gone.
            let reason = with_causes(error);
            let told = protocol::send(theirs.as_fd(), "wrap", &Reply::Failed { reason }, &[]);
            drop(told);
        }
        i32::from(served.is_err())
    })
    .map_err(SidecarError::step("make a process"))?;
    drop(theirs);
    let pidfd = rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty())
        .map_err(SidecarError::step("open the sidecar's pidfd"))?;
    match protocol::receive(ours.as_fd(), "sidecar", "reply", READY_WITHIN) {
        Ok((Reply::Ready { .. }, _)) => Ok(pidfd),
        Ok((Reply::Failed { reason }, _)) => Err(SidecarError::Refused { reason }),
        Err(error) => {
            // The sidecar must not outlive the error.
            let _gone = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            Err(SidecarError::Protocol(error))
        }
    }
}

fn live(bare: BareSidecar, ready: &OwnedFd) -> Result<(), SidecarError> {
    let BareSidecar {
        serving,
        names,
        listener,
        clients,
        journal,
        shows,
        reading,
        guarded,
        limits,
    } = bare;
    process::set_name(ARGV0).map_err(SidecarError::step("set the name"))?;
    process::block_signals().map_err(SidecarError::step("block the signals"))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(SidecarError::step("end with the parent"))?;
    leave_the_streams().map_err(SidecarError::step("leave the standard streams"))?;
    let reader = reading
        .map(|reading| reader::start(reading, || confine(limits, Duty::Wait)))
        .transpose()?;
    let program = filter::compile(Duty::Serve)
        .map_err(ConfineError::Filter)
        .map_err(SidecarError::Confine)?;
    // In a static binary the crate opens /dev/urandom once and reads it.
    getrandom::fill(&mut [0]).map_err(|error| SidecarError::Step {
        step: "open the source of randomness",
        source: std::io::Error::other(error.to_string()),
    })?;
    let around = [
        routes("open a routing socket")?,
        routes("open a routing socket")?,
    ];
    let clients = Clients::new(clients, &listener).map_err(SidecarError::step(WHOSE))?;
    let reader = reader.map(reader::StartedReader::ready).transpose()?;
    let landlock_abi = confine(limits, Duty::Serve).map_err(SidecarError::Confine)?;
    confine::seal(&program).map_err(SidecarError::Confine)?;
    let reply = Reply::Ready {
        landlock_abi,
        pid: None,
    };
    protocol::send(ready.as_fd(), "wrap", &reply, &[]).map_err(SidecarError::Protocol)?;
    serve::run_alone(
        serving,
        names,
        serve::ServingParts {
            listener,
            clients,
            journal,
            inside: shows.then(DenialFile::default),
            around,
            reader,
        },
        &guarded,
    )
}

/// The caller's input and output belong to the command.
fn leave_the_streams() -> std::io::Result<()> {
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Drops what can be dropped without a namespace. Returns the Landlock ABI.
fn confine(limits: SidecarRlimits, duty: Duty) -> Result<u32, ConfineError> {
    confine::limit(limits)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(ConfineError::step("become undumpable"))?;
    rustix::thread::set_no_new_privs(true).map_err(ConfineError::step("set no_new_privs"))?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)
        .map_err(ConfineError::step("drop the capabilities"))?;
    let have =
        rustix::thread::capabilities(None).map_err(ConfineError::step("read the capabilities"))?;
    if have != none {
        return Err(confine::not_held("no capability", have));
    }
    let abi = confine::restrict(duty)?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open("/", flags, rustix::fs::Mode::empty()) {
        Err(rustix::io::Errno::ACCESS) => Ok(abi),
        opened => Err(confine::not_held("Landlock", opened)),
    }
}
