//! The node's own file: the default policy, the ceiling, and the permissions of this node beyond any policy.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::policy_text::PolicyText;
use super::value::words;
use super::{
    ByteSize, Capability, Field, HoneyValue, HostPath, NodeNetwork, NodeSecret, PolicyChoice,
    PolicyError, PolicyName, file, written_secret,
};
use crate::text::{ValueError, nearest, string_form};

/// `/etc/agentbox/config.toml`, parsed. A node without the file has [`NodeConfig::default`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NodeConfig {
    /// The policy if a container and its handler choose none. `None` means `standard`, narrowed to the ceilings.
    pub default: Option<PolicyChoice>,
    /// The policy that no request of a container may exceed; `permissive` if the file names none. A named ceiling also
    /// permits annotations to loosen the chosen policy up to it.
    pub ceiling: Option<PolicyName>,
    /// The directory of the node's policy files, `NAME.toml`. If set, it must exist.
    pub policy_dir: Option<HostPath>,
    /// The directory of the node's presets, `NAME.toml`. If set, it must exist.
    pub preset_dir: Option<HostPath>,
    /// Permissions that only the node can give, no policy.
    pub allow: NodeAllow,
    /// How the node itself reaches the internet.
    pub network: NodeNetwork,
    /// What is kept of containers after their end.
    pub log: NodeLog,
    /// Values added to requests on the way out.
    #[serde(deserialize_with = "written_secret::of_node")]
    pub secret: Vec<NodeSecret>,
    /// Values that look like keys and must not leave.
    pub honey: Vec<HoneyValue>,
}

/// `[log]` of the node's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NodeLog {
    /// How many runs are kept, the newest. Runs of existing containers do not count as old.
    pub runs: u32,
    /// The total size of all logs, above which the oldest are removed.
    pub size: ByteSize,
    /// Whether a container is refused if its log could not be kept after its end.
    pub required: bool,
}

impl Default for NodeLog {
    fn default() -> Self {
        Self {
            // Each container of a pod has a run: a node with 110 pods has over 200 at a time.
            runs: 1000,
            size: ByteSize::GIB,
            required: false,
        }
    }
}

/// Refused under every policy unless the node's file lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NodeAllow {
    /// Capabilities that policies may name besides [`Capability::ORDINARY`].
    pub capabilities: BTreeSet<Capability>,
    /// Namespaces that a container may share with the host, or with a container with other walls.
    pub namespaces: BTreeSet<NamespaceKind>,
    /// Programs that may run as hooks, besides the engine's own network hook.
    pub hooks: BTreeSet<HostPath>,
    /// Devices that a container may get, besides the usual eight.
    pub devices: BTreeSet<HostPath>,
    /// What annotations may request beyond the chosen policy, even if an image may have written them.
    pub annotations: BTreeSet<AnnotationLeave>,
    /// Policies may have `report.learn = "on"`.
    pub learn: bool,
    /// Rules may name every host, or all names below a public suffix.
    pub open_egress: bool,
    /// Containers may run while the node's `core_pattern` is a socket. The kernel sends every crash to it, those of
    /// containers included, whatever their limits.
    pub core_socket: bool,
}

/// A setting that an annotation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AnnotationLeave {
    /// Which policy applies.
    Policy,
    /// Which mount is the workspace.
    Workspace,
    /// A field of the policy.
    Field(Field),
}

impl AnnotationLeave {
    fn all() -> impl Iterator<Item = Self> {
        let fields = Field::ALL.iter().filter(|field| field.has_annotation());
        [Self::Policy, Self::Workspace]
            .into_iter()
            .chain(fields.copied().map(Self::Field))
    }

    /// The annotation's key without `dev.agentbox.`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Workspace => "workspace",
            Self::Field(field) => field.as_str(),
        }
    }
}

