//! The node's own file: what applies by default, what limits, and what this node allows beyond any policy.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::error::Source;
use super::text::words;
use super::{
    Capability, HostPath, NodeNetwork, PolicyChoice, PolicyError, PolicyName, builtin, file,
};

/// `/etc/agentbox/config.toml`, parsed. A node without the file has [`NodeConfig::default`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NodeConfig {
    /// What applies where a container and its handler choose nothing. Without it that is `standard`, or the ceiling
    /// where `standard` exceeds it.
    pub default: Option<PolicyChoice>,
    /// The policy that nothing a container asks for may exceed.
    pub ceiling: PolicyName,
    /// Where the node's policy files are: `NAME.toml`.
    pub policy_dir: HostPath,
    /// Where the node's presets are: `NAME.toml`.
    pub preset_dir: HostPath,
    /// What no policy can give, only the node.
    pub allow: NodeAllow,
    /// How the node itself reaches the internet.
    pub network: NodeNetwork,
}

/// What is refused under every policy unless the node's file lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NodeAllow {
    /// Capabilities that policies may name besides [`Capability::ORDINARY`].
    pub capabilities: BTreeSet<Capability>,
    /// Namespaces that a container may share with the host or with a container without the same walls.
    pub namespaces: BTreeSet<NamespaceKind>,
    /// Programs that may run as hooks, besides the engine's own network hook.
    pub hooks: BTreeSet<HostPath>,
    /// Devices that a container may be given, besides the usual eight.
    pub devices: BTreeSet<HostPath>,
    /// Rules may name every host, or all names below a public suffix.
    pub open_egress: bool,
}

words! {
    /// A kind of namespace, by OCI's name.
    NamespaceKind {
        /// Processes.
        Pid = "pid",
        /// System V objects and POSIX queues.
        Ipc = "ipc",
        /// The host's name.
        Uts = "uts",
        /// The root of the cgroups.
        Cgroup = "cgroup",
        /// Users and their capabilities.
        User = "user",
        /// Interfaces, routes and sockets.
        Network = "network",
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        let own = "a built-in value fits its own grammar";
        Self {
            default: None,
            ceiling: builtin::CEILING.parse().expect(own),
            policy_dir: "/etc/agentbox/policies".parse().expect(own),
            preset_dir: "/etc/agentbox/presets".parse().expect(own),
            allow: NodeAllow::default(),
            network: NodeNetwork::default(),
        }
    }
}

impl NodeConfig {
    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        file::parse(&Source::Node, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_says_what_a_missing_one_says() {
        assert_eq!(NodeConfig::parse("").unwrap(), NodeConfig::default());
        assert_eq!(NodeConfig::parse("[allow]").unwrap(), NodeConfig::default());
    }

    #[test]
    fn reads_every_field() {
        let config = NodeConfig::parse(
            r#"
            default = "unconfined"
            ceiling = "strict"
            policy-dir = "/srv/policies"
            preset-dir = "/srv/presets"
            [allow]
            open-egress = true
            capabilities = ["NET_RAW"]
            namespaces = ["pid", "network"]
            hooks = ["/usr/bin/hook"]
            devices = ["/dev/kvm"]
            [network]
            upstream-proxy = "http://proxy.example:3128"
            upstream-credentials = "/etc/agentbox/upstream"
            upstream-names = "proxy"
            "#,
        )
        .unwrap();
        assert_eq!(config.default, Some(PolicyChoice::Unconfined));
        assert_eq!(config.ceiling.as_str(), "strict");
        assert_eq!(config.policy_dir.as_str(), "/srv/policies");
        assert_eq!(config.preset_dir.as_str(), "/srv/presets");
        assert!(config.allow.open_egress);
        let upstream = config.network.upstream().unwrap();
        assert_eq!(upstream.to_string(), "http://proxy.example:3128");
        assert_eq!(upstream.names.as_str(), "proxy");
        assert!(config.network.contradiction().is_none());
        assert_eq!(
            config.allow.capabilities,
            ["CAP_NET_RAW".parse().unwrap()].into()
        );
        assert_eq!(
            config.allow.namespaces,
            [NamespaceKind::Pid, NamespaceKind::Network].into()
        );
        assert_eq!(
            config.allow.hooks,
            ["/usr/bin/hook".parse().unwrap()].into()
        );
        assert_eq!(config.allow.devices, ["/dev/kvm".parse().unwrap()].into());
    }

    #[test]
    fn refuses_what_it_does_not_know_and_says_where() {
        for (text, line, part) in [
            ("celing = \"strict\"", 1, "celing"),
            ("\nceiling = \"unconfined\"", 2, "reserved"),
            ("default = \"Strict\"", 1, "a-z"),
            ("policy-dir = \"policies\"", 1, "absolute"),
            ("policy_dir = \"/p\"", 1, "policy-dir"),
            ("[allow]\nnamespaces = [\"mount\"]", 2, "one of pid"),
            ("[allow]\ncapabilities = [\"ALL\"]", 2, "capability"),
            ("[allow]\nhooks = [\"../hook\"]", 2, "absolute"),
            ("preset-dir = \"../presets\"", 1, "absolute"),
            ("[allow]\nopen-egress = \"yes\"", 2, "invalid type"),
            ("[allow]\nopen_egress = true", 2, "open-egress"),
            ("[allow]\nunconfined = true", 2, "unconfined"),
            ("ceiling = \"strict\"\nceiling = \"strict\"", 2, "duplicate"),
            ("not toml", 1, "expected"),
            (
                "[network]\nupstream-proxy = \"socks5://p:1\"",
                2,
                "or either with https://",
            ),
            (
                "[network]\nupstream-names = \"client\"",
                2,
                "one of vetted, proxy",
            ),
        ] {
            let error = NodeConfig::parse(text).unwrap_err();
            let message = error.to_string();
            assert!(
                message.starts_with(&format!("the node's file, line {line} (")),
                "{message}"
            );
            assert!(message.contains(part), "{message}");
        }
    }
}
