//! SHELL. Servers and connections of the command that Landlock refuses, for the closing lines.
//!
//! The kernel makes each connect(2), and Landlock decides by what is in the caller's memory then; bind(2) is refused or made in
//! the caller's place ([`servers`](super::servers)). The address is read here for a line alone: one that changes meanwhile changes
//! a line, and no wall. The kernel's own log of Landlock's refusals (Linux 6.15) needs CAP_AUDIT_READ, which users lack.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use super::caller::Caller;
use crate::log::complain;
use crate::plan::connect::is_offered;
use crate::sys::procfs;
use crate::sys::seccomp::notify::NotifiedCall;
use crate::wrap::machine_ports;

/// The part of `struct sockaddr_in` that is read: family, port and address.
const ADDRESS: usize = 8;
/// The size of the whole.
const WHOLE: i32 = 16;
/// Ports in one line. The rest is counted.
const MOST: usize = 10;
/// Ports below this one take root's rights, which the command does not have (ip(7)).
const FIRST_PORT: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// The ports that the command tried in vain, each once: at most 65,536 of a kind, so a flood hides none.
#[derive(Default)]
pub struct RefusedPorts {
    servers: RefCell<BTreeSet<u16>>,
    connections: RefCell<BTreeSet<u16>>,
}

impl RefusedPorts {
    /// Notes a bind(2) at a port that is not published.
    pub fn note_server(
        &self,
        listener: BorrowedFd<'_>,
        call: &NotifiedCall,
        published: &BTreeSet<u16>,
    ) {
        if let Some((_, port)) = target(listener, call)
            && !published.contains(&port)
        {
            self.servers.borrow_mut().insert(port);
        }
    }

    /// Notes a connect(2) to a port of the loopback that is not open.
    pub fn note_connection(
        &self,
        listener: BorrowedFd<'_>,
        call: &NotifiedCall,
        open: &BTreeSet<u16>,
    ) {
        if let Some((host, port)) = target(listener, call)
            && (host.is_loopback() || host.is_unspecified())
            && is_offered(port)
            && !open.contains(&port)
        {
            self.connections.borrow_mut().insert(port);
        }
    }

    /// Says which options would have helped.
    pub fn tell(&self) {
        // Open ports are not among them.
        machine_ports::tell(&self.connections.borrow(), &BTreeMap::<u16, ()>::new());
        let first = procfs::lossy(FIRST_PORT).ok();
        let first = first.and_then(|text| text.trim().parse().ok());
        let lines = lines(&self.servers.borrow(), first.unwrap_or(1024));
        lines.iter().for_each(|line| complain(line));
    }
}

/// The IPv4 address and the port of a call, as they are in the caller's memory now. `None` if they cannot be read.
fn target(listener: BorrowedFd<'_>, call: &NotifiedCall) -> Option<(Ipv4Addr, u16)> {
    let [_, at, length, ..] = call.args;
    // The kernel reads an int.
    if (length as u32).cast_signed() < WHOLE {
        return None;
    }
    let mut raw = [0; ADDRESS];
    let caller = Caller::open(listener, call).ok()?;
    caller.memory(at, &mut raw).ok()?;
    read(raw)
}

fn read([f1, f2, p1, p2, a, b, c, d]: [u8; ADDRESS]) -> Option<(Ipv4Addr, u16)> {
    let is_v4 = i32::from(u16::from_ne_bytes([f1, f2])) == libc::AF_INET;
    is_v4.then(|| (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p1, p2])))
}

/// The lines about servers. `first` is the first port that needs no right.
fn lines(servers: &BTreeSet<u16>, first: u16) -> Vec<String> {
    let (named, others) = servers
        .iter()
        .partition::<Vec<u16>, _>(|port| is_offered(**port) && **port >= first.max(1));
    let options = listed(&named, " ", |port| format!("--publish {port}"));
    let named = listed(&named, ", ", |port| {
        format!("{}:{port}", Ipv4Addr::LOCALHOST)
    });
    let others = listed(&others, ", ", |port| match port {
        0 => "any free port".to_owned(),
        port => format!("port {port}"),
    });
    let named = named.zip(options).map(|(ports, options)| {
        format!("agentbox: a server was refused at {ports}; {options} lets it listen")
    });
    let others = others.map(|ports| {
        format!("agentbox: a server was refused at {ports}; let it use another one, and name that by --publish PORT")
    });
    named.into_iter().chain(others).collect()
}

/// The first ports. `None` without any.
fn listed(ports: &[u16], between: &str, word: impl Fn(u16) -> String) -> Option<String> {
    let words: Vec<String> = ports.iter().take(MOST).map(|port| word(*port)).collect();
    let more = match ports.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!words.is_empty()).then(|| words.join(between) + &more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_ipv4() {
        let raw = |family: i32| {
            let [a, b] = u16::try_from(family).unwrap().to_ne_bytes();
            [a, b, 0x15, 0x38, 127, 0, 0, 1]
        };
        assert_eq!(read(raw(libc::AF_INET)), Some((Ipv4Addr::LOCALHOST, 5432)));
        for family in [libc::AF_UNSPEC, libc::AF_UNIX, libc::AF_INET6, 0x0200] {
            assert_eq!(read(raw(family)), None, "{family}");
        }
    }

    #[test]
    fn a_server_is_named_with_the_option_that_lets_it_listen() {
        let lines = |ports: &[u16]| lines(&ports.iter().copied().collect(), 1024);
        assert_eq!(lines(&[]), [""; 0]);
        assert_eq!(
            lines(&[3000]),
            ["agentbox: a server was refused at 127.0.0.1:3000; --publish 3000 lets it listen"]
        );
        assert_eq!(
            lines(&[3000, 4000]),
            [
                "agentbox: a server was refused at 127.0.0.1:3000, 127.0.0.1:4000; --publish 3000 --publish 4000 lets it listen"
            ]
        );
        // Any free port, one of root's, Docker's, and one of notebooks.
        assert_eq!(
            lines(&[0, 80, 2375, 8888]),
            [
                "agentbox: a server was refused at any free port, port 80, port 2375, port 8888; let it use another one, and name that \
                 by --publish PORT"
            ]
        );
    }

    #[test]
    fn a_flood_makes_two_bounded_lines() {
        let all = lines(&(0..=u16::MAX).collect(), 1024);
        assert_eq!(all.len(), 2);
        for line in all {
            assert!(line.contains(" more") && line.len() < 500, "{line}");
        }
        // Where every port is free to all, as in a container of Docker.
        assert!(lines(&[0, 80].into(), 0)[0].contains("--publish 80 lets"));
    }
}
