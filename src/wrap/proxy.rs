//! SHELL. The upstream proxy of the user's environment: `HTTPS_PROXY`, the way out that the user's other programs take.
//!
//! A proxy is the other end of each connection. One of an attacker's would get what the workload sends, whatever hosts the
//! rules list: TLS does not help if the workload takes part. So a variable does not count if an env file in the workspace,
//! or above it where a sandbox writes, names it: direnv's `dotenv`, mise and others put what a sandbox wrote there into the
//! user's environment. direnv's and mise's own files are protected besides (`policies/protected.toml`).

use std::path::PathBuf;

use super::person::Person;
use super::request::WrapRequest;
use super::variable_files::{VariableFiles, named_by};
use crate::policy::{NetworkMode, PROXY_VARIABLES, ResolvedPolicy, UpstreamSource, UserProxy};

/// In any case.
const NAMES: [&str; 1] = [PROXY_VARIABLES[0]];

/// What the user's environment says about a proxy.
#[derive(Debug, Default)]
pub enum EnvironmentProxy {
    /// Nothing.
    #[default]
    Unset,
    /// It names one.
    Named(UserProxy),
    /// It names one that does not count, for this reason.
    Refused(String),
}

impl EnvironmentProxy {
    /// Reads the variables of this process, never those of `--env` or a file. `places` are the directories where the user's shell
    /// may have loaded files. Call it with the user's rights over files.
    pub fn of_caller(person: &Person, places: &[PathBuf]) -> Self {
        match UserProxy::of(|name| std::env::var(name).ok()) {
            Ok(None) => Self::Unset,
            Err(why) => Self::Refused(why),
            Ok(Some(proxy)) => match named_by(person, places, &NAMES, VariableFiles::All) {
                Some(why) => Self::Refused(why),
                None => Self::Named(proxy),
            },
        }
    }

    /// The proxy, if it counts.
    pub fn named(&self) -> Option<&UserProxy> {
        match self {
            Self::Named(proxy) => Some(proxy),
            Self::Unset | Self::Refused(_) => None,
        }
    }
}

/// Says in one line through which proxy hosts are reached, or why not.
pub fn tell(wanted: &WrapRequest, resolved: &ResolvedPolicy) {
    let line = line(&wanted.proxy, resolved).filter(|_| !wanted.quiet);
    if let Some(line) = line {
        crate::log::complain(&format!("agentbox: {line}"));
    }
}

/// The line; `None` if no variable has a say.
fn line(proxy: &EnvironmentProxy, resolved: &ResolvedPolicy) -> Option<String> {
    if resolved.policy.network.mode != NetworkMode::Allowlist {
        return None;
    }
    let of_user = resolved.upstream.as_ref();
    let of_user = of_user.filter(|upstream| upstream.source != UpstreamSource::Node);
    Some(match (proxy, of_user, &resolved.upstream) {
        (EnvironmentProxy::Named(proxy), Some(upstream), _) => format!(
            "hosts are reached through the proxy {upstream} ({})",
            proxy.variable
        ),
        // The node's own, whatever the variable says.
        (EnvironmentProxy::Unset, _, _) | (_, _, Some(_)) => return None,
        (EnvironmentProxy::Named(proxy), None, None) => format!(
            "{} is not used, and hosts are dialled directly: the node's file does not permit it (upstream-from-user)",
            proxy.variable
        ),
        (EnvironmentProxy::Refused(why), _, None) => format!(
            "{} is not used, and hosts are dialled directly: {why}",
            PROXY_VARIABLES[1]
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::sample_resolved;
    use crate::policy::Upstream;

    /// The proxy of `HTTPS_PROXY` in the user's environment.
    fn of_user() -> UserProxy {
        let set = |name: &str| {
            let value = "http://alice:password@proxy.test:3128";
            (name == PROXY_VARIABLES[1]).then(|| value.to_owned())
        };
        UserProxy::of(set).unwrap().unwrap()
    }

    fn proxy_message(
        proxy: &EnvironmentProxy,
        mode: NetworkMode,
        upstream: Option<Upstream>,
    ) -> Option<String> {
        let mut resolved = sample_resolved();
        resolved.policy.network.mode = mode;
        resolved.upstream = upstream;
        line(proxy, &resolved)
    }

    #[test]
    fn the_user_is_told_of_the_proxy_that_is_used_or_why_it_is_not() {
        let named = || EnvironmentProxy::Named(of_user());
        let refused = || EnvironmentProxy::Refused("why".to_owned());
        let users = || Some(of_user().upstream());
        let nodes = || {
            Some(Upstream {
                source: UpstreamSource::Node,
                ..of_user().upstream()
            })
        };
        for (proxy, upstream, expected) in [
            (
                named(),
                users(),
                Some("hosts are reached through the proxy http://proxy.test:3128 (HTTPS_PROXY)"),
            ),
            (
                named(),
                None,
                Some(
                    "HTTPS_PROXY is not used, and hosts are dialled directly: the node's file does not permit it \
                     (upstream-from-user)",
                ),
            ),
            (
                refused(),
                None,
                Some("HTTPS_PROXY is not used, and hosts are dialled directly: why"),
            ),
            // The node's own is used, whatever the variable says.
            (named(), nodes(), None),
            (refused(), nodes(), None),
            (EnvironmentProxy::Unset, nodes(), None),
            (EnvironmentProxy::Unset, None, None),
        ] {
            let proxy_message = |mode| proxy_message(&proxy, mode, upstream.clone());
            assert_eq!(proxy_message(NetworkMode::Allowlist).as_deref(), expected);
            // Nothing is reached through any proxy.
            assert_eq!(proxy_message(NetworkMode::Local), None);
            assert_eq!(proxy_message(NetworkMode::None), None);
        }
    }
}
