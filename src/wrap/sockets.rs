//! SHELL. The unix sockets of databases that `--connect` names.
//!
//! A socket counts only where no sandbox could have made it or a link on the way: else a sandbox could have an engine's
//! socket relayed to the next one. The name decides what it is, also behind a link. The server at it says who listens:
//! a renamed socket of an engine is refused by its program. The directory is pinned, so that nothing else takes its
//! place later.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::error::WrapRefusal;
use super::layout::Layout;
use super::person::Person;
use super::planted;
use super::request::WrapRequest;
use super::settings::places;
use crate::cli::Walls;
use crate::kernel::mount_options::{Bits, MountReach, Propagation};
use crate::plan::sockets::{closed_listener, is_database};
use crate::policy::ResolvedPolicy;
use crate::policy::connect::ServiceSocket;
use crate::runtime::user_relay::{UserSocket, UserSockets};
use crate::sidecar::user_relay::SocketTarget;
use crate::sys::mount::{change, copy};
use crate::sys::path::resolve_within_owned;
use crate::sys::socket;

/// A socket that was found, and its directory.
struct FoundSocket {
    directory: File,
    name: OsString,
    socket: OwnedFd,
}

/// The program that listens.
struct Listener {
    /// The server's user, as this user namespace shows it.
    user: u32,
    /// Its name, if the kernel tells.
    program: Option<String>,
}

impl WrapRequest {
    /// Whether the user has not seen a notice in this workspace.
    pub fn is_first_time(&self, notice: &str) -> bool {
        places::is_first_time_in(&self.person, &self.workspace, notice)
    }

    /// Whether they have seen it. It changes nothing.
    pub fn has_seen(&self, notice: &str) -> bool {
        places::has_seen_in(&self.person, &self.workspace, notice)
    }

    /// Whether `--connect` would lead to a socket: with the same checks, and the server itself is asked.
    pub fn leads_to(&self, socket: &ServiceSocket) -> Result<bool> {
        let (person, written) = (&self.person, self.written());
        let found = person.looking(|| found(socket.path(), person, &written))?;
        let listener = found.ok().and_then(|found| {
            let why = |error: &io::Error| log::debug!("ask who listens at {socket}: {error}");
            listener(&found.socket, person).inspect_err(why).ok()
        });
        // An offer needs a known program: it suggests a socket that the user did not request.
        let program = listener.and_then(|listener| listener.program);
        Ok(program.is_some_and(|program| closed_listener(&program).is_none()))
    }

    /// Checks and opens the sockets of a policy, and shows the link by which clients find them; `None` if it has none.
    ///
    /// # Errors
    /// One of them is no database's, or nobody listens there.
    pub fn sockets(
        &self,
        resolved: &ResolvedPolicy,
        layout: &mut Layout,
    ) -> Result<Option<UserSockets>> {
        let items = resolved.policy.network.connect.iter();
        let named: Vec<&ServiceSocket> = items.filter_map(|item| item.socket()).collect();
        // Refused later, with the sentence about these walls.
        if self.walls == Walls::Landlock {
            return Ok(None);
        }
        // The planner refuses other names, with a sentence that lists these.
        if named.is_empty() || !named.iter().all(|socket| is_database(socket.name())) {
            return Ok(None);
        }
        let ids = self.person.ids();
        let sockets = named.into_iter().map(|socket| self.open_socket(socket));
        let sockets = sockets.collect::<Result<_>>()?;
        layout.add_run_link();
        Ok(Some(UserSockets { ids, sockets }))
    }

    fn open_socket(&self, socket: &ServiceSocket) -> Result<UserSocket> {
        let refused = |why: String| WrapRefusal::Socket {
            socket: socket.to_string(),
            why,
        };
        let written: Vec<PathBuf> = self.written();
        let person = &self.person;
        let found = person.looking(|| found(socket.path(), person, &written))?;
        let found = found.map_err(refused)?;
        let listener = listener(&found.socket, person).map_err(|error| {
            refused(format!("no server answers there ({error}): start it first"))
        })?;
        match &listener.program {
            Some(program) => {
                if let Some(why) = closed_listener(program) {
                    bail!(refused(format!(
                        "{program} listens there, {why}: it is never reached"
                    )));
                }
            }
            None if self.quiet => {}
            None => crate::log::complain(&format!(
                "agentbox: --connect {socket}: the kernel does not tell which program listens there; its name alone says that it is a database"
            )),
        }
        let directory = pinned(&found.directory).map_err(|error| {
            refused(format!(
                "its directory cannot be mounted for the relay ({error})"
            ))
        })?;
        Ok(UserSocket {
            target: SocketTarget {
                socket: socket.clone(),
                name: found.name.to_string_lossy().into_owned(),
                server: listener.user,
            },
            directory,
        })
    }
}

