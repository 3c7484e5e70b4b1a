//! A policy in the making: fields that files and annotations gave so far, and where each came from.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::conflict::Conflict;
use super::list::List;
use super::text::words;
use super::{
    Access, Annotations, AskSeconds, BudgetsKept, ByteSize, Capability, CoolDown, Count, CpuLimit,
    CredentialName, EphemeralDir, Filesystem, GuestPath, InboundPort, LeftOut, Limits, MemoryLimit,
    MountRule, Network, NetworkMode, NetworkRule, OnUnknown, Origin, Policy, PolicyError,
    PolicyName, Privileges, ProcessLimit, RootAccess, RuleItem, ScratchOn, SearchRule, SecretRule,
    Switch, SyscallName, Syscalls,
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
        /// [`Filesystem::scratch_on`].
        FilesystemScratchOn = "filesystem.scratch-on",
        /// [`Filesystem::workspace`].
        FilesystemWorkspace = "filesystem.workspace",
        /// [`Filesystem::mounts`].
        FilesystemMounts = "filesystem.mounts",
        /// [`Filesystem::write`].
        FilesystemWrite = "filesystem.write",
        /// [`Filesystem::workspace_at`].
        FilesystemWorkspaceAt = "filesystem.workspace-at",
        /// [`Filesystem::search`].
        FilesystemSearch = "filesystem.search",
        /// [`Filesystem::credentials`].
        FilesystemCredentials = "filesystem.credentials",
        /// [`Filesystem::secrets`].
        FilesystemSecrets = "filesystem.secrets",
        /// [`Filesystem::service_account_token`].
        FilesystemServiceAccountToken = "filesystem.service-account-token",
        /// [`Filesystem::left_out`].
        FilesystemLeftOut = "filesystem.left-out",
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
        /// [`Network::budgets_kept`].
        NetworkBudgetsKept = "network.budgets-kept",
        /// [`Network::inbound`].
        NetworkInbound = "network.inbound",
        /// [`Syscalls::allow`].
        SyscallsAllow = "syscalls.allow",
        /// [`Syscalls::deny`].
        SyscallsDeny = "syscalls.deny",
        /// [`Syscalls::limit`].
        SyscallsLimit = "syscalls.limit",
        /// [`Privileges::capabilities`].
        PrivilegesCapabilities = "privileges.capabilities",
        /// [`Privileges::set_id`].
        PrivilegesSetId = "privileges.set-id",
        /// [`Limits::pids`].
        LimitsPids = "limits.pids",
        /// [`Limits::memory`].
        LimitsMemory = "limits.memory",
        /// [`Limits::cpus`].
        LimitsCpus = "limits.cpus",
        /// [`Annotations::loosen`].
        AnnotationsLoosen = "annotations.loosen",
    }
}

impl Field {
    /// Whether an annotation can set it. What gives leave to annotations is none of theirs, and what counts in a ceiling
    /// alone would do nothing in a container.
    pub fn has_annotation(self) -> bool {
        let ceilings_alone = matches!(self, Self::NetworkLimit | Self::SyscallsLimit);
        self != Self::AnnotationsLoosen && !ceilings_alone
    }
}

