//! PURE. Unix sockets of databases of this machine that the workload reaches (`wrap --connect PATH`): which ones, and where.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::connect::LISTED;
use super::filesystem::FilesystemPlan;
use super::judge::is_kernel_place;
use super::mount::MountKind;
use super::network::NetworkPlan;
use super::report::DENIED_IN;
use crate::policy::connect::ServiceSocket;
use crate::policy::{NetworkMode, Policy};

/// The sockets of a server, by their names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DatabaseSockets {
    of: String,
    names: Vec<String>,
    #[serde(default)]
    clients: Vec<String>,
}

/// Sockets of engines, by their names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineSockets {
    names: Vec<String>,
    why: String,
}

/// Programs that are never reached.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClosedListeners {
    names: Vec<String>,
    why: String,
}

/// The sockets of a policy.
pub(super) fn planned(policy: &Policy) -> BTreeSet<ServiceSocket> {
    if policy.network.mode == NetworkMode::None {
        return BTreeSet::new();
    }
    let items = policy.network.connect.iter();
    items.filter_map(|item| item.socket().cloned()).collect()
}

/// Whether a program by this name looks for a database's socket if nothing names a host.
pub fn is_database_client(program: &str) -> bool {
    let mut clients = LISTED.socket.iter().flat_map(|server| &server.clients);
    clients.any(|known| known == program)
}

/// Whether a socket's name is a database's.
pub fn is_database(name: &str) -> bool {
    let mut names = LISTED.socket.iter().flat_map(|server| &server.names);
    names.any(|known| match known.split_once('#') {
        None => known == name,
        Some((before, after)) => name
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            }),
    })
}

/// The known servers with a name of each, for a message.
pub fn known_names() -> String {
    let servers = LISTED.socket.iter().map(|server| {
        let name = server.names.first().map(|name| name.replace('#', "N"));
        format!("{}: {}", server.of, name.unwrap_or_default())
    });
    servers.collect::<Vec<_>>().join(", ")
}

/// Why a program that listens is not reached, by its name in /proc/PID/comm; `None` if it may be.
pub fn closed_listener(comm: &str) -> Option<&'static str> {
    let is_it = |known: &String| match known.strip_suffix('*') {
        Some(beginning) => comm.starts_with(beginning),
        None => comm == known,
    };
    let closed = LISTED.listener.iter();
    let mut closed = closed.filter(|group| group.names.iter().any(is_it));
    closed.next().map(|group| group.why.as_str())
}

impl NetworkPlan {
    /// The directories inside that hold the sockets, each of which is a mount of its own.
    pub fn socket_directories(&self) -> BTreeSet<&Path> {
        self.sockets.iter().map(ServiceSocket::directory).collect()
    }
}

/// Why sockets are refused; `None` if they are not.
pub(super) fn why_not(
    sockets: &BTreeSet<ServiceSocket>,
    filesystem: &FilesystemPlan,
) -> Option<String> {
    let directories: BTreeSet<&Path> = sockets.iter().map(ServiceSocket::directory).collect();
    sockets.iter().find_map(|socket| {
        let mut engines = LISTED.engine.iter();
        if let Some(engine) = engines.find(|engine| engine.names.iter().any(|name| name == socket.name())) {
            return Some(format!("{socket} is {}", engine.why));
        }
        if !is_database(socket.name()) {
            return Some(format!(
                "{socket} is no socket of a known database ({}): use [HOST:]PORT for another server",
                known_names()
            ));
        }
        let directory = socket.directory();
        if is_kernel_place(directory) || directory.starts_with(DENIED_IN) {
            return Some(format!("{socket} lies where no database has its socket: use [HOST:]PORT"));
        }
        let mut others = directories.iter().filter(|other| **other != directory);
        if let Some(other) = others.find(|other| directory.starts_with(other)) {
            return Some(format!(
                "{socket} lies below {}, which is replaced inside by a directory with one socket: name one of them",
                other.display()
            ));
        }
        let place = shown(directory, filesystem)?;
        Some(format!(
            "{socket} lies in or above {}, which the sandbox has: the socket needs a directory of its own, such as /run/NAME",
            place.display()
        ))
    })
}

/// A mount that shows the directory or lies in it. In a new tmpfs the directory is made.
fn shown<'a>(directory: &Path, filesystem: &'a FilesystemPlan) -> Option<&'a Path> {
    // The container's own directory may be there, too.
    let own = Path::new(DENIED_IN);
    if own.starts_with(directory) {
        return Some(own);
    }
    let mut mounts = filesystem.mounts.iter().filter(|mount| {
        let place = &mount.destination;
        let is_new = matches!(mount.kind, MountKind::Tmpfs(_) | MountKind::Kernel(_));
        place.starts_with(directory) || (directory.starts_with(place) && !is_new)
    });
    mounts.next().map(|mount| mount.destination.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_the_name_of_its_socket() {
        for name in [
            ".s.PGSQL.5432",
            "mysqld.sock",
            "redis-server.sock",
            "valkey.sock",
            "memcached.sock",
            "mongodb-27017.sock",
        ] {
            assert!(is_database(name), "{name}");
        }
        for name in [
            "",
            "docker.sock",
            "containerd.sock",
            "bus",
            "system_bus_socket",
            "X0",
            "agent.1",
            "S.gpg-agent",
            "private",
            ".s.PGSQL.",
            ".s.PGSQL.5432.lock",
            ".s.PGSQL.5432x",
            ".s.PGSQL.+1",
            "xmysqld.sock",
            "MYSQLD.SOCK",
            "mongodb-.sock",
            "podman.sock",
        ] {
            assert!(!is_database(name), "{name}");
        }
    }

    #[test]
    fn engines_buses_displays_and_agents_are_known_by_their_program() {
        for comm in [
            "dockerd",
            "containerd",
            "containerd-shim",
            "podman",
            "systemd",
            "dbus-daemon",
            "ssh-agent",
            "gpg-agent",
            "Xorg",
            "libvirtd",
            "virtqemud",
        ] {
            assert!(closed_listener(comm).is_some(), "{comm}");
        }
        for comm in [
            "postgres",
            "mysqld",
            "mariadbd",
            "redis-server",
            "mongod",
            "python3",
            "ssh",
            "",
        ] {
            assert_eq!(closed_listener(comm), None, "{comm}");
        }
        // comm(5) has 15 characters at most.
        let names = LISTED.listener.iter().flat_map(|group| &group.names);
        for name in names {
            assert!(name.len() <= 15, "{name}");
        }
        assert!(LISTED.listener.iter().all(|group| group.why.len() > 10));
        assert!(LISTED.socket.iter().all(|server| server.of.len() > 4));
    }
}
