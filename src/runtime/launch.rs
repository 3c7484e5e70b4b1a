//! What the processes of `create` and `exec` have in common.

use std::ffi::CString;
use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::syscall::syscall::SyscallType;
use oci_spec::runtime::{LinuxNamespaceType, Process, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;

use crate::enforce::executor::WallExecutor;
use crate::enforce::leader::Leader;
use crate::enforce::program::ContainerProgram;
use crate::enforce::unconfined::Keyring;
use crate::plan::CapabilitySets;
use crate::runtime::RuntimeError;
use crate::runtime::foreground::relay::Stdio;
use crate::runtime::input::descriptors::StandardStreams;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::sys::process::borrow_inherited;

/// Where a process's standard descriptors come from.
#[derive(Default)]
pub struct Streams<'a> {
    /// The socket that gets its pseudo-terminal, if it has one.
    pub console: Option<&'a Path>,
    /// In place of the caller's descriptors.
    pub stdio: Stdio,
    /// Whether the caller stays to relay them.
    pub relayed: bool,
    /// What the init process is.
    pub leader: Leader,
    /// The program that the process executes.
    pub program: ContainerProgram,
    /// Whether the container's run stays.
    pub leaves: RunRetention,
}

impl Streams<'_> {
    /// Whether the process gets the caller's own standard descriptors.
    pub fn standard(&self) -> StandardStreams {
        match self.relayed || self.stdio.iter().all(Option::is_some) {
            true => StandardStreams::Replaced,
            false => StandardStreams::Callers,
        }
    }
}

/// The container's standard error, which is also this process's.
#[derive(Debug, Clone, Copy)]
pub struct StandardError;

impl StandardError {
    /// Writes a line before the program does, where it is apart from standard output: no reader of that (`2>&1 | jq`) gets
    /// it. A full pipe, or a reader that is gone, loses the line and delays nothing.
    pub fn begin(self, line: &str) {
        let Some(fd) = borrow_inherited(2) else {
            return;
        };
        if borrow_inherited(1).is_some_and(|output| is_same_file(output, fd)) {
            return;
        }
        let mut ready = [PollFd::new(&fd, PollFlags::OUT)];
        let polled = poll(&mut ready, Some(&Timespec::default()));
        if polled == Ok(1) && ready[0].revents() == PollFlags::OUT && !rustix::termios::isatty(fd) {
            let _told = rustix::io::write(fd, line.as_bytes());
        }
    }
}

/// Whether two descriptors are of one file, pipe or socket. Of those that cannot be compared, the line stays away.
fn is_same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let identity = |fd: BorrowedFd<'_>| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    match (identity(one), identity(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => true,
    }
}

/// What stays after a container's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunRetention {
    /// Its run.
    #[default]
    Run,
    /// Nothing: a trial container, which ran no workload.
    Nothing,
}

/// The file of this program, for [`ContainerProgram::Own`]. Call [`super::seal::ensure`] first: then it is a read-only,
/// detached mount.
pub fn own_file() -> Result<OwnedFd, RuntimeError> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/exe", flags, rustix::fs::Mode::empty())
        .map_err(RuntimeError::io("open the runtime's own file"))
}

/// Refuses capability sets that the kernel would refuse, before anything of the container runs.
pub fn refuse_contradiction(sets: &CapabilitySets) -> Result<(), RuntimeError> {
    match sets.contradiction() {
        Some(found) => Err(RuntimeError::Capability {
            name: found.capability.to_string(),
            set: found.set,
            needs: found.needs,
        }),
        None => Ok(()),
    }
}

/// Without `oomScoreAdj` a process inherits the runtime's score, which engines keep low. Under a policy it gets 0, so
/// that the OOM killer does not choose the node's own programs first.
pub fn own_oom_score(process: &mut Process) {
    let inherited = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    if process.oom_score_adj().is_none() && inherited.starts_with('-') {
        process.set_oom_score_adj(Some(0));
    }
}

/// The session keyring of the processes of a container without a policy.
pub fn keyring(record: &Record) -> Keyring {
    match CString::new(format!("_ses.{}", record.id)) {
        Ok(_) if record.no_new_keyring => Keyring::Inherited,
        Ok(name) => Keyring::Named(name),
        Err(_) => Keyring::New,
    }
}

/// Whether the container gets a user namespace of its own.
pub fn has_user_namespace(spec: &Spec) -> bool {
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    namespaces
        .into_iter()
        .flatten()
        .any(|n| n.typ() == LinuxNamespaceType::User)
}

/// What `create` tells libcontainer, where that makes the process.
pub fn builder(
    place: &ContainerPaths,
    executor: WallExecutor,
    stdio: Stdio,
) -> Result<ContainerBuilder, LibcontainerError> {
    let mut builder = ContainerBuilder::new(place.id.as_str().to_owned(), SyscallType::default())
        .with_executor(executor)
        .with_root_path(&place.root)?;
    let [input, output, error] = stdio;
    if let Some(fd) = input {
        builder = builder.with_stdin(fd);
    }
    if let Some(fd) = output {
        builder = builder.with_stdout(fd);
    }
    if let Some(fd) = error {
        builder = builder.with_stderr(fd);
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// `2>&1`: a program that parses the output must not get the line.
    #[test]
    fn two_descriptors_of_one_file_are_recognised() {
        let open = |path: &str| File::open(path).unwrap();
        let (null, again) = (open("/dev/null"), open("/dev/null"));
        assert!(is_same_file(null.as_fd(), again.as_fd()));
        let (reader, writer) = std::io::pipe().unwrap();
        let (_other, apart) = std::io::pipe().unwrap();
        let copy = writer.try_clone().unwrap();
        assert!(is_same_file(writer.as_fd(), copy.as_fd()));
        assert!(!is_same_file(writer.as_fd(), apart.as_fd()));
        assert!(!is_same_file(writer.as_fd(), null.as_fd()));
        drop(reader);
    }
}
