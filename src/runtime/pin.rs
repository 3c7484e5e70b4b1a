//! What the engine prepared for names: read once, when the container starts, and known to the sidecar alone.
//!
//! The engine has finished by then (Docker 28 attaches networks between `create` and `start`), and the container's
//! program does not run yet. The files are the engine's own, by the paths that its spec named; the container never
//! has them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use super::bundle::read_file;
use super::{RuntimeError, control};
use crate::egress::own::is_host_name;
use crate::policy::HostName;
use crate::sidecar::{ControlReply, ControlRequest, Pinned, Proxy};

/// Where the engine keeps the container's resolver and hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineFiles {
    /// What the engine would mount over /etc/resolv.conf; without one the node's own counts.
    pub resolv_conf: Option<PathBuf>,
    /// What the engine would mount over /etc/hosts.
    pub hosts: Option<PathBuf>,
}

impl EngineFiles {
    /// As the engine's spec names them.
    pub fn of(spec: &Spec) -> Self {
        let source = |target: &str| {
            let mut mounts = spec.mounts().iter().flatten();
            mounts
                .find(|mount| mount.destination() == Path::new(target))
                .and_then(|mount| mount.source().clone())
                // `wrap` gives the null device where the container's own file will be.
                .filter(|source| source.is_absolute() && source != Path::new("/dev/null"))
        };
        Self {
            resolv_conf: source("/etc/resolv.conf"),
            hosts: source("/etc/hosts"),
        }
    }
}

/// Hands over to the sidecar what it needs before anything can be reached. Returns the engine's search list.
pub fn pin(
    dir: &Path,
    files: &EngineFiles,
    proxy: Option<Proxy>,
) -> Result<Vec<HostName>, RuntimeError> {
    let resolv_conf = files
        .resolv_conf
        .clone()
        .unwrap_or_else(|| PathBuf::from("/etc/resolv.conf"));
    let mut pinned = resolvers(&text(&resolv_conf)?);
    if let Some(hosts) = &files.hosts {
        pinned.hosts = host_entries(&text(hosts)?);
    }
    if let Some(proxy) = &proxy {
        // A container that reached it could ask it for what the wall refuses.
        pinned.closed.extend(&proxy.addresses);
    }
    pinned.proxy = proxy;
    let search = pinned.search.clone();
    match control::ask(dir, &ControlRequest::Pin(pinned))? {
        ControlReply::Done => Ok(search),
        ControlReply::Failed(why) => Err(RuntimeError::Unsupported(format!(
            "the sidecar does not take the engine's resolver: {why}"
        ))),
        _ => Err(RuntimeError::Unsupported(
            "the sidecar answers something else".to_owned(),
        )),
    }
}

/// Tells the sidecar of a network that a container joins what the engine's hosts file calls others: a pod's aliases are in the
/// files of its containers, and not in that of the first one.
pub fn add_hosts(
    dir: &Path,
    files: &EngineFiles,
    own_names: &[String],
) -> Result<(), RuntimeError> {
    let Some(hosts) = &files.hosts else {
        return Ok(());
    };
    let mut entries = host_entries(&text(hosts)?);
    // The container's own line, and what every engine's file begins with.
    entries.retain(|(name, address)| {
        let of_file = name.as_str().starts_with("ip6-") || address.is_multicast();
        !of_file && !own_names.iter().any(|own| own == name.as_str())
    });
    if entries.is_empty() {
        return Ok(());
    }
    match control::ask(dir, &ControlRequest::Hosts(entries))? {
        ControlReply::Done => Ok(()),
        ControlReply::Failed(why) => Err(RuntimeError::Unsupported(format!(
            "the sidecar of the network does not take the hosts file {hosts:?}: {why}"
        ))),
        _ => Err(RuntimeError::Unsupported(
            "the sidecar answers something else".to_owned(),
        )),
    }
}

/// What the engine's hosts file calls the container itself: the names of each line that has one of its own.
pub fn own_line(files: &EngineFiles, own_names: &[String]) -> Result<Vec<String>, RuntimeError> {
    match &files.hosts {
        Some(hosts) => Ok(own_names_of(&text(hosts)?, own_names)),
        None => Ok(own_names.to_vec()),
    }
}

fn own_names_of(hosts: &str, own_names: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in hosts.lines().take(4096) {
        let line = line.split('#').next().unwrap_or_default();
        let names: Vec<String> = line
            .split_ascii_whitespace()
            .skip(1)
            .map(str::to_ascii_lowercase)
            .collect();
        if names.iter().any(|name| own_names.contains(name)) {
            all.extend(names);
        }
    }
    all.extend(own_names.iter().cloned());
    let mut seen = BTreeSet::new();
    all.retain(|name| is_host_name(name) && name != "localhost" && seen.insert(name.clone()));
    all
}

/// A container without a network may have no such file.
fn text(path: &Path) -> Result<String, RuntimeError> {
    match read_file(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(RuntimeError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(String::new())
        }
        Err(error) => Err(error),
    }
}

/// The most resolvers that the C libraries ask (resolv.conf(5), MAXNS).
const RESOLVERS: usize = 3;

/// `nameserver` and `search` of a resolv.conf(5).
fn resolvers(text: &str) -> Pinned {
    let mut pinned = Pinned::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") if pinned.nameservers.len() < RESOLVERS => {
                // An address with a zone id belongs to a link that the sidecar may not have.
                pinned
                    .nameservers
                    .extend(words.next().and_then(|word| word.parse::<IpAddr>().ok()));
            }
            Some("search" | "domain") => {
                pinned.search = words
                    .filter_map(|word| word.parse().ok())
                    .take(32)
                    .collect();
            }
            _ => {}
        }
    }
    pinned
}

/// Addresses and names of a hosts(5), but for the loopback's.
fn host_entries(text: &str) -> Vec<(HostName, IpAddr)> {
    let mut entries = Vec::new();
    for line in text.lines().take(4096) {
        let mut words = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else {
            continue;
        };
        if !address.is_loopback() {
            entries.extend(words.filter_map(|name| Some((name.parse().ok()?, address))));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_resolvers_as_the_c_libraries_do() {
        let pinned = resolvers(
            "# generated\nnameserver 127.0.0.11\nsearch a.test b.test\noptions ndots:5\nnameserver fe80::1%eth0\n\
             nameserver 2001:db8::1\nnameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver\n",
        );
        let addresses: Vec<String> = pinned.nameservers.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["127.0.0.11", "2001:db8::1", "192.0.2.1"]);
        assert_eq!(pinned.search.len(), 2);
        assert_eq!(resolvers(""), Pinned::default());
    }

    /// K-10: a pod with a subdomain is called by its whole name first.
    #[test]
    fn finds_what_the_engine_calls_the_container_itself() {
        let hosts = "127.0.0.1\tlocalhost\nfe00::0\tip6-localnet\n\
                     10.1.0.5\tWeb-1.db.default.svc.cluster.local\tweb-1\n10.9.9.9\tmyalias other # web-1\n";
        let own = ["web-1".to_owned()];
        assert_eq!(
            own_names_of(hosts, &own),
            ["web-1.db.default.svc.cluster.local", "web-1"]
        );
        assert_eq!(own_names_of("", &own), own);
        assert!(own_names_of(hosts, &[]).is_empty());
    }

    #[test]
    fn reads_hosts_without_the_loopback() {
        let entries = host_entries(
            "127.0.0.1 localhost\n::1 localhost\n172.18.0.3\tdb db.example # the database\nnonsense x\n10.0.0.1\n",
        );
        let names: Vec<String> = entries.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["db", "db.example"]);
    }
}
