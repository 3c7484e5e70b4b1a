//! The kernel's counts of attempts that end inside a container's own network namespace.
//!
//! Measured on Linux 6.18: connect(2) and sendto(2) to an address without a route each add one to `OutNoRoutes`, for
//! TCP and UDP, including multicast; in such a namespace nothing else does. If every address is local, a TCP connection
//! to a port without a listener adds one to `AttemptFails` (for both families), a datagram one to `NoPorts`.

/// A number of /proc/PID/net/snmp: `name` in the lines that begin with `group`, the first of which has the names.
pub fn counter(snmp: &str, group: &str, name: &str) -> Option<u64> {
    let of_group = |line: &&str| line.split_once(':').is_some_and(|(word, _)| word == group);
    let mut lines = snmp.lines().filter(of_group);
    let mut names = lines.next()?.split_ascii_whitespace();
    let place = names.position(|one| one == name)?;
    let mut values = lines.next()?.split_ascii_whitespace();
    values.nth(place)?.parse().ok()
}

/// A number of /proc/PID/net/snmp6, which has one line for each.
pub fn counter_v6(snmp6: &str, name: &str) -> Option<u64> {
    let mut lines = snmp6.lines().map(str::split_ascii_whitespace);
    lines
        .find_map(|mut words| (words.next() == Some(name)).then(|| words.next()))?
        .and_then(|value| value.parse().ok())
}

/// Attempts to reach an IPv4 address without a route.
pub fn unrouted(snmp: &str) -> Option<u64> {
    counter(snmp, "Ip", "OutNoRoutes")
}

/// The same for IPv6.
pub fn unrouted_v6(snmp6: &str) -> Option<u64> {
    counter_v6(snmp6, "Ip6OutNoRoutes")
}

/// Connections of both families and IPv4 datagrams to ports without a listener, on any address.
pub fn unanswered(snmp: &str) -> Option<u64> {
    let connections = counter(snmp, "Tcp", "AttemptFails")?;
    Some(connections.saturating_add(counter(snmp, "Udp", "NoPorts")?))
}

/// IPv6 datagrams to ports without a listener.
pub fn unanswered_v6(snmp6: &str) -> Option<u64> {
    counter_v6(snmp6, "Udp6NoPorts")
}

/// IPv4 packets that the namespace has sent, those to itself included.
pub fn sent(snmp: &str) -> Option<u64> {
    counter(snmp, "Ip", "OutRequests")
}

/// The same for IPv6.
pub fn sent_v6(snmp6: &str) -> Option<u64> {
    counter_v6(snmp6, "Ip6OutRequests")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL OutNoRoutes OutRequests\nIp: 2 64 7 11\n\
                        Icmp: InMsgs\nIcmp: 3\nIcmpMsg: InType3\nIcmpMsg: 4\n\
                        Tcp: RtoMin AttemptFails OutRsts\nTcp: 200 5 17\n\
                        Udp: InDatagrams NoPorts\nUdp: 5 2\nUdpLite: InDatagrams NoPorts\nUdpLite: 9 9\n";

    #[test]
    fn reads_the_kernels_counts() {
        assert_eq!((unrouted(SNMP), unanswered(SNMP)), (Some(7), Some(7)));
        assert_eq!(counter(SNMP, "Tcp", "OutRsts"), Some(17));
        assert_eq!(
            (sent(SNMP), sent_v6("Ip6OutRequests \t4\n")),
            (Some(11), Some(4))
        );
        for bad in [
            "",
            "Ip: OutNoRoutes\n",
            "Ip: A\nIp: 1\n",
            "Ip: OutNoRoutes\nIp: x\n",
        ] {
            assert_eq!(unrouted(bad), None, "{bad}");
        }
        let v6 = "Ip6InReceives                   \t1\nIp6OutNoRoutes                  \t8\nUdp6NoPorts \t3\n";
        assert_eq!((unrouted_v6(v6), unanswered_v6(v6)), (Some(8), Some(3)));
        assert_eq!(unrouted_v6("Ip6OutNoRoutes\n"), None);
    }
}
