//! The way out through a company's proxy: read when a container starts, and given only to its sidecar.
//!
//! Only its location is saved. The credentials exist in the node's files, which only root reads, or in the environment of
//! the user of `wrap`, in this process and in the sidecar's memory. So do the certificates that verify an `https://` proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::plan::{NetworkPlan, ServiceTarget};
use crate::policy::{
    NodeConfig, ProxyUrl, Secret, Upstream, UpstreamNames, UpstreamSource, why_no_proxy,
};
use crate::rules::{EgressRules, Host};
use crate::runtime::RuntimeError;
use crate::runtime::input::bundle::read_open;
use crate::runtime::input::node_files::NodeFiles;
use crate::runtime::input::way;
use crate::sidecar::{Proxy, Tls};
use crate::sys::user_namespace::owner;

/// The most addresses of the proxy that are kept.
const ADDRESSES: usize = 8;
/// The most bytes of certificates: Debian's own are 220 KB.
const ROOTS: usize = 512 << 10;

/// Checks everything that the node's file says of a proxy: at `create` rather than at `start`.
pub fn check(config: &Path, node: &NodeConfig) -> Result<(), RuntimeError> {
    if let Some(why) = node.network.contradiction() {
        return Err(RuntimeError::Input {
            path: config.to_owned(),
            why: why.to_owned(),
        });
    }
    credentials(config, node)?;
    match &node.network.upstream_proxy {
        Some(proxy) => tls(config, node, proxy).map(drop),
        None => Ok(()),
    }
}

/// For the sidecar of a container that was planned with a proxy. `of_user` is the one of the environment of `wrap`'s user.
pub fn find(
    config: &Path,
    network: &NetworkPlan,
    of_user: Option<&ProxyUrl>,
) -> Result<Option<Proxy>, RuntimeError> {
    let Some(planned) = &network.upstream else {
        return Ok(None);
    };
    let proxy = as_planned(config, planned, of_user)?;
    check_place(config, planned, &proxy.addresses, &network.connect)?;
    Ok(Some(proxy))
}

fn as_planned(
    config: &Path,
    planned: &Upstream,
    of_user: Option<&ProxyUrl>,
) -> Result<Proxy, RuntimeError> {
    let node = NodeFiles::read(config)?.node;
    let (url, authorization) = match &planned.source {
        UpstreamSource::Node => {
            let same = node.network.upstream().as_ref() == Some(planned);
            let url = node.network.upstream_proxy.as_ref().filter(|_| same);
            let changed = || RuntimeError::Input {
                path: config.to_owned(),
                why: format!(
                    "its upstream proxy is not {planned} any more, as it was when the container was created: create it again"
                ),
            };
            (url.ok_or_else(changed)?, credentials(config, &node)?)
        }
        UpstreamSource::User(variable) => {
            let url = of_user.filter(|url| url.is_at(planned));
            let unknown = || RuntimeError::UserProxy {
                proxy: planned.to_string(),
                why: format!("only the `wrap` that read {variable} can start this: run it again"),
            };
            let url = url.ok_or_else(unknown)?;
            (url, url.credentials.clone())
        }
    };
    Ok(Proxy {
        addresses: addresses(planned)?,
        port: planned.port,
        authorization,
        send_names: planned.names == UpstreamNames::Proxy,
        direct: planned.direct.clone(),
        tls: tls(config, &node, url)?,
    })
}

/// Refuses a proxy that `--connect` leads to, where the workload would ask it for any host, and one of the user's at an
/// address of no proxy.
fn check_place(
    config: &Path,
    planned: &Upstream,
    addresses: &BTreeSet<IpAddr>,
    connect: &BTreeMap<u16, ServiceTarget>,
) -> Result<(), RuntimeError> {
    let is_service = connect.get(&planned.port) == Some(&ServiceTarget::Machine);
    let is_here = addresses.iter().any(IpAddr::is_loopback);
    let leads_to_it = (is_service && is_here).then_some(
        "--connect leads to it, where the workload would ask for any host: leave that out",
    );
    let mut all = addresses.iter().copied();
    let mut why_no_place = || all.find_map(|address| why_no_proxy(&Host::Address(address)));
    match (&planned.source, leads_to_it) {
        (UpstreamSource::Node, None) => Ok(()),
        (UpstreamSource::Node, Some(why)) => Err(RuntimeError::Input {
            path: config.to_owned(),
            why: format!("upstream-proxy {planned}: {why}"),
        }),
        (UpstreamSource::User(_), why) => match why.or_else(&mut why_no_place) {
            None => Ok(()),
            Some(why) => Err(RuntimeError::UserProxy {
                proxy: planned.to_string(),
                why: why.to_owned(),
            }),
        },
    }
}

