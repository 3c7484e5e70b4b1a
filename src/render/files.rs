//! PURE. The small files that the network wall puts over the engine's.

use crate::network::inner::SYNTHETIC_V4;
use crate::policy::NetworkMode;

/// /etc/hosts: the container itself, and nobody else. What the engine writes there names its other containers.
pub fn hosts(hostname: Option<&str>) -> String {
    let mut text =
        String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    if let Some(name) = hostname.filter(|n| is_host_name(n)) {
        text.push_str(&format!("127.0.1.1\t{name}\n"));
    }
    text
}

/// /etc/resolv.conf: the sidecar's stub, or no resolver. Without one the C libraries ask 127.0.0.1, where nobody
/// answers, and fail at once.
pub fn resolv_conf(mode: NetworkMode) -> String {
    match mode {
        NetworkMode::None | NetworkMode::Local => {
            "# agentbox: this container resolves no names\noptions timeout:1 attempts:1\n"
                .to_owned()
        }
        NetworkMode::Allowlist => {
            format!("# agentbox: the names that network.allow lists\nnameserver {SYNTHETIC_V4}\n")
        }
    }
}

fn is_host_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_cannot_forge_a_line() {
        assert!(!hosts(Some("a\n198.51.100.1 api.example.com")).contains("198.51.100.1"));
        assert!(hosts(Some("box-1")).ends_with("127.0.1.1\tbox-1\n"));
    }
}
