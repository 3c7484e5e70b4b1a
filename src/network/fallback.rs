//! The devices that loaded tunnel modules add to every network namespace, as on many cluster nodes
//! (`net.core.fb_tunnels_only_for_init_net` is 0).
//!
//! Such a device is made down, has no address and no route, and leads only through its own namespace, which has no way
//! out. The kernel cannot remove them (`ip_tunnel_dellink` skips them), so they are allowed, and nothing else is.

use std::collections::BTreeSet;

use crate::sys::netlink::Link;

/// Their names and their drivers' kinds (net/ipv4/{ipip,ip_gre,ip_vti}.c, net/ipv6/{sit,ip6_tunnel,ip6_gre,ip6_vti}.c).
const FALLBACK: [(&str, &str); 9] = [
    ("tunl0", "ipip"),
    ("gre0", "gre"),
    ("gretap0", "gretap"),
    ("erspan0", "erspan"),
    ("ip_vti0", "vti"),
    ("sit0", "sit"),
    ("ip6tnl0", "ip6tnl"),
    ("ip6gre0", "ip6gre"),
    ("ip6_vti0", "vti6"),
];

/// Whether an idle interface of this name is allowed.
pub fn is_fallback(name: &str) -> bool {
    FALLBACK.iter().any(|(known, _)| *known == name)
}

/// The links other than loopback and unused devices of that kind. `used`: those with an address or a route.
pub fn foreign_links<'a>(links: &'a [Link], used: &BTreeSet<u32>) -> Vec<&'a Link> {
    let known = |link: &Link| {
        let kind = link.kind.as_deref().unwrap_or_default();
        FALLBACK.contains(&(link.name.as_str(), kind))
    };
    let idle = |link: &Link| !link.is_up() && !link.from_elsewhere && !used.contains(&link.index);
    let fine = |link: &&Link| link.is_loopback() || known(link) && idle(link);
    links.iter().filter(|link| !fine(link)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::HARDWARE_LOOPBACK;

    fn link(index: u32, name: &str, kind: Option<&str>) -> Link {
        Link {
            index,
            name: name.to_owned(),
            flags: 0,
            hardware: 768,
            kind: kind.map(str::to_owned),
            from_elsewhere: false,
        }
    }

    fn lo() -> Link {
        Link {
            flags: (libc::IFF_LOOPBACK | libc::IFF_UP) as u32,
            hardware: HARDWARE_LOOPBACK,
            ..link(1, "lo", None)
        }
    }

    fn names(links: &[Link], used: &[u32]) -> Vec<String> {
        let used = used.iter().copied().collect();
        let found = foreign_links(links, &used);
        found.iter().map(|link| link.name.clone()).collect()
    }

    #[test]
    fn unused_fallback_devices_stay() {
        let mut all = vec![lo()];
        for (index, (name, kind)) in (2..).zip(FALLBACK) {
            all.push(link(index, name, Some(kind)));
        }
        assert!(names(&all, &[1]).is_empty());
        assert!(names(&[lo()], &[1]).is_empty());
    }

    #[test]
    fn other_devices_do_not_stay() {
        let up = Link {
            flags: libc::IFF_UP as u32,
            ..link(2, "tunl0", Some("ipip"))
        };
        for (other, used) in [
            (up, vec![1]),
            // With an address or a route.
            (link(2, "tunl0", Some("ipip")), vec![1, 2]),
            // With the name of one of them, but another kind.
            (link(2, "tunl0", Some("veth")), vec![1]),
            (link(2, "tunl0", None), vec![1]),
            (link(2, "sit0", Some("ipip")), vec![1]),
            (link(2, "tunl1", Some("ipip")), vec![1]),
            (link(2, "eth0", Some("veth")), vec![1]),
            (link(2, "eth0", None), vec![1]),
        ] {
            let name = other.name.clone();
            assert_eq!(names(&[lo(), other], &used), [name]);
        }
        let moved = Link {
            from_elsewhere: true,
            ..link(2, "tunl0", Some("ipip"))
        };
        assert_eq!(names(&[lo(), moved], &[1]), ["tunl0"]);
        let renamed = Link {
            name: "lo0".to_owned(),
            ..lo()
        };
        assert_eq!(names(&[renamed], &[]), ["lo0"]);
    }
}
