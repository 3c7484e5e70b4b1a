//! The engine's resolv.conf and hosts file, read once at `start` and given only to the sidecar.
//!
//! The engine has finished by then (Docker 28 attaches networks between `create` and `start`), and the workload does
//! not run yet. The files are the engine's own, which the planner tells apart from a caller's mount. The container
//! never gets them.

use crate::engines::layout::EngineFiles;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use std::fs::File;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::egress::own::is_host_name;
use crate::plan::FileKind;
use crate::rules::{EgressRules, HostName};
use crate::runtime::RuntimeError;
use crate::runtime::input::bundle::read_file;
use crate::runtime::network::ControlError;
use crate::runtime::network::control;
use crate::sidecar::{ControlReply, ControlRequest, EngineNames, Proxy};
use crate::sys::procfs;

/// No engine writes larger files.
const LARGEST: u64 = 64 << 10;

/// The most entries of the node's hosts file, as a message to the sidecar holds. Lists against advertising have more than
/// 100,000.
const NODE_HOSTS: usize = 4096;

/// The most names that a container gets from its engine.
const OWN_NAMES: usize = 8;

/// Gives the sidecar what it needs before anything can be reached. Returns the search list.
pub fn hand_over(
    dir: &Path,
    files: NameFiles<'_>,
    proxy: Option<Proxy>,
) -> Result<Vec<HostName>, RuntimeError> {
    let names = match files {
        NameFiles::Node(rules) => names_of_the_node(rules, proxy)?,
        NameFiles::Engine(files) => names_of_an_engine(files, proxy)?,
    };
    let search = names.search.clone();
    match control::ask(dir, &ControlRequest::EngineNames(names))? {
        ControlReply::Done => Ok(search),
        ControlReply::Failed(why) => Err(ControlError::Resolver(why).into()),
        _ => Err(ControlError::Unexpected.into()),
    }
}

