//! What the engine prepared for names: read once, when the container starts, and known to the sidecar alone.
//!
//! The engine has finished by then (Docker 28 attaches networks between `create` and `start`), and the container's
//! program does not run yet. The files are the engine's own, by the paths that its spec named; the container never
//! has them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use super::bundle::read_file;
use super::{RuntimeError, control};
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

/// Hands over to the sidecar what it needs before anything can be reached.
pub fn pin(dir: &Path, files: &EngineFiles, proxy: Option<Proxy>) -> Result<(), RuntimeError> {
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
    match control::ask(dir, &ControlRequest::Pin(pinned))? {
        ControlReply::Done => Ok(()),
        ControlReply::Failed(why) => Err(RuntimeError::Unsupported(format!(
            "the sidecar does not take the engine's resolver: {why}"
        ))),
        _ => Err(RuntimeError::Unsupported(
            "the sidecar answers something else".to_owned(),
        )),
    }
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

    #[test]
    fn reads_hosts_without_the_loopback() {
        let entries = host_entries(
            "127.0.0.1 localhost\n::1 localhost\n172.18.0.3\tdb db.example # the database\nnonsense x\n10.0.0.1\n",
        );
        let names: Vec<String> = entries.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["db", "db.example"]);
    }
}
