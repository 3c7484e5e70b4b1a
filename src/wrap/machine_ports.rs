//! Servers of this machine that the command may have meant: it tried ports of its own loopback where nothing listens.
//!
//! Programs also try ports of their own, so a line is printed only for ports where the machine has a server.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::loopback::MOST_PORTS;
use crate::log::complain;
use crate::plan::connect::LOCALHOST;
use crate::policy::{Field, Tool};
use crate::sys::procfs;

/// The state of a listening socket (TCP_LISTEN, net/tcp_states.h).
const LISTENS: &str = "0A";

/// Says which option leads to the machine's servers at these ports. At published ones the command has its own.
pub fn tell<T>(refused: &BTreeSet<u16>, published: &BTreeMap<u16, T>) {
    if refused.is_empty() {
        return;
    }
    let served = served();
    let is_meant = |port: &u16| served.contains(port) && !published.contains_key(port);
    let meant = refused.iter().copied().filter(is_meant);
    if let Some(line) = line(&meant.take(MOST_PORTS).collect::<Vec<_>>()) {
        complain(&line);
    }
}

fn line(ports: &[u16]) -> Option<String> {
    let (noun, servers) = match ports {
        [] => return None,
        [_] => ("a connection", "server"),
        _ => ("connections", "servers"),
    };
    let hosts: Vec<String> = (ports.iter())
        .map(|port| format!("{LOCALHOST}:{port}"))
        .collect();
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let was = if ports.len() == 1 { "was" } else { "were" };
    let (hosts, option) = (
        hosts.join(", "),
        Tool::Wrap.adds(Field::NetworkConnect, &ports),
    );
    Some(format!(
        "agentbox: {noun} to {hosts} {was} refused inside; {option} reaches this machine's {servers}"
    ))
}

/// The ports at which this machine's loopback has servers.
fn served() -> BTreeSet<u16> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(procfs::lossy);
    let tables = tables.into_iter().filter_map(|table| {
        let why = |error: &std::io::Error| log::debug!("look for servers of this machine: {error}");
        table.inspect_err(why).ok()
    });
    tables.flat_map(|table| listening(&table)).collect()
}

/// The ports of listening sockets that the loopback reaches, in a table of proc_pid_net(5).
fn listening(table: &str) -> BTreeSet<u16> {
    let port = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (address, port) = fields.nth(1)?.split_once(':')?;
        let is_reached = fields.nth(1)? == LISTENS && is_loopback(address);
        is_reached.then_some(u16::from_str_radix(port, 16).ok()?)
    };
    table.lines().skip(1).filter_map(port).collect()
}

/// Whether 127.0.0.1 or ::1 leads to an address: four or sixteen bytes as numbers of this machine's order.
fn is_loopback(address: &str) -> bool {
    const ANY: [&str; 2] = ["00000000", "00000000000000000000000000000000"];
    const LOOPBACK: [&str; 3] = [
        "0100007F",
        "00000000000000000000000001000000",
        // ::ffff:127.0.0.1
        "0000000000000000FFFF00000100007F",
    ];
    ANY.contains(&address) || LOOPBACK.contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_one_that_the_loopback_reaches() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let rest = "00000000:00000000 00:00000000 00000000  1000        0 222 1 0 20 4 30 10 -1";
        let lines = [
            "0: 0100007F:1538 00000000:0000 0A",
            "1: 00000000:0050 00000000:0000 0A",
            // Another address, and a connection.
            "2: 0200007F:0035 00000000:0000 0A",
            "3: 0A00000A:01BB 00000000:0000 0A",
            "4: 0100007F:1F90 0100007F:D431 01",
        ];
        let table = lines.map(|line| format!("   {line} {rest}\n")).concat();
        assert_eq!(listening(&(head.to_owned() + &table)), [80, 5432].into());
        let v6 =
            "0: 00000000000000000000000001000000:1538 00000000000000000000000000000000:0000 0A x\n";
        assert_eq!(listening(&(head.to_owned() + v6)), [5432].into());
        assert!(listening("").is_empty() && listening("\n0:\n1: x y z\n").is_empty());
    }

    #[test]
    fn this_very_process_is_seen_to_listen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(served().contains(&listener.local_addr().unwrap().port()));
    }

    #[test]
    fn the_line_has_an_option_for_each_port() {
        assert_eq!(line(&[]), None);
        assert_eq!(
            line(&[5432]).unwrap(),
            "agentbox: a connection to localhost:5432 was refused inside; --connect 5432 reaches this machine's server"
        );
        assert_eq!(
            line(&[5432, 6379]).unwrap(),
            "agentbox: connections to localhost:5432, localhost:6379 were refused inside; --connect 5432 --connect 6379 reaches \
             this machine's servers"
        );
    }
}
