//! Unix sockets of this machine's databases that the command may have meant. Clients try them by default, and inside they are
//! absent: no log counts attempts to open a path that is not there.
//!
//! Only directories that root made are offered, so that no other user, and no sandbox, chooses what the line names.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::log::complain;
use crate::plan::sockets::{is_database, is_database_client};
use crate::policy::connect::ServiceSocket;
use crate::policy::{Field, Tool};
use crate::sys::procfs;

/// The directories of system services.
const PLACES: [&str; 2] = ["/run", "/var/lib"];
/// Most sockets of a line. Each is connected to once, and one that does not answer takes seconds.
const MOST: usize = 3;

/// Says which option leads to the machine's databases, if the command failed by itself: a shell's own statuses begin at 126, and
/// 124 is timeout(1)'s. Nothing shows that the command tried a socket, so the line comes once for a project. For a client that
/// does so by itself it always comes.
/// `leads_to` says whether the option would be accepted. `has_seen` says whether the line came there before, and `is_new` notes that
/// it comes.
pub fn tell(
    status: i32,
    command: &str,
    leads_to: impl Fn(&ServiceSocket) -> Result<bool>,
    has_seen: impl FnOnce() -> bool,
    is_new: impl FnOnce() -> bool,
) {
    let is_client = is_client(command);
    // Before any server is asked: a database counts a connection without a word as a fault of its client.
    if !(1..124).contains(&status) || !is_client && has_seen() {
        return;
    }
    let table = procfs::lossy("/proc/self/net/unix").unwrap_or_else(|error| {
        log::debug!("look for databases of this machine: {error}");
        String::new()
    });
    let listening = listening(&table).into_iter().take(MOST);
    let leads_to = |socket: &ServiceSocket| {
        let why = |error: &anyhow::Error| log::debug!("look at {socket}: {error:#}");
        leads_to(socket).inspect_err(why).unwrap_or(false)
    };
    let offered: Vec<String> = listening
        .filter(leads_to)
        .map(|socket| socket.to_string())
        .collect();
    if let Some(line) = line(&offered).filter(|_| is_client || is_new()) {
        complain(&line);
    }
}

fn is_client(command: &str) -> bool {
    let name = Path::new(command)
        .file_name()
        .and_then(|name| name.to_str());
    name.is_some_and(is_database_client)
}

fn line(sockets: &[String]) -> Option<String> {
    let (are, them) = match sockets {
        [] => return None,
        [_] => ("socket is", "it"),
        _ => ("sockets are", "them"),
    };
    let sockets: Vec<&str> = sockets.iter().map(String::as_str).collect();
    let option = Tool::Wrap.adds(Field::NetworkConnect, &sockets);
    Some(format!(
        "agentbox: this machine's database {are} not visible inside; {option} reaches {them}"
    ))
}

/// Databases' sockets on which a server listens, in a table of proc_pid_net(5).
fn listening(table: &str) -> BTreeSet<ServiceSocket> {
    /// __SO_ACCEPTCON (linux/net.h).
    const LISTENS: &str = "00010000";
    let socket = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let is_listening = fields.nth(3)? == LISTENS;
        let path = fields.nth(3)?;
        let is_whole = is_listening && fields.next().is_none();
        let socket: ServiceSocket = path.parse().ok().filter(|_| is_whole)?;
        is_offered(&socket).then_some(socket)
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// Whether a socket is a database's by its name, in a service's own directory.
pub fn is_offered(socket: &ServiceSocket) -> bool {
    let place = socket.directory().parent();
    let is_services = place.is_some_and(|place| PLACES.map(Path::new).contains(&place));
    is_services && is_database(socket.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_of_databases_in_directories_of_services_are_offered() {
        let head = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let row = |flags: &str, path: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0001 01 42{path}\n")
        };
        let listens = "00010000";
        let table = [
            head.to_owned(),
            row(listens, " /var/run/postgresql/.s.PGSQL.5432"),
            row(listens, " /var/lib/mysql/mysql.sock"),
            // A connection, an abstract name, none.
            row("00000000", " /run/a/mysqld.sock"),
            row(listens, " @/run/b/mysqld.sock"),
            row(listens, ""),
            // Other servers, and places in which other users make directories.
            row(listens, " /run/docker.sock"),
            row(listens, " /run/docker/docker.sock"),
            row(listens, " /run/user/1000/pg/.s.PGSQL.5432"),
            row(listens, " /dev/shm/evil/.s.PGSQL.5432"),
            row(listens, " /tmp/.s.PGSQL.5432"),
            row(listens, " /run/../tmp/evil/mysqld.sock"),
            row(listens, " /run/c /mysqld.sock"),
        ];
        let found = listening(&table.concat());
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = ["/run/postgresql/.s.PGSQL.5432", "/var/lib/mysql/mysql.sock"];
        assert_eq!(found, expected);
        assert!(listening("").is_empty() && listening("\n0:\n1: x y z\n").is_empty());
    }

    #[test]
    fn the_line_has_an_option_for_each_socket() {
        assert_eq!(line(&[]), None);
        let (one, other) = ("/run/postgresql/.s.PGSQL.5432", "/run/mysqld/mysqld.sock");
        assert_eq!(
            line(&[one.to_owned()]).unwrap(),
            format!(
                "agentbox: this machine's database socket is not visible inside; --connect {one} reaches it"
            )
        );
        let both = line(&[one, other].map(str::to_owned)).unwrap();
        assert!(both.contains("sockets are not"), "{both}");
        assert!(both.ends_with(&format!("; --connect {one} --connect {other} reaches them")));
    }
}