impl fmt::Display for AnnotationLeave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AnnotationLeave {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        Self::all()
            .find(|leave| leave.as_str() == value)
            .ok_or_else(|| ValueError {
                suggestion: nearest(value, Self::all().map(Self::as_str)).map(str::to_owned),
                ..ValueError::grammar(value, "policy, workspace or a field of policies")
            })
    }
}

string_form!(AnnotationLeave);

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

impl NodeConfig {
    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        file::parse(&PolicyText::Node, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_means_the_same_as_a_missing_one() {
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
            learn = true
            core-socket = true
            capabilities = ["NET_RAW"]
            namespaces = ["pid", "network"]
            hooks = ["/usr/bin/hook"]
            devices = ["/dev/kvm"]
            annotations = ["policy", "network.allow"]
            [network]
            upstream-proxy = "http://proxy.example:3128"
            upstream-credentials = "/etc/agentbox/upstream"
            upstream-names = "proxy"
            [log]
            runs = 7
            size = "32MiB"
            required = true
            [[secret]]
            name = "model"
            file = "/etc/agentbox/model-key"
            policies = ["agent"]
            requests = ["POST https://api.example/v1/**"]
            header = "X-Api-Key: {}"
            env = "MODEL_API_KEY"
            "#,
        )
        .unwrap();
        let [secret] = &config.secret[..] else {
            panic!("{:?}", config.secret);
        };
        assert_eq!(secret.place.field(), Some("x-api-key"));
        assert_eq!(secret.placeholder(), "agentbox-secret-model");
        assert_eq!(config.default, Some(PolicyChoice::Unconfined));
        assert_eq!(config.ceiling.unwrap().as_str(), "strict");
        assert_eq!(config.policy_dir.unwrap().as_str(), "/srv/policies");
        assert_eq!(config.preset_dir.unwrap().as_str(), "/srv/presets");
        assert!(config.allow.open_egress && config.allow.learn && config.allow.core_socket);
        let upstream = config.network.upstream().unwrap();
        assert_eq!(upstream.to_string(), "http://proxy.example:3128");
        assert_eq!(upstream.names.as_str(), "proxy");
        assert!(config.network.contradiction().is_none());
        assert_eq!((config.log.runs, config.log.size.bytes()), (7, 32 << 20));
        assert!(config.log.required && !NodeLog::default().required);
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
        let leave = [
            AnnotationLeave::Policy,
            AnnotationLeave::Field(Field::NetworkAllow),
        ];
        assert_eq!(config.allow.annotations, leave.into());
        assert_eq!(config.allow.devices, ["/dev/kvm".parse().unwrap()].into());
    }

    #[test]
    fn an_unknown_entry_is_refused_with_its_line() {
        for (text, line, part) in [
            ("celing = \"strict\"", 1, "celing"),
            ("\nceiling = \"unconfined\"", 2, "reserved"),
            ("default = \"Strict\"", 1, "a-z"),
            ("policy-dir = \"policies\"", 1, "absolute"),
            ("policy_dir = \"/p\"", 1, "policy-dir"),
            ("[allow]\nnamespaces = [\"mount\"]", 2, "one of pid"),
            ("[allow]\ncapabilities = [\"ALL\"]", 2, "capability"),
            (
                "[allow]\nannotations = [\"netwrok.allow\"]",
                2,
                "did you mean network.allow?",
            ),
            (
                "[allow]\nannotations = [\"annotations.loosen\"]",
                2,
                "not policy, workspace",
            ),
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
                "[[secret]]\nname = \"a\"\nrequests = [\n\"GET https://a.test/x\",\n\"git:pull a.test/b/c\"]",
                3,
                "git:read HOST/OWNER/REPOSITORY",
            ),
            ("[log]\nsize = \"1\"", 2, "a size from 1MiB to 64GiB"),
            ("[log]\nruns = -1", 2, "invalid value"),
            (
                "[network]\nupstream-from-user = \"yes\"",
                2,
                "one of off, on",
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
