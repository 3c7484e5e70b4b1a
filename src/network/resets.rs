//! The kernel's count of resets sent in a network namespace. It includes connections to ports without a listener.

use super::counters::counter;

/// `OutRsts` of the line `Tcp:` of /proc/PID/net/snmp (RFC 4022, tcpOutRsts).
pub fn resets_sent(snmp: &str) -> Option<u64> {
    counter(snmp, "Tcp", "OutRsts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_count() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 2 64\n\
                    Tcp: RtoAlgorithm RtoMin ActiveOpens InErrs OutRsts InCsumErrors\nTcp: 1 200 3 0 17 0\n\
                    Udp: InDatagrams\nUdp: 5\n";
        assert_eq!(resets_sent(text), Some(17));
        assert_eq!(resets_sent("Tcp: OutRsts\n"), None);
        assert_eq!(resets_sent("Tcp: RtoMin\nTcp: 1\n"), None);
        assert_eq!(resets_sent(""), None);
    }
}