/// The files with which the sidecar resolves names.
pub enum NameFiles<'a> {
    /// The engine's for the container.
    Engine(&'a EngineFiles),
    /// The node's, for `wrap`: as with the user's other programs. The rules choose from a long hosts file.
    Node(&'a EgressRules),
}

fn names_of_an_engine(
    files: &EngineFiles,
    proxy: Option<Proxy>,
) -> Result<EngineNames, RuntimeError> {
    let resolv_conf = match &files.resolv_conf {
        Some(path) => text(path)?,
        None => nodes_own(Path::new("/etc/resolv.conf"))?,
    };
    let mut names = resolvers(&resolv_conf);
    if let Some(hosts) = &files.hosts {
        names.hosts = host_entries(&text(hosts)?);
    }
    Ok(behind(proxy, names))
}

/// Through the proxy a container could reach what the wall refuses, so its addresses are closed.
fn behind(proxy: Option<Proxy>, mut names: EngineNames) -> EngineNames {
    if let Some(proxy) = &proxy {
        names.closed.extend(&proxy.addresses);
    }
    names.proxy = proxy;
    names
}

/// Gives the sidecar of a joined network the other names in the container's hosts file: a pod's aliases are in its
/// containers' files, and not in that of the first container.
pub fn add_hosts(
    dir: &Path,
    files: &EngineFiles,
    own_names: &[String],
) -> Result<(), RuntimeError> {
    let Some(hosts) = &files.hosts else {
        return Ok(());
    };
    let entries = aliases(&text(hosts)?, own_names);
    if entries.is_empty() {
        return Ok(());
    }
    match control::ask(dir, &ControlRequest::Hosts(entries))? {
        ControlReply::Done => Ok(()),
        ControlReply::Failed(why) => {
            let path = hosts.clone();
            Err(ControlError::Hosts { path, why }.into())
        }
        _ => Err(ControlError::Unexpected.into()),
    }
}

/// The names that the engine's hosts file gives the container itself: its own names, and names below them.
pub fn own_line(files: &EngineFiles, own_names: &[String]) -> Result<Vec<String>, RuntimeError> {
    match &files.hosts {
        Some(hosts) => Ok(own_names_of(&text(hosts)?, own_names)),
        None => Ok(own_names.to_vec()),
    }
}

fn own_names_of(hosts: &str, own_names: &[String]) -> Vec<String> {
    let is_own = |name: &String| {
        let below = |own: &String| {
            let rest = name.strip_prefix(own.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        own_names.iter().any(below)
    };
    let mut all: Vec<String> = Vec::new();
    for line in hosts.lines().take(4096) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        if words.next().is_none_or(|w| w.parse::<IpAddr>().is_err()) {
            continue;
        }
        let names: Vec<String> = words.map(str::to_ascii_lowercase).collect();
        if names.iter().any(|name| own_names.contains(name)) {
            all.extend(names.into_iter().filter(is_own));
        }
    }
    let mut seen = BTreeSet::new();
    all.retain(|name| is_host_name(name) && name != "localhost" && seen.insert(name.clone()));
    // The container's own names are included, whatever the file says.
    all.truncate(OWN_NAMES.saturating_sub(own_names.len()));
    for own in own_names {
        if is_host_name(own) && own != "localhost" && !all.contains(own) {
            all.push(own.clone());
        }
    }
    all
}

/// The node's own file, which a container without a network may not have.
fn nodes_own(path: &Path) -> Result<String, RuntimeError> {
    match read_file(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(RuntimeError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(String::new())
        }
        Err(error) => Err(error),
    }
}

/// What the sidecar of `wrap` resolves names with: the node's resolvers and hosts, read once, and the upstream proxy.
pub fn names_of_the_node(
    rules: &EgressRules,
    proxy: Option<Proxy>,
) -> Result<EngineNames, RuntimeError> {
    let mut names = resolvers(&nodes_own(Path::new("/etc/resolv.conf"))?);
    names.hosts = node_hosts(&nodes_own(Path::new("/etc/hosts"))?, rules);
    Ok(behind(proxy, names))
}

/// The entries of the node's hosts file; of a long one those of names that rules list. Entries that lead to the loopback
/// stay, so that such a name is refused with that reason, and not looked up elsewhere.
fn node_hosts(text: &str, rules: &EgressRules) -> Vec<(HostName, IpAddr)> {
    let mut all: Vec<_> = entries(text).collect();
    if all.len() > NODE_HOSTS {
        all.retain(|(name, _)| rules.decide_name(name).is_ok());
        all.truncate(NODE_HOSTS);
    }
    all
}

/// Reads an engine's file without following links. The open descriptor is checked again: the engine may have rewritten
/// the file since `create`.
fn text(path: &Path) -> Result<String, RuntimeError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        Err(rustix::io::Errno::NOENT) => return Ok(String::new()),
        found => found.map_err(RuntimeError::io(format!("open {path:?}")))?,
    };
    let stat = rustix::fs::fstat(&fd).map_err(RuntimeError::io(format!("look at {path:?}")))?;
    let bad = |why: &str| RuntimeError::Input {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    let engines = FileKind::of(stat.st_mode) == FileKind::File
        && stat.st_uid == 0
        && stat.st_nlink == 1
        && stat.st_mode & 0o022 == 0;
    if !engines {
        return Err(bad(
            "it is not the engine's file: it must be root's, with one name, and writable only by root",
        ));
    }
    let bytes = procfs::at_most(File::from(fd), LARGEST + 1);
    let bytes = bytes.map_err(RuntimeError::io(format!("read {path:?}")))?;
    if bytes.len() as u64 > LARGEST {
        return Err(bad("it is larger than 64 KiB, which no engine's is"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The C libraries use no more resolvers (resolv.conf(5), MAXNS).
const RESOLVERS: usize = 3;

/// `nameserver` and `search` of a resolv.conf(5).
fn resolvers(text: &str) -> EngineNames {
    let mut names = EngineNames::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") if names.nameservers.len() < RESOLVERS => {
                // An address with a zone id needs a link that the sidecar may not have.
                names
                    .nameservers
                    .extend(words.next().and_then(|word| word.parse::<IpAddr>().ok()));
            }
            Some("search" | "domain") => {
                names.search = words
                    .filter_map(|word| word.parse().ok())
                    .take(32)
                    .collect();
            }
            _ => {}
        }
    }
    names
}

/// The names of a hosts file without the container's own line and the lines that begin every engine's file.
fn aliases(text: &str, own_names: &[String]) -> Vec<(HostName, IpAddr)> {
    let mut entries = host_entries(text);
    entries.retain(|(name, address)| {
        let of_file = name.as_str().starts_with("ip6-") || address.is_multicast();
        !of_file && !own_names.iter().any(|own| own == name.as_str())
    });
    entries
}

/// Addresses and names of a hosts(5), but for the loopback's.
fn host_entries(text: &str) -> Vec<(HostName, IpAddr)> {
    let all = text.lines().take(4096).flat_map(entries);
    all.filter(|(_, address)| !address.is_loopback()).collect()
}

/// Addresses and names of a hosts(5).
fn entries(text: &str) -> impl Iterator<Item = (HostName, IpAddr)> {
    text.lines().flat_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        let names = words.filter_map(|name| name.parse().ok());
        names.filter_map(move |name| Some((name, address?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_resolvers_as_the_c_libraries_do() {
        let names = resolvers(
            "# generated\nnameserver 127.0.0.11\nsearch a.test b.test\noptions ndots:5\nnameserver fe80::1%eth0\n\
             nameserver 2001:db8::1\nnameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver\n",
        );
        let addresses: Vec<String> = names.nameservers.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["127.0.0.11", "2001:db8::1", "192.0.2.1"]);
        assert_eq!(names.search.len(), 2);
        assert_eq!(resolvers(""), EngineNames::default());
    }

    /// The first name of a pod with a subdomain is its whole name.
    #[test]
    fn finds_the_engines_names_of_the_container() {
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

    /// Files again, 1: a host name of the caller's choice finds only the container's own names in a file.
    #[test]
    fn nothing_else_of_a_hosts_file_is_copied() {
        let own = ["password".to_owned()];
        let netrc = "machine git.example.test login bot password hunter2\n\
                     10.0.0.1 password hunter2 password.a.test passwords x.password\n";
        assert_eq!(own_names_of(netrc, &own), ["password", "password.a.test"]);
        let many: String = (0..100)
            .map(|n| format!("10.0.0.1 password password.n{n}\n"))
            .collect();
        let all = own_names_of(&many, &own);
        assert!(all.len() <= OWN_NAMES && all.contains(&own[0]), "{all:?}");
    }

    #[test]
    fn an_engines_file_is_read_within_bounds_and_not_through_links() {
        let dir = std::env::temp_dir().join(format!("pin-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let dir = dir.canonicalize().unwrap();
        let file = dir.join("hosts");
        let link = dir.join("link");
        std::fs::write(&file, "x".repeat(70_000)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            assert!(text(path).is_err());
        }
        assert_eq!(text(&dir.join("none")).unwrap(), "");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn reads_hosts_without_the_loopback() {
        let entries = host_entries(
            "127.0.0.1 localhost\n::1 localhost\n172.18.0.3\tdb db.example # the database\nnonsense x\n10.0.0.1\n",
        );
        let names: Vec<String> = entries.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["db", "db.example"]);
    }

    /// A name of the loopback is refused as such; a long list against advertising hides no name of a rule.
    #[test]
    fn the_nodes_hosts_are_those_that_rules_list() {
        let rules = EgressRules {
            allow: ["internal:db.corp:5432".parse().unwrap()].into(),
            ..EgressRules::default()
        };
        let short = "127.0.0.1 localhost\n10.0.0.5 DB.corp other.corp # x\n127.0.0.1 app.test\n";
        let found = node_hosts(short, &rules);
        let words: Vec<String> = found
            .iter()
            .map(|(name, at)| format!("{name} {at}"))
            .collect();
        assert_eq!(
            words,
            [
                "localhost 127.0.0.1",
                "db.corp 10.0.0.5",
                "other.corp 10.0.0.5",
                "app.test 127.0.0.1"
            ]
        );
        let long: String = (0..5000).map(|n| format!("0.0.0.0 ad{n}.test\n")).collect();
        let found = node_hosts(&(long + short), &rules);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0.as_str(), "db.corp");
    }

    /// The lines that engines write themselves lead nowhere that a container in a joined network could reach.
    #[test]
    fn aliases_are_the_lines_that_a_pods_author_added() {
        let text = "127.0.0.1 localhost\nfe00::0 ip6-localnet\nff02::1 ip6-allnodes\nff02::2 routers\n\
                    10.1.0.5 web-1 # own\n192.0.2.7 db.test cache\nwrong line\n";
        let found = aliases(text, &["web-1".to_owned()]);
        let words: Vec<String> = found
            .iter()
            .map(|(name, at)| format!("{name} {at}"))
            .collect();
        assert_eq!(words, ["db.test 192.0.2.7", "cache 192.0.2.7"]);
        assert!(aliases("", &[]).is_empty());
    }
}
