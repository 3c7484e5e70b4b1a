//! PURE. The small files that the network wall mounts over the engine's.

use crate::egress::own::OWN_V4;
use crate::plan::NetworkPlan;
use crate::policy::NetworkMode;

/// /etc/hosts: only the container itself, by its own names. The engine's other entries lead to other containers, or to
/// addresses that the caller chose. The stub answers for names that rules list.
pub fn hosts(own_names: &[String]) -> String {
    let mut text =
        String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    if !own_names.is_empty() {
        text.push_str(&format!("{OWN_V4}\t{}\n", own_names.join(" ")));
    }
    text
}

/// /etc/resolv.conf: the sidecar's stub, or no resolver. Without a resolver, the C libraries ask 127.0.0.1, where
/// nothing listens, and fail at once.
pub fn resolv_conf(network: &NetworkPlan) -> String {
    let stub = network
        .name_server()
        .map(|stub| format!("nameserver {stub}\n"));
    let stub = stub.unwrap_or_default();
    if network.mode == NetworkMode::Allowlist {
        return format!("# agentbox: the names that network.allow lists\n{stub}");
    }
    format!("# agentbox: this container resolves no names\n{stub}options timeout:1 attempts:1\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::own::own_names;

    #[test]
    fn a_host_name_cannot_forge_a_line() {
        let forged = own_names(Some("a\n198.51.100.1 api.example.com"));
        assert!(!hosts(&forged).contains("198.51.100.1"));
        assert!(hosts(&own_names(Some("box-1"))).ends_with("127.0.1.1\tbox-1\n"));
        assert!(hosts(&own_names(Some("box.a.test"))).ends_with("127.0.1.1\tbox.a.test box\n"));
    }
}
