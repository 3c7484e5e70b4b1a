//! Which program of a container has a connection: looked up on the node, when the user is asked, in the kernel's list
//! of the container's sockets (proc_pid_net(5)). The sidecar itself sees no process of the container.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The most descriptors that are inspected: a container may have millions, and a user waits for the answer.
const MOST_DESCRIPTORS: usize = 1 << 16;

/// The program that connected from each of these ports, if it is found: its pid on the node, and its name. `init` is a
/// process in the container's network namespace. The workload chooses the name.
pub fn find(init: i32, client_ports: &BTreeSet<u16>) -> BTreeMap<u16, (i32, String)> {
    let mut found = BTreeMap::new();
    let tables: Vec<String> = ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/{init}/net/{table}")).ok())
        .collect();
    let socket = |port: &u16| {
        let inode = tables.iter().find_map(|text| inode(text, *port))?;
        Some((format!("socket:[{inode}]"), *port))
    };
    let sockets: BTreeMap<String, u16> = client_ports.iter().filter_map(socket).collect();
    let Ok(namespace) = fs::read_link(format!("/proc/{init}/ns/net")) else {
        return found;
    };
    let mut left = MOST_DESCRIPTORS;
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if found.len() == sockets.len() || left == 0 {
            break;
        }
        if fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| ns == namespace) {
            for port in held(pid, &sockets, &mut left) {
                if let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) {
                    found
                        .entry(port)
                        .or_insert((pid, name.trim_end().to_owned()));
                }
            }
        }
    }
    found
}

/// The ports whose sockets a process holds.
fn held(pid: i32, sockets: &BTreeMap<String, u16>, left: &mut usize) -> Vec<u16> {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let open = open.flatten().take(*left);
    let mut seen = 0;
    let links = open.inspect(|_| seen += 1).filter_map(|fd| {
        let link = fs::read_link(fd.path()).ok()?;
        sockets.get(link.to_str()?).copied()
    });
    let ports = links.collect();
    *left -= seen;
    ports
}

/// The inode of the socket with this local port, in a table of /proc/PID/net/tcp.
fn inode(table: &str, port: u16) -> Option<u64> {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?;
        // Skips the peer, the state, queues, timers, retransmissions, the user and the timeout.
        let inode = fields.nth(7)?.parse().ok()?;
        (local.ends_with(&wanted) && inode != 0).then_some(inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_socket_of_a_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 00000000:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0\n   \
            1: 000112C6:D431 000112C6:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 222 1 0 20 4 30 10 -1\n";
        assert_eq!(inode(table, 0xd431), Some(222));
        assert_eq!(inode(table, 443), Some(111));
        assert_eq!(inode(table, 80), None);
    }

    #[test]
    fn finds_this_very_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let port = client.local_addr().unwrap().port();
        let found = find(own, &BTreeSet::from([port]));
        let (pid, name) = &found[&port];
        assert_eq!(*pid, own);
        assert!(!name.is_empty());
    }
}
