//! The container itself, by the names and addresses that its programs use. They lead to its loopback interface: no rule
//! concerns them, and the proxy, outside of the container's namespace, does not lead there.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::names::SyntheticAddresses;
use crate::rules::{Host, HostName};

/// The address of the container's own name, as Debian has it. It differs from localhost's, so that a reverse lookup
/// gives the container's name.
pub const OWN_V4: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

/// Hosts that programs reach without a proxy. Programs that do not support prefixes (curl before 7.86, Python's urllib,
/// wget, Node) get some addresses one by one. No brackets: Python's httpx takes them for a name, and does not start.
const DIRECT: &str = "localhost,127.0.0.1,::1,127.0.0.0/8,0.0.0.0,127.0.0.2,127.0.0.3,127.0.1.1";

/// The names of a container with this host name: the name and its first label. Empty if it is not a valid name, which
/// could forge a line of a file or an entry of a list.
pub fn own_names(hostname: Option<&str>) -> Vec<String> {
    let Some(name) = hostname.filter(|name| is_host_name(name)) else {
        return Vec::new();
    };
    let mut names = vec![name.to_ascii_lowercase()];
    if let Some((first, _)) = names[0].split_once('.') {
        names.push(first.to_owned());
    }
    names
}

/// Whether a word is safe in a hosts file and in a list of names.
pub fn is_host_name(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    name.len() <= 253 && name.bytes().all(good) && name.split('.').all(|label| !label.is_empty())
}

/// The value of NO_PROXY in a container with these names.
pub fn no_proxy(own_names: &[String]) -> String {
    let mut list = DIRECT.to_owned();
    for name in own_names {
        list.push(',');
        list.push_str(name);
    }
    list
}

/// Whether a host is the container itself.
pub fn is_own(host: &Host, own_names: &[String]) -> bool {
    match host {
        Host::Address(address) => address.is_loopback() || address.is_unspecified(),
        Host::Name(name) => address_of(name, own_names).is_some(),
    }
}

/// The addresses of the container itself, if a name means it: localhost and all names below it (RFC 6761, section 6.3),
/// and its own names.
pub fn address_of(name: &HostName, own_names: &[String]) -> Option<SyntheticAddresses> {
    let name = name.as_str();
    let v4 = if name == "localhost" || name.ends_with(".localhost") {
        Ipv4Addr::LOCALHOST
    } else if own_names.iter().any(|own| own == name) {
        OWN_V4
    } else {
        return None;
    };
    Some(SyntheticAddresses {
        v4,
        v6: Ipv6Addr::LOCALHOST,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    /// The names that a container's programs use for it.
    #[test]
    fn knows_the_container_by_its_names_and_addresses() {
        let names = own_names(Some("Web-1.example.test"));
        assert_eq!(names, ["web-1.example.test", "web-1"]);
        for text in [
            "localhost",
            "app.localhost",
            "LOCALHOST.",
            "web-1",
            "web-1.example.test",
            "127.0.0.1",
            "127.9.8.7",
            "0.0.0.0",
            "::1",
            "::",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_own(&host(text), &names), "{text}");
        }
        for text in [
            "web-2",
            "example.test",
            "a.web-1",
            "localhost.example.test",
            "mylocalhost",
            "128.0.0.1",
            "198.18.0.1",
            "fd00:5afe::1",
        ] {
            assert!(!is_own(&host(text), &names), "{text}");
        }
    }

    #[test]
    fn an_invalid_host_name_gives_no_names() {
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a b",
            "a,*",
            "a\n198.51.100.1 api.example.com",
        ] {
            assert!(own_names(Some(text)).is_empty(), "{text:?}");
        }
        // Twelve digits of a container's id: no host for a rule, but a valid host name.
        assert_eq!(own_names(Some("123456789012")), ["123456789012"]);
        assert!(own_names(None).is_empty());
    }

    #[test]
    fn no_proxy_lists_all_of_them() {
        let list = no_proxy(&own_names(Some("box_1")));
        let entries: Vec<&str> = list.split(',').collect();
        for entry in [
            "localhost",
            "::1",
            "127.0.0.0/8",
            "0.0.0.0",
            "127.0.1.1",
            "box_1",
        ] {
            assert!(entries.contains(&entry), "{entry}: {list}");
        }
        assert!(!list.contains('['));
    }
}
