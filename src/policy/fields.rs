//! A policy in the making: fields that files and annotations gave so far, and where each came from.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::text::words;
use super::{
    Access, AskSeconds, ByteSize, Capability, CoolDown, Count, EphemeralDir, Filesystem, GuestPath,
    InboundPort, MountRule, Network, NetworkMode, NetworkRule, OnUnknown, Origin, Policy,
    PolicyError, PolicyName, Privileges, RootAccess, RuleItem, Switch, SyscallName, Syscalls,
};

words! {
    /// A field of a policy, by its place in the file. Its annotation is `dev.agentbox.` and the same words.
    Field {
        /// [`Filesystem::root`].
        FilesystemRoot = "filesystem.root",
        /// [`Filesystem::ephemeral`].
        FilesystemEphemeral = "filesystem.ephemeral",
        /// [`Filesystem::scratch`].
        FilesystemScratch = "filesystem.scratch",
        /// [`Filesystem::workspace`].
        FilesystemWorkspace = "filesystem.workspace",
        /// [`Filesystem::mounts`].
        FilesystemMounts = "filesystem.mounts",
        /// [`Filesystem::write`].
        FilesystemWrite = "filesystem.write",
        /// [`Network::mode`].
        NetworkMode = "network.mode",
        /// [`Network::allow`].
        NetworkAllow = "network.allow",
        /// [`Network::deny`].
        NetworkDeny = "network.deny",
        /// [`Network::limit`].
        NetworkLimit = "network.limit",
        /// [`Network::on_unknown`].
        NetworkOnUnknown = "network.on-unknown",
        /// [`Network::ask_seconds`].
        NetworkAskSeconds = "network.ask-seconds",
        /// [`Network::proxy_env`].
        NetworkProxyEnv = "network.proxy-env",
        /// [`Network::connections`].
        NetworkConnections = "network.connections",
        /// [`Network::connections_per_minute`].
        NetworkConnectionsPerMinute = "network.connections-per-minute",
        /// [`Network::upload`].
        NetworkUpload = "network.upload",
        /// [`Network::hosts`].
        NetworkHosts = "network.hosts",
        /// [`Network::cool_down`].
        NetworkCoolDown = "network.cool-down",
        /// [`Network::inbound`].
        NetworkInbound = "network.inbound",
        /// [`Syscalls::allow`].
        SyscallsAllow = "syscalls.allow",
        /// [`Syscalls::deny`].
        SyscallsDeny = "syscalls.deny",
        /// [`Privileges::capabilities`].
        PrivilegesCapabilities = "privileges.capabilities",
    }
}