/// Finds a socket, or says why it does not count. To be called with the user's rights over files.
fn found(path: &Path, person: &Person, written: &[PathBuf]) -> Result<FoundSocket, String> {
    let why = |error: io::Error| error.to_string();
    let real = planted::named(path, person).map_err(why)?;
    let directory = real.parent().unwrap_or(&real);
    let is_written = || {
        let is_written = written.iter().any(|place| real.starts_with(place));
        is_written || !places::no_sandbox_writes(person, directory)
    };
    if let Some(fault) = misplaced(&real, is_written) {
        return Err(fault);
    }
    let name = real.file_name().unwrap_or_default().to_owned();
    resolve_within_owned(directory, person.uid).map_err(why)?;
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = |at: BorrowedFd<'_>, name: &Path, more: OFlags| {
        let opened = rustix::fs::openat2(at, name, flags | more, Mode::empty(), links);
        opened.map(File::from).map_err(|error| why(error.into()))
    };
    let directory = opened(CWD, directory, OFlags::DIRECTORY)?;
    let mode = directory.metadata().map_err(why)?.mode();
    if mode & 0o002 != 0 {
        return Err("every user makes files in its directory: use --connect PORT".to_owned());
    }
    let socket = opened(directory.as_fd(), Path::new(&name), OFlags::empty())?;
    if !socket.metadata().map_err(why)?.file_type().is_socket() {
        return Err("it is not a socket".to_owned());
    }
    Ok(FoundSocket {
        directory,
        name,
        socket: socket.into(),
    })
}

/// Why a path does not count, by its name and its directory. `is_written` says whether a sandbox could have made it.
fn misplaced(real: &Path, is_written: impl FnOnce() -> bool) -> Option<String> {
    let name = real.file_name().and_then(OsStr::to_str);
    if !name.is_some_and(is_database) {
        return Some(format!(
            "it leads to {real:?}, which has no name of a database's socket"
        ));
    }
    if is_written() {
        return Some("a sandbox could have made it: use --connect PORT".to_owned());
    }
    // The relay holds the directory.
    let directory = real.parent().unwrap_or(real);
    let parts: Vec<&OsStr> = directory.iter().skip(1).collect();
    let is_shared =
        parts.len() < 2 || matches!(parts[..], [run, user, _] if run == "run" && user == "user");
    is_shared.then(|| "other services have sockets in its directory: use --connect PORT".to_owned())
}

/// Connects as the relay will, and asks who listens.
fn listener(server: &OwnedFd, person: &Person) -> io::Result<Listener> {
    // The relay has no group but the user's first one.
    let stream = person.connect_pinned(server.as_fd(), &[])?;
    let pid = socket::listener_pid(stream.as_fd())?;
    let program = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    Ok(Listener {
        user: socket::peer_uid(stream.as_fd())?,
        program: program.map(|comm| comm.trim_end_matches('\n').to_owned()),
    })
}

/// A copy of a directory's mount, detached, that follows no link.
fn pinned(directory: &File) -> io::Result<OwnedFd> {
    let tree = copy(directory, MountReach::One)?;
    let bits = Bits::READ_ONLY
        .and(Bits::NO_PRIVILEGE)
        .and(Bits::NO_PROGRAM)
        .and(Bits::NO_LINK);
    let private = Some(Propagation::Private);
    change(tree.as_fd(), bits, private, MountReach::One)?;
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_counts_by_its_name_its_maker_and_its_directory() {
        let fault = |path: &str, is_written: bool| {
            misplaced(Path::new(path), || is_written).unwrap_or_default()
        };
        for path in [
            "/run/postgresql/.s.PGSQL.5432",
            "/var/lib/mysql/mysql.sock",
            "/run/user/1000/pg/.s.PGSQL.5432",
            "/home/user/db/.s.PGSQL.5432",
        ] {
            assert_eq!(fault(path, false), "");
            let made = fault(path, true);
            assert!(made.starts_with("a sandbox could have made it"), "{path}");
        }
        for path in [
            "/run/docker.sock",
            "/run/docker/docker.sock",
            "/",
            "/run/db/.s.PGSQL.5432/..",
        ] {
            for is_written in [false, true] {
                let fault = fault(path, is_written);
                assert!(fault.contains("no name of a database"), "{path}: {fault}");
            }
        }
        // The relay would hold the sockets of other services too.
        for path in [
            "/.s.PGSQL.5432",
            "/run/.s.PGSQL.5432",
            "/run/user/1000/.s.PGSQL.5432",
        ] {
            let fault = fault(path, false);
            assert!(fault.starts_with("other services"), "{path}: {fault}");
        }
    }
}
