//! Which program of a container has a connection: looked up on the node when a person asks, from the kernel's list of
//! the container's sockets (proc_pid_net(5)). The sidecar itself sees no process of the container.

use std::fs;

/// The pid, as the node numbers it, and the name of the program that connected from this port, if it is found.
/// `init`: a process in the container's network namespace.
pub fn find(init: i32, client_port: u16) -> Option<(i32, String)> {
    let inode = ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/{init}/net/{table}")).ok())
        .find_map(|text| inode(&text, client_port))?;
    let link = format!("socket:[{inode}]");
    let namespace = fs::read_link(format!("/proc/{init}/ns/net")).ok()?;
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let pid = pids.find(|pid| {
        let inside = fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| ns == namespace);
        inside && holds(*pid, &link)
    })?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, name.trim_end().to_owned()))
}

fn holds(pid: i32, link: &str) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    open.flatten()
        .any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == link))
}

/// The inode of the socket with this local port, in a table of /proc/PID/net/tcp.
fn inode(table: &str, port: u16) -> Option<u64> {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let local = fields.nth(1)?;
        // Seven fields on: the peer, the state, queues, timers, retransmissions, the user, the timeout.
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
        let (pid, name) = find(own, client.local_addr().unwrap().port()).unwrap();
        assert_eq!(pid, own);
        assert!(!name.is_empty());
    }
}