/// Any part of a policy's fields: what one file or one container's annotations say.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    pub filesystem: FilesystemFields,
    pub network: NetworkFields,
    pub syscalls: SyscallsFields,
    pub privileges: PrivilegesFields,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct FilesystemFields {
    pub root: Option<RootAccess>,
    pub ephemeral: Option<BTreeSet<EphemeralDir>>,
    pub scratch: Option<ByteSize>,
    pub workspace: Option<Access>,
    pub mounts: Option<MountRule>,
    pub write: Option<BTreeSet<GuestPath>>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct NetworkFields {
    pub mode: Option<NetworkMode>,
    pub allow: Option<BTreeSet<RuleItem>>,
    pub deny: Option<BTreeSet<RuleItem>>,
    pub limit: Option<BTreeSet<RuleItem>>,
    pub on_unknown: Option<OnUnknown>,
    pub ask_seconds: Option<AskSeconds>,
    pub proxy_env: Option<Switch>,
    pub connections: Option<Count>,
    pub connections_per_minute: Option<Count>,
    pub upload: Option<ByteSize>,
    pub hosts: Option<Count>,
    pub cool_down: Option<CoolDown>,
    pub inbound: Option<BTreeSet<InboundPort>>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct SyscallsFields {
    pub allow: Option<BTreeSet<SyscallName>>,
    pub deny: Option<BTreeSet<SyscallName>>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct PrivilegesFields {
    pub capabilities: Option<BTreeSet<Capability>>,
}

/// Where each field of a policy came from.
pub(super) type Origins = BTreeMap<Field, Origin>;

impl Fields {
    /// Puts what `over` gives on top of what is here, and notes where it came from.
    pub fn overlay(
        &mut self,
        over: Fields,
        origins: &mut Origins,
        origin: impl Fn(Field) -> Origin,
    ) {
        // No `..`: a field added to the policy does not compile until it can be overridden.
        let Fields {
            filesystem:
                FilesystemFields {
                    root,
                    ephemeral,
                    scratch,
                    workspace,
                    mounts,
                    write,
                },
            network,
            syscalls: SyscallsFields { allow, deny },
            privileges: PrivilegesFields { capabilities },
        } = over;
        let mut note = |field| {
            origins.insert(field, origin(field));
        };
        let files = &mut self.filesystem;
        put(&mut files.root, root, Field::FilesystemRoot, &mut note);
        put(
            &mut files.ephemeral,
            ephemeral,
            Field::FilesystemEphemeral,
            &mut note,
        );
        put(
            &mut files.scratch,
            scratch,
            Field::FilesystemScratch,
            &mut note,
        );
        put(
            &mut files.workspace,
            workspace,
            Field::FilesystemWorkspace,
            &mut note,
        );
        put(
            &mut files.mounts,
            mounts,
            Field::FilesystemMounts,
            &mut note,
        );
        put(&mut files.write, write, Field::FilesystemWrite, &mut note);
        self.network.overlay(network, &mut note);
        put(
            &mut self.syscalls.allow,
            allow,
            Field::SyscallsAllow,
            &mut note,
        );
        put(
            &mut self.syscalls.deny,
            deny,
            Field::SyscallsDeny,
            &mut note,
        );
        let slot = &mut self.privileges.capabilities;
        put(slot, capabilities, Field::PrivilegesCapabilities, &mut note);
    }

    /// The whole policy with its presets spelled out, or what is missing.
    pub fn complete(self, name: PolicyName, presets: &Expand<'_>) -> Result<Policy, Unfinished> {
        let Fields {
            filesystem,
            network,
            syscalls,
            privileges,
        } = self;
        Ok(Policy {
            name,
            filesystem: Filesystem {
                root: filesystem.root.ok_or(Field::FilesystemRoot)?,
                ephemeral: filesystem.ephemeral.ok_or(Field::FilesystemEphemeral)?,
                scratch: filesystem.scratch.ok_or(Field::FilesystemScratch)?,
                workspace: filesystem.workspace.ok_or(Field::FilesystemWorkspace)?,
                mounts: filesystem.mounts.ok_or(Field::FilesystemMounts)?,
                write: filesystem.write.ok_or(Field::FilesystemWrite)?,
            },
            network: network.complete(presets)?,
            syscalls: Syscalls {
                allow: syscalls.allow.ok_or(Field::SyscallsAllow)?,
                deny: syscalls.deny.ok_or(Field::SyscallsDeny)?,
            },
            privileges: Privileges {
                capabilities: privileges
                    .capabilities
                    .ok_or(Field::PrivilegesCapabilities)?,
            },
        })
    }
}

impl From<Policy> for Fields {
    fn from(policy: Policy) -> Self {
        let Policy {
            name: _,
            filesystem:
                Filesystem {
                    root,
                    ephemeral,
                    scratch,
                    workspace,
                    mounts,
                    write,
                },
            network,
            syscalls: Syscalls { allow, deny },
            privileges: Privileges { capabilities },
        } = policy;
        Fields {
            filesystem: FilesystemFields {
                root: Some(root),
                ephemeral: Some(ephemeral),
                scratch: Some(scratch),
                workspace: Some(workspace),
                mounts: Some(mounts),
                write: Some(write),
            },
            network: network.into(),
            syscalls: SyscallsFields {
                allow: Some(allow),
                deny: Some(deny),
            },
            privileges: PrivilegesFields {
                capabilities: Some(capabilities),
            },
        }
    }
}

/// Looks up a preset that a field names.
pub(super) type Expand<'a> =
    dyn Fn(&super::PresetName, Field) -> Result<BTreeSet<NetworkRule>, PolicyError> + 'a;

/// Why fields are no policy.
pub(super) enum Unfinished {
    /// Nobody gave this one.
    Missing(Field),
    /// A preset does not exist or cannot be read.
    Preset(PolicyError),
}

impl From<Field> for Unfinished {
    fn from(field: Field) -> Self {
        Self::Missing(field)
    }
}

impl NetworkFields {
    fn overlay(&mut self, over: Self, note: &mut impl FnMut(Field)) {
        let Self {
            mode,
            allow,
            deny,
            limit,
            on_unknown,
            ask_seconds,
            proxy_env,
            connections,
            connections_per_minute,
            upload,
            hosts,
            cool_down,
            inbound,
        } = over;
        put(&mut self.mode, mode, Field::NetworkMode, note);
        put(&mut self.allow, allow, Field::NetworkAllow, note);
        put(&mut self.deny, deny, Field::NetworkDeny, note);
        put(&mut self.limit, limit, Field::NetworkLimit, note);
        let slot = &mut self.on_unknown;
        put(slot, on_unknown, Field::NetworkOnUnknown, note);
        let slot = &mut self.ask_seconds;
        put(slot, ask_seconds, Field::NetworkAskSeconds, note);
        put(&mut self.proxy_env, proxy_env, Field::NetworkProxyEnv, note);
        let slot = &mut self.connections;
        put(slot, connections, Field::NetworkConnections, note);
        let slot = &mut self.connections_per_minute;
        let field = Field::NetworkConnectionsPerMinute;
        put(slot, connections_per_minute, field, note);
        put(&mut self.upload, upload, Field::NetworkUpload, note);
        put(&mut self.hosts, hosts, Field::NetworkHosts, note);
        put(&mut self.cool_down, cool_down, Field::NetworkCoolDown, note);
        put(&mut self.inbound, inbound, Field::NetworkInbound, note);
    }

    fn complete(self, presets: &Expand<'_>) -> Result<Network, Unfinished> {
        let rules = |items: Option<BTreeSet<RuleItem>>, field: Field| {
            let mut rules = BTreeSet::new();
            for item in items.ok_or(field)? {
                match item {
                    RuleItem::Rule(rule) => drop(rules.insert(rule)),
                    RuleItem::Preset(name) => {
                        rules.extend(presets(&name, field).map_err(Unfinished::Preset)?);
                    }
                }
            }
            Ok::<_, Unfinished>(rules)
        };
        Ok(Network {
            mode: self.mode.ok_or(Field::NetworkMode)?,
            allow: rules(self.allow, Field::NetworkAllow)?,
            deny: rules(self.deny, Field::NetworkDeny)?,
            limit: rules(self.limit, Field::NetworkLimit)?,
            on_unknown: self.on_unknown.ok_or(Field::NetworkOnUnknown)?,
            ask_seconds: self.ask_seconds.ok_or(Field::NetworkAskSeconds)?,
            proxy_env: self.proxy_env.ok_or(Field::NetworkProxyEnv)?,
            connections: self.connections.ok_or(Field::NetworkConnections)?,
            connections_per_minute: self
                .connections_per_minute
                .ok_or(Field::NetworkConnectionsPerMinute)?,
            upload: self.upload.ok_or(Field::NetworkUpload)?,
            hosts: self.hosts.ok_or(Field::NetworkHosts)?,
            cool_down: self.cool_down.ok_or(Field::NetworkCoolDown)?,
            inbound: self.inbound.ok_or(Field::NetworkInbound)?,
        })
    }
}

impl From<Network> for NetworkFields {
    fn from(network: Network) -> Self {
        let Network {
            mode,
            allow,
            deny,
            limit,
            on_unknown,
            ask_seconds,
            proxy_env,
            connections,
            connections_per_minute,
            upload,
            hosts,
            cool_down,
            inbound,
        } = network;
        let items = |rules: BTreeSet<NetworkRule>| -> BTreeSet<RuleItem> {
            rules.into_iter().map(RuleItem::Rule).collect()
        };
        Self {
            mode: Some(mode),
            allow: Some(items(allow)),
            deny: Some(items(deny)),
            limit: Some(items(limit)),
            on_unknown: Some(on_unknown),
            ask_seconds: Some(ask_seconds),
            proxy_env: Some(proxy_env),
            connections: Some(connections),
            connections_per_minute: Some(connections_per_minute),
            upload: Some(upload),
            hosts: Some(hosts),
            cool_down: Some(cool_down),
            inbound: Some(inbound),
        }
    }
}

fn put<T>(slot: &mut Option<T>, value: Option<T>, field: Field, note: &mut impl FnMut(Field)) {
    if value.is_some() {
        *slot = value;
        note(field);
    }
}