/// Any part of a policy's fields: what one file or one container's annotations say.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    pub filesystem: FilesystemFields,
    pub network: NetworkFields,
    pub syscalls: SyscallsFields,
    pub privileges: PrivilegesFields,
    pub limits: LimitsFields,
    pub annotations: AnnotationsFields,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct FilesystemFields {
    pub root: Option<RootAccess>,
    pub ephemeral: Option<List<EphemeralDir>>,
    pub scratch: Option<ByteSize>,
    pub scratch_on: Option<ScratchOn>,
    pub workspace: Option<Access>,
    pub mounts: Option<MountRule>,
    pub write: Option<List<GuestPath>>,
    pub workspace_at: Option<List<GuestPath>>,
    pub search: Option<SearchRule>,
    pub credentials: Option<List<CredentialName>>,
    pub secrets: Option<SecretRule>,
    pub service_account_token: Option<SecretRule>,
    pub left_out: Option<LeftOut>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct NetworkFields {
    pub mode: Option<NetworkMode>,
    pub allow: Option<List<RuleItem>>,
    pub deny: Option<List<RuleItem>>,
    pub limit: Option<List<RuleItem>>,
    pub on_unknown: Option<OnUnknown>,
    pub ask_seconds: Option<AskSeconds>,
    pub proxy_env: Option<Switch>,
    pub connections: Option<Count>,
    pub connections_per_minute: Option<Count>,
    pub upload: Option<ByteSize>,
    pub hosts: Option<Count>,
    pub cool_down: Option<CoolDown>,
    pub budgets_kept: Option<BudgetsKept>,
    pub inbound: Option<List<InboundPort>>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct SyscallsFields {
    pub allow: Option<List<SyscallName>>,
    pub deny: Option<List<SyscallName>>,
    pub limit: Option<List<SyscallName>>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct PrivilegesFields {
    pub capabilities: Option<List<Capability>>,
    pub set_id: Option<Switch>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct LimitsFields {
    pub pids: Option<ProcessLimit>,
    pub memory: Option<MemoryLimit>,
    pub cpus: Option<CpuLimit>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct AnnotationsFields {
    pub loosen: Option<List<Field>>,
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
            filesystem,
            network,
            syscalls: SyscallsFields { allow, deny, limit },
            privileges:
                PrivilegesFields {
                    capabilities,
                    set_id,
                },
            limits: LimitsFields { pids, memory, cpus },
            annotations: AnnotationsFields { loosen },
        } = over;
        let mut note = |field| {
            origins.insert(field, origin(field));
        };
        self.filesystem.overlay(filesystem, &mut note);
        self.network.overlay(network, &mut note);
        let slots = &mut self.syscalls;
        put_list(&mut slots.allow, allow, Field::SyscallsAllow, &mut note);
        put_list(&mut slots.deny, deny, Field::SyscallsDeny, &mut note);
        put_list(&mut slots.limit, limit, Field::SyscallsLimit, &mut note);
        let slots = &mut self.privileges;
        let field = Field::PrivilegesCapabilities;
        put_list(&mut slots.capabilities, capabilities, field, &mut note);
        put(&mut slots.set_id, set_id, Field::PrivilegesSetId, &mut note);
        let slots = &mut self.limits;
        put(&mut slots.pids, pids, Field::LimitsPids, &mut note);
        put(&mut slots.memory, memory, Field::LimitsMemory, &mut note);
        put(&mut slots.cpus, cpus, Field::LimitsCpus, &mut note);
        let slot = &mut self.annotations.loosen;
        put_list(slot, loosen, Field::AnnotationsLoosen, &mut note);
    }

    /// What one author wrote, made complete: whoever lists hosts, or wants unknown ones asked for, wants them reached.
    /// Says whether the network's mode follows from that.
    ///
    /// What cannot all be meant is refused: a policy may be narrowed into such a state, one author may not write it.
    pub fn settle(&mut self) -> Result<bool, Conflict> {
        let both = match (&self.syscalls.allow, &self.syscalls.deny) {
            (Some(allow), Some(deny)) => allow.items.intersection(&deny.items).next(),
            _ => None,
        };
        if let Some(name) = both {
            return Err(Conflict::Syscall(name.clone()));
        }
        let files = &self.filesystem;
        let writes = (files.write.as_ref()).is_some_and(|list| !list.items.is_empty());
        if writes && files.mounts == Some(MountRule::Drop) {
            return Err(Conflict::WriteDropped);
        }
        let network = &mut self.network;
        let lists = (network.allow.as_ref()).is_some_and(|list| !list.items.is_empty());
        let asks = network.on_unknown == Some(OnUnknown::Ask);
        match network.mode {
            Some(NetworkMode::None | NetworkMode::Local) if lists => Err(Conflict::NoNetwork),
            Some(NetworkMode::None | NetworkMode::Local) if asks => Err(Conflict::NoneAsked),
            None if lists || asks => {
                network.mode = Some(NetworkMode::Allowlist);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The whole policy with its presets written out and without values that have no effect, so that it can be written
    /// as one file; or the missing fields.
    pub fn complete(self, name: PolicyName, presets: &Expand<'_>) -> Result<Policy, Unfinished> {
        let Fields {
            filesystem,
            network,
            syscalls,
            privileges,
            limits,
            annotations,
        } = self;
        let filesystem = filesystem.complete()?;
        let network = network.complete(presets)?;
        let mut calls = Syscalls {
            allow: syscalls.allow.ok_or(Field::SyscallsAllow)?.items,
            deny: syscalls.deny.ok_or(Field::SyscallsDeny)?.items,
            limit: syscalls.limit.ok_or(Field::SyscallsLimit)?.items,
        };
        calls.allow.retain(|name| !calls.deny.contains(name));
        Ok(Policy {
            name,
            filesystem,
            network,
            syscalls: calls,
            privileges: Privileges {
                capabilities: privileges
                    .capabilities
                    .ok_or(Field::PrivilegesCapabilities)?
                    .items,
                set_id: privileges.set_id.ok_or(Field::PrivilegesSetId)?,
            },
            limits: Limits {
                pids: limits.pids.ok_or(Field::LimitsPids)?,
                memory: limits.memory.ok_or(Field::LimitsMemory)?,
                cpus: limits.cpus.ok_or(Field::LimitsCpus)?,
            },
            annotations: Annotations {
                loosen: annotations.loosen.ok_or(Field::AnnotationsLoosen)?.items,
            },
        })
    }
}

impl FilesystemFields {
    fn overlay(&mut self, over: Self, note: &mut impl FnMut(Field)) {
        let Self {
            root,
            ephemeral,
            scratch,
            scratch_on,
            workspace,
            mounts,
            write,
            workspace_at,
            search,
            credentials,
            secrets,
            service_account_token,
            left_out,
        } = over;
        put(&mut self.root, root, Field::FilesystemRoot, note);
        let slot = &mut self.ephemeral;
        put_list(slot, ephemeral, Field::FilesystemEphemeral, note);
        put(&mut self.scratch, scratch, Field::FilesystemScratch, note);
        let slot = &mut self.scratch_on;
        put(slot, scratch_on, Field::FilesystemScratchOn, note);
        let slot = &mut self.workspace;
        put(slot, workspace, Field::FilesystemWorkspace, note);
        put(&mut self.mounts, mounts, Field::FilesystemMounts, note);
        put_list(&mut self.write, write, Field::FilesystemWrite, note);
        let slot = &mut self.workspace_at;
        put_list(slot, workspace_at, Field::FilesystemWorkspaceAt, note);
        put(&mut self.search, search, Field::FilesystemSearch, note);
        let slot = &mut self.credentials;
        put_list(slot, credentials, Field::FilesystemCredentials, note);
        put(&mut self.secrets, secrets, Field::FilesystemSecrets, note);
        let slot = &mut self.service_account_token;
        let field = Field::FilesystemServiceAccountToken;
        put(slot, service_account_token, field, note);
        put(&mut self.left_out, left_out, Field::FilesystemLeftOut, note);
    }

    fn complete(self) -> Result<Filesystem, Field> {
        let mut files = Filesystem {
            root: self.root.ok_or(Field::FilesystemRoot)?,
            ephemeral: self.ephemeral.ok_or(Field::FilesystemEphemeral)?.items,
            scratch: self.scratch.ok_or(Field::FilesystemScratch)?,
            scratch_on: self.scratch_on.ok_or(Field::FilesystemScratchOn)?,
            workspace: self.workspace.ok_or(Field::FilesystemWorkspace)?,
            mounts: self.mounts.ok_or(Field::FilesystemMounts)?,
            write: self.write.ok_or(Field::FilesystemWrite)?.items,
            workspace_at: self.workspace_at.ok_or(Field::FilesystemWorkspaceAt)?.items,
            search: self.search.ok_or(Field::FilesystemSearch)?,
            credentials: self.credentials.ok_or(Field::FilesystemCredentials)?.items,
            secrets: self.secrets.ok_or(Field::FilesystemSecrets)?,
            service_account_token: self
                .service_account_token
                .ok_or(Field::FilesystemServiceAccountToken)?,
            left_out: self.left_out.ok_or(Field::FilesystemLeftOut)?,
        };
        if files.mounts == MountRule::Drop {
            files.write.clear();
        }
        Ok(files)
    }
}

impl From<Filesystem> for FilesystemFields {
    fn from(filesystem: Filesystem) -> Self {
        let Filesystem {
            root,
            ephemeral,
            scratch,
            scratch_on,
            workspace,
            mounts,
            write,
            workspace_at,
            search,
            credentials,
            secrets,
            service_account_token,
            left_out,
        } = filesystem;
        Self {
            root: Some(root),
            ephemeral: Some(ephemeral.into()),
            scratch: Some(scratch),
            scratch_on: Some(scratch_on),
            workspace: Some(workspace),
            mounts: Some(mounts),
            write: Some(write.into()),
            workspace_at: Some(workspace_at.into()),
            search: Some(search),
            credentials: Some(credentials.into()),
            secrets: Some(secrets),
            service_account_token: Some(service_account_token),
            left_out: Some(left_out),
        }
    }
}

impl From<Policy> for Fields {
    fn from(policy: Policy) -> Self {
        let Policy {
            name: _,
            filesystem,
            network,
            syscalls: Syscalls { allow, deny, limit },
            privileges:
                Privileges {
                    capabilities,
                    set_id,
                },
            limits: Limits { pids, memory, cpus },
            annotations: Annotations { loosen },
        } = policy;
        Fields {
            filesystem: filesystem.into(),
            network: network.into(),
            syscalls: SyscallsFields {
                allow: Some(allow.into()),
                deny: Some(deny.into()),
                limit: Some(limit.into()),
            },
            privileges: PrivilegesFields {
                capabilities: Some(capabilities.into()),
                set_id: Some(set_id),
            },
            limits: LimitsFields {
                pids: Some(pids),
                memory: Some(memory),
                cpus: Some(cpus),
            },
            annotations: AnnotationsFields {
                loosen: Some(loosen.into()),
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
            budgets_kept,
            inbound,
        } = over;
        put(&mut self.mode, mode, Field::NetworkMode, note);
        put_list(&mut self.allow, allow, Field::NetworkAllow, note);
        put_list(&mut self.deny, deny, Field::NetworkDeny, note);
        put_list(&mut self.limit, limit, Field::NetworkLimit, note);
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
        let slot = &mut self.budgets_kept;
        put(slot, budgets_kept, Field::NetworkBudgetsKept, note);
        put_list(&mut self.inbound, inbound, Field::NetworkInbound, note);
    }

    fn complete(self, presets: &Expand<'_>) -> Result<Network, Unfinished> {
        let rules = |list: Option<List<RuleItem>>, field: Field| {
            let mut rules = BTreeSet::new();
            for item in list.ok_or(field)?.items {
                match item {
                    RuleItem::Rule(rule) => drop(rules.insert(rule)),
                    RuleItem::Preset(name) => {
                        rules.extend(presets(&name, field).map_err(Unfinished::Preset)?);
                    }
                }
            }
            Ok::<_, Unfinished>(rules)
        };
        let mode = self.mode.ok_or(Field::NetworkMode)?;
        let mut allow = rules(self.allow, Field::NetworkAllow)?;
        let mut on_unknown = self.on_unknown.ok_or(Field::NetworkOnUnknown)?;
        if mode != NetworkMode::Allowlist {
            allow.clear();
            on_unknown = OnUnknown::Deny;
        }
        Ok(Network {
            mode,
            allow,
            deny: rules(self.deny, Field::NetworkDeny)?,
            limit: rules(self.limit, Field::NetworkLimit)?,
            on_unknown,
            ask_seconds: self.ask_seconds.ok_or(Field::NetworkAskSeconds)?,
            proxy_env: self.proxy_env.ok_or(Field::NetworkProxyEnv)?,
            connections: self.connections.ok_or(Field::NetworkConnections)?,
            connections_per_minute: self
                .connections_per_minute
                .ok_or(Field::NetworkConnectionsPerMinute)?,
            upload: self.upload.ok_or(Field::NetworkUpload)?,
            hosts: self.hosts.ok_or(Field::NetworkHosts)?,
            cool_down: self.cool_down.ok_or(Field::NetworkCoolDown)?,
            budgets_kept: self.budgets_kept.ok_or(Field::NetworkBudgetsKept)?,
            inbound: self.inbound.ok_or(Field::NetworkInbound)?.items,
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
            budgets_kept,
            inbound,
        } = network;
        let items = |rules: BTreeSet<NetworkRule>| -> List<RuleItem> {
            let items: BTreeSet<_> = rules.into_iter().map(RuleItem::Rule).collect();
            items.into()
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
            budgets_kept: Some(budgets_kept),
            inbound: Some(inbound.into()),
        }
    }
}

fn put<T>(slot: &mut Option<T>, value: Option<T>, field: Field, note: &mut impl FnMut(Field)) {
    if value.is_some() {
        *slot = value;
        note(field);
    }
}

fn put_list<T: Ord>(
    slot: &mut Option<List<T>>,
    list: Option<List<T>>,
    field: Field,
    note: &mut impl FnMut(Field),
) {
    if let Some(list) = list {
        list.put(slot);
        note(field);
    }
}