/// How to verify an `https://` proxy: by the certificates that the node trusts, and those that its file adds.
fn tls(config: &Path, node: &NodeConfig, proxy: &ProxyUrl) -> Result<Option<Tls>, RuntimeError> {
    if !proxy.tls {
        return Ok(None);
    }
    let roots = all_roots(config, node)?;
    Ok(Some(Tls {
        name: proxy.host.to_string(),
        roots,
    }))
}

/// The certificates that verify the hosts of request rules, if there are any: those that the node trusts, and those
/// that its file adds.
pub fn roots(config: &Path, rules: &EgressRules) -> Result<Option<String>, RuntimeError> {
    if !rules.have_requests() {
        return Ok(None);
    }
    let node = NodeFiles::read(config)?.node;
    all_roots(config, &node).map(Some)
}

fn all_roots(config: &Path, node: &NodeConfig) -> Result<String, RuntimeError> {
    let own = node.network.upstream_trust_roots.as_ref();
    let own = own.map(|path| AsRef::<Path>::as_ref(path).to_owned());
    let mut roots = String::new();
    for path in nodes_own_roots()?.into_iter().chain(own) {
        roots.push_str(&read_roots(&path)?);
        roots.push('\n');
        if roots.len() > ROOTS {
            return Err(RuntimeError::Input {
                path,
                why: format!("with it there are more than {ROOTS} bytes of trusted certificates"),
            });
        }
    }
    if roots.is_empty() {
        return Err(RuntimeError::Input {
            path: config.to_owned(),
            why: "this node has no certificates to know an https:// upstream proxy or a host of requests by: install ca-certificates, or name \
                  network.upstream-trust-roots"
                .to_owned(),
        });
    }
    Ok(roots)
}

/// The node's trusted certificates. A missing file that the environment names is an error: the default would trust more
/// than intended.
fn nodes_own_roots() -> Result<Option<PathBuf>, RuntimeError> {
    match std::env::var_os(openssl_probe::ENV_CERT_FILE) {
        Some(path) if !Path::new(&path).exists() => Err(RuntimeError::Input {
            path: path.into(),
            why: format!(
                "{} names it, but it does not exist",
                openssl_probe::ENV_CERT_FILE
            ),
        }),
        _ => Ok(openssl_probe::probe().cert_file),
    }
}

/// Reads certificates from a file that only root can write: they decide which proxy is genuine.
fn read_roots(path: &Path) -> Result<String, RuntimeError> {
    let bytes = read_open(open_of_root(path, &CERTIFICATES)?, path)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match text.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(text),
        false => Err(RuntimeError::Input {
            path: path.to_owned(),
            why: "there is no certificate in it (PEM)".to_owned(),
        }),
    }
}

/// The node's own resolver looks up the proxy: answers from the container's network could come from another container.
fn addresses(upstream: &Upstream) -> Result<BTreeSet<IpAddr>, RuntimeError> {
    let step = || RuntimeError::io(format!("look up the upstream proxy {upstream}"));
    let found: BTreeSet<IpAddr> = (upstream.host.as_str(), upstream.port)
        .to_socket_addrs()
        .map_err(step())?
        .map(|address| address.ip().to_canonical())
        .take(ADDRESSES)
        .collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(step()(std::io::Error::from(std::io::ErrorKind::NotFound))),
    }
}

