//! SHELL. Ports at which servers listen, from the tables of proc_pid_net(5).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::sys::procfs;

/// The state of a listening socket (TCP_LISTEN, net/tcp_states.h).
const LISTENS: &str = "0A";

/// The ports at which a process's network has servers that its loopback reaches. Empty if its tables cannot be read.
pub fn of(process: impl std::fmt::Display) -> BTreeSet<u16> {
    let tables = ["tcp", "tcp6"].map(|name| procfs::lossy(format!("/proc/{process}/net/{name}")));
    let tables = tables.into_iter().filter_map(|table| {
        let why = |error: &std::io::Error| log::debug!("look for servers of {process}: {error}");
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

/// Time between two looks.
const TURN: Duration = Duration::from_secs(5);

/// Ports that programs choose are below those that the kernel chooses (ip_local_port_range, ip(7)).
const CHOSEN: std::ops::Range<u16> = 1..32768;

/// Servers of a program, noted while it runs: they are gone when it has ended.
#[derive(Debug)]
pub struct ListenerWatch {
    pid: i32,
    before: BTreeSet<u16>,
    due: Instant,
    last: BTreeSet<u16>,
    lasting: BTreeSet<u16>,
}

impl ListenerWatch {
    /// Of the program of this process. `before` are the ports of others in its network.
    fn new(pid: i32, before: BTreeSet<u16>) -> Self {
        Self {
            pid,
            before,
            due: Instant::now() + TURN,
            last: BTreeSet::new(),
            lasting: BTreeSet::new(),
        }
    }

    /// Of the program of this process, which has not begun yet. Its network's wall listens there, too, and may begin later.
    pub fn beside(plan: Option<&Plan>, pid: i32) -> Self {
        let mut before = of(pid);
        before.extend(plan.into_iter().flat_map(|plan| plan.network.own_ports()));
        Self::new(pid, before)
    }

    /// Looks if it is time; returns the time until the next look.
    pub fn turn(&mut self) -> Duration {
        let now = Instant::now();
        if now >= self.due {
            self.due = now + TURN;
            self.note(of(self.pid));
        }
        self.due - now
    }

    fn note(&mut self, found: BTreeSet<u16>) {
        let is_own = |port: &u16| CHOSEN.contains(port) && !self.before.contains(port);
        let found: BTreeSet<u16> = found.into_iter().filter(is_own).collect();
        // A server that a test starts and ends is in one look at most.
        self.lasting = found.intersection(&self.last).copied().collect();
        self.last = found;
    }

    /// The ports of servers that listened in the last two looks.
    pub fn lasting(&self) -> &BTreeSet<u16> {
        &self.lasting
    }
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
        assert!(of("self").contains(&listener.local_addr().unwrap().port()));
    }

    #[test]
    fn a_server_lasts_that_is_in_the_last_two_looks() {
        let mut watch = ListenerWatch::new(0, [3128].into());
        let mut after = |found: &[u16]| {
            watch.note(found.iter().copied().collect());
            watch.lasting().clone()
        };
        assert_eq!(after(&[3128, 5173, 40000]), [].into());
        assert_eq!(after(&[3128, 5173, 8080, 40000]), [5173].into());
        assert_eq!(after(&[3128, 8080]), [8080].into());
        assert_eq!(after(&[3128]), [].into());
    }
}