fn credentials(config: &Path, node: &NodeConfig) -> Result<Option<Secret>, RuntimeError> {
    let network = &node.network;
    if let Some(secret) = network
        .upstream_proxy
        .as_ref()
        .and_then(|proxy| proxy.credentials.clone())
    {
        open_of_root(config, &CREDENTIALS)?;
        return Ok(Some(secret));
    }
    let Some(path) = &network.upstream_credentials else {
        return Ok(None);
    };
    let path: &Path = path.as_ref();
    let text = read_open(open_of_root(path, &CREDENTIALS)?, path)?;
    let secret = String::from_utf8(text)
        .ok()
        .and_then(|text| Secret::from_file(&text));
    let bad = || RuntimeError::Input {
        path: path.to_owned(),
        why: "its first line is not USER:PASSWORD".to_owned(),
    };
    secret.ok_or_else(bad).map(Some)
}

/// The rule for a file of the node, by its content.
pub(super) struct FileRule {
    /// What the file has, and what would be wrong.
    pub what: &'static str,
    /// Permission bits that it must not have.
    pub denied: u32,
    /// Permission bits that it should have.
    pub cure: u32,
}

const CERTIFICATES: FileRule = FileRule {
    what: "trusted certificates, and others than root can write it",
    denied: 0o022,
    cure: 0o644,
};
const CREDENTIALS: FileRule = FileRule {
    what: "the credentials of the upstream proxy and is not root's alone",
    denied: 0o077,
    cure: 0o600,
};

/// Opens a regular file of root's that satisfies the rule, on a path that only root can change. The checked file is the
/// one that is read.
pub(super) fn open_of_root(path: &Path, rule: &FileRule) -> Result<File, RuntimeError> {
    let file = way::open(path)?;
    let stat = file
        .metadata()
        .map_err(RuntimeError::io(format!("look at {path:?}")))?;
    let owner = owner(stat.uid());
    if owner == 0 && stat.mode() & rule.denied == 0 {
        return Ok(file);
    }
    Err(RuntimeError::Input {
        path: path.to_owned(),
        why: format!(
            "it holds {} (owner {}, mode {:o}): chown root it and chmod {:o} it",
            rule.what,
            owner,
            stat.mode() & 0o777,
            rule.cure
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::policy::UserProxy;

    fn base() -> std::path::PathBuf {
        nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap()
    }

    /// A file of the node; the tests run as root, like agentbox.
    fn file(dir: &Path, name: &str, text: &str, mode: u32) -> std::path::PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn credentials_are_read_only_from_files_that_only_root_can_read() {
        if !rustix::process::getuid().is_root() {
            return;
        }
        let dir = base();
        let inline = "[network]\nupstream-proxy = \"http://me:hunter2@127.0.0.1:3128\"\n";
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            let path = file(&dir, &format!("inline-{mode:o}"), inline, mode);
            let node = NodeConfig::parse(inline).unwrap();
            let checked = check(&path, &node);
            assert_eq!(checked.is_ok(), good, "{mode:o}");
            if let Err(error) = checked {
                let text = crate::log::chain(&error);
                assert!(
                    text.contains("chmod 600") && !text.contains("hunter2"),
                    "{text}"
                );
            }
            let secret = file(&dir, &format!("secret-{mode:o}"), "me:hunter2\n", mode);
            let by_file = format!(
                "[network]\nupstream-proxy = \"http://127.0.0.1:3128\"\nupstream-credentials = {secret:?}\n"
            );
            let path = file(&dir, &format!("config-{mode:o}"), &by_file, 0o644);
            let planned = NodeConfig::parse(&by_file)
                .unwrap()
                .network
                .upstream()
                .unwrap();
            let proxy = as_planned(&path, &planned, None);
            assert_eq!(proxy.is_ok(), good, "{mode:o}");
            if let Ok(proxy) = proxy {
                assert_eq!(proxy.authorization, Secret::from_file("me:hunter2"));
                assert!(!format!("{proxy:?}").contains("hunter2"));
            }
        }
        let text = format!(
            "[network]\nupstream-proxy = \"http://p:1\"\nupstream-credentials = {:?}\n",
            std::env::temp_dir()
        );
        let config = file(&dir, "directory", &text, 0o600);
        let error = check(&config, &NodeConfig::parse(&text).unwrap()).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        let broken = file(&dir, "broken", "hunter2", 0o600);
        let text = format!(
            "[network]\nupstream-proxy = \"http://p:1\"\nupstream-credentials = {broken:?}\n"
        );
        let error = check(&broken, &NodeConfig::parse(&text).unwrap()).unwrap_err();
        let text = crate::log::chain(&error);
        assert!(
            text.contains("USER:PASSWORD") && !text.contains("hunter2"),
            "{text}"
        );
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_proxy_that_was_not_planned_is_refused() {
        let text = "[network]\nupstream-proxy = \"http://127.0.0.1:3128\"\n";
        let dir = base();
        let path = file(&dir, "other", text, 0o644);
        let mut planned = NodeConfig::parse(text).unwrap().network.upstream().unwrap();
        assert!(as_planned(&path, &planned, None).is_ok());
        planned.port = 3129;
        let error = as_planned(&path, &planned, None).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("not http://127.0.0.1:3129 any more"),
            "{error}"
        );
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// The node's file has none, so the user's own counts; its password comes from `wrap` alone.
    #[test]
    fn a_users_proxy_is_the_one_that_was_planned_and_leads_to_no_metadata() {
        let dir = base();
        let path = file(&dir, "none", "", 0o644);
        let own = |name: &str| {
            (name == "HTTPS_PROXY").then(|| "http://me:hunter2@127.0.0.1:3128".to_owned())
        };
        let own = UserProxy::of(own).unwrap().unwrap();
        let mut planned = own.upstream();
        let found = as_planned(&path, &planned, Some(&own.url)).unwrap();
        assert_eq!(found.authorization, Secret::from_file("me:hunter2"));
        let unknown = as_planned(&path, &planned, None).unwrap_err();
        std::fs::remove_dir_all(dir).unwrap();
        assert!(
            unknown.to_string().contains("read HTTPS_PROXY"),
            "{unknown}"
        );
        let check = |planned: &Upstream, address: &str, connect: &[u16]| {
            let connect = connect.iter().map(|port| (*port, ServiceTarget::Machine));
            check_place(
                Path::new("/config"),
                planned,
                &[address.parse().unwrap()].into(),
                &connect.collect(),
            )
        };
        for (address, connect, good) in [
            ("127.0.0.1", &[][..], true),
            ("127.0.0.1", &[5432], true),
            ("127.0.0.1", &[3128], false),
            ("::1", &[3128], false),
            ("10.0.0.1", &[3128], true),
            // What a name of the variable led to.
            ("169.254.169.254", &[], false),
            ("100.100.100.200", &[], false),
            ("fe80::1", &[], false),
            ("0.0.0.0", &[], false),
        ] {
            let checked = check(&planned, address, connect);
            assert_eq!(checked.is_ok(), good, "{address} {connect:?}");
        }
        // Nor does `--connect` lead to the node's own, whose address the operator chose.
        let nodes = Upstream {
            source: UpstreamSource::Node,
            ..planned.clone()
        };
        assert!(check(&nodes, "127.0.0.1", &[5432]).is_ok());
        let error = check(&nodes, "127.0.0.1", &[3128]).unwrap_err().to_string();
        assert!(
            error.contains("/config") && error.contains("--connect leads to it"),
            "{error}"
        );
        planned.port = 3129;
        assert!(as_planned(&path, &planned, Some(&own.url)).is_err());
    }

    #[test]
    fn fields_that_contradict_each_other_are_refused() {
        for text in [
            "[network]\nupstream-credentials = \"/x\"",
            "[network]\nupstream-names = \"proxy\"\nupstream-from-user = \"off\"",
            "[network]\nupstream-proxy = \"http://a:b@p:1\"\nupstream-credentials = \"/x\"",
        ] {
            let error = check(Path::new("/config"), &NodeConfig::parse(text).unwrap());
            assert!(error.is_err(), "{text}");
        }
    }
}
