//! PURE: what the operator asks for. Text in (annotations, `--policy`, the node's files), [`Policy`] out.
//!
//! Nothing here reads a file, the environment or a clock. The shell hands over texts, and [`resolve`] returns the
//! policy with the origin of each field, within all ceilings. Input that cannot be understood is an error with its
//! place, the fault and the allowed values; nothing is skipped.
//!
//! ```text
//! annotations --annotation--> Request --+
//! policies/*.toml --file--> Draft ------+--resolve--> Selection
//! config.toml --node--> NodeConfig -----+      \--ceiling: field by field
//! ```

mod annotation;
pub mod bound;
mod builtin;
pub mod capability;
pub mod catalogue;
pub mod ceiling;
pub mod closed;
mod conflict;
pub mod count;
pub mod credential;
pub mod embedded;
mod error;
mod fields;
mod file;
pub mod host;
pub mod inbound;
mod list;
mod message;
pub mod name;
mod narrow;
mod network;
pub mod node;
pub mod path;
mod policy_text;
mod prefix;
pub mod preset;
mod resolve;
pub mod rule;
mod rule_item;
pub mod seconds;
pub mod size;
pub mod syscall;
mod text;
pub mod upstream;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use annotation::{POLICY_KEY, WORKSPACE_KEY, key as annotation_key};
pub use bound::{CpuLimit, MemoryLimit, ProcessLimit};
pub use builtin::BUILTIN;
pub use capability::Capability;
pub use ceiling::{Exceeded, NetworkLimit, exceeds};
pub use count::Count;
pub use credential::CredentialName;
pub use error::{OverLimit, PolicyError};
pub use fields::Field;
pub use file::{misnamed as misnamed_policy, unreadable};
pub use host::{Host, HostName};
pub use inbound::InboundPort;
pub use list::items as annotation_list;
pub use name::{PolicyChoice, PolicyName, UNCONFINED};
pub use network::MOST_PORTS;
pub use node::{AnnotationLeave, DEFAULT_ROOT, NamespaceKind, NodeAllow, NodeConfig};
pub use path::{GuestPath, HostPath};
pub use prefix::NetworkPrefix;
pub use preset::misnamed as misnamed_preset;
pub use resolve::{Asker, Ceiling, Leave, Origin, Resolved, Selection, Sources, resolve};
pub use rule::{NetworkRule, Reach, Target};
pub use rule_item::{PresetName, RuleItem};
pub use seconds::{AskSeconds, BudgetsKept, CoolDown};
pub use size::ByteSize;
pub use syscall::SyscallName;
#[cfg(test)]
pub(crate) use text::is_treacherous;
pub use text::{MESSAGE, ValueError, bounded, escape, escape_json, few, shown};
pub use upstream::{NodeNetwork, Secret, Upstream, UpstreamNames};

use text::words;

/// What is asked for, complete: every field has a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// The policy that was chosen; annotations may have changed single fields of it.
    pub name: PolicyName,
    /// What of the file system is seen and written.
    pub filesystem: Filesystem,
    /// What is reached.
    pub network: Network,
    /// Which system calls are made.
    pub syscalls: Syscalls,
    /// What root may do.
    pub privileges: Privileges,
    /// What it may take of the node.
    #[serde(default)]
    pub limits: Limits,
    /// What annotations may ask of it beyond what it says.
    #[serde(default)]
    pub annotations: Annotations,
}

/// The filesystem wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Filesystem {
    /// The image's files.
    pub root: RootAccess,
    /// Directories that are private, writable and thrown away.
    pub ephemeral: BTreeSet<EphemeralDir>,
    /// The upper bound of all that is ephemeral together.
    pub scratch: ByteSize,
    /// Where that lies.
    #[serde(default = "scratch_on_as_before")]
    pub scratch_on: ScratchOn,
    /// The workspace's mount.
    pub workspace: Access,
    /// The other binds and volumes.
    pub mounts: MountRule,
    /// Mount points that may be written although `mounts` says read-only. It neither brings back what `mounts` drops
    /// nor says anything of the workspace, which `workspace` alone rules.
    pub write: BTreeSet<GuestPath>,
    /// Where the workspace may be mounted; anywhere, if it names nothing.
    #[serde(default)]
    pub workspace_at: BTreeSet<GuestPath>,
    /// What becomes of a mount that is too large to be searched for credentials and sockets.
    #[serde(default = "search_as_before")]
    pub search: SearchRule,
    /// Credentials that are meant to be seen where a kept mount has them, such as an agent's own login.
    #[serde(default)]
    pub credentials: BTreeSet<CredentialName>,
    /// What becomes of a pod's volumes that are or may be Secrets.
    #[serde(default = "secrets_as_before")]
    pub secrets: SecretRule,
    /// What becomes of a pod's volumes that hold a token of its service account.
    #[serde(default = "secrets_as_before")]
    pub service_account_token: SecretRule,
    /// What becomes of a container that asked for a mount and does not get it.
    #[serde(default = "left_out_as_before")]
    pub left_out: LeftOut,
}

/// The network wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Network {
    /// How far a connection gets.
    pub mode: NetworkMode,
    /// Hosts and ports that may be reached under [`NetworkMode::Allowlist`]; presets are spelled out.
    pub allow: BTreeSet<NetworkRule>,
    /// Hosts that may not, whatever `allow` says.
    pub deny: BTreeSet<NetworkRule>,
    /// What may be allowed on top where this policy is a ceiling. It allows nothing by itself.
    pub limit: BTreeSet<NetworkRule>,
    /// What becomes of a connection to a name that no rule names.
    #[serde(default = "unknown_is_denied")]
    pub on_unknown: OnUnknown,
    /// How long it waits, where it is asked for.
    #[serde(default = "ask_half_a_minute")]
    pub ask_seconds: AskSeconds,
    /// How long nothing is let through after a budget was used up.
    #[serde(default = "no_cool_down")]
    pub cool_down: CoolDown,
    /// How long after a run what it used of [`Self::upload`] and [`Self::hosts`] still counts when the same container is
    /// started again; 0: each start begins anew.
    #[serde(default = "no_budgets_kept")]
    pub budgets_kept: BudgetsKept,
    /// Whether the workload is told of the proxy by HTTP_PROXY and its kin.
    pub proxy_env: Switch,
    /// Connections at once.
    pub connections: Count,
    /// New connections in a minute.
    pub connections_per_minute: Count,
    /// Bytes sent, all connections together, while the container lives.
    pub upload: ByteSize,
    /// Different names that are resolved while the container lives: a wildcard could carry data out in them.
    pub hosts: Count,
    /// Ports of the engine's network that lead to the same port of the container's loopback.
    #[serde(default)]
    pub inbound: BTreeSet<InboundPort>,
}

/// The syscall wall, on top of the base rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Syscalls {
    /// Allowed although the base rules deny them. What is in `deny` too is denied.
    pub allow: BTreeSet<SyscallName>,
    /// Denied although the base rules allow them.
    pub deny: BTreeSet<SyscallName>,
    /// What may be allowed besides `allow` where this policy is a ceiling. It allows nothing by itself.
    #[serde(default)]
    pub limit: BTreeSet<SyscallName>,
}

impl Syscalls {
    /// The names that are really added to the base rules: deny wins.
    pub fn allowed(&self) -> impl Iterator<Item = &SyscallName> {
        self.allow.difference(&self.deny)
    }
}

/// The privileges of a process of user 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Privileges {
    /// At most these of those that the engine gave.
    pub capabilities: BTreeSet<Capability>,
    /// Whether files can be made set-user-ID or set-group-ID.
    #[serde(default = "set_id_as_before")]
    pub set_id: Switch,
}

/// What a container may take of the node: the smaller of this and of what the engine says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Processes and threads.
    pub pids: ProcessLimit,
    /// Memory; what is ephemeral counts.
    pub memory: MemoryLimit,
    /// Processors.
    pub cpus: CpuLimit,
}

/// What records of before there were limits meant.
impl Default for Limits {
    fn default() -> Self {
        Self {
            pids: ProcessLimit::Unlimited,
            memory: MemoryLimit::Unlimited,
            cpus: CpuLimit::Unlimited,
        }
    }
}

/// What annotations may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Annotations {
    /// Fields that an annotation may set to more than the policy says, up to the node's ceiling. It counts only where
    /// neither the node's file nor `--policy` sets a ceiling, and not for annotations that an image may have written.
    pub loosen: BTreeSet<Field>,
}

words! {
    /// What becomes of writes to the image's files.
    RootAccess {
        /// They are refused.
        ReadOnly = "read-only",
        /// They go to an overlay that is thrown away.
        Ephemeral = "ephemeral",
    }
}

words! {
    /// A directory, or the one that stands for it in this container, that can be made ephemeral.
    EphemeralDir {
        /// `/tmp`.
        Tmp = "tmp",
        /// The user's home directory.
        Home = "home",
        /// `/var`.
        Var = "var",
        /// `/run`.
        Run = "run",
        /// The user's home directory, empty at first, of which nothing can be executed.
        EmptyHome = "empty-home",
    }
}

words! {
    /// Where what is thrown away lies until then.
    ScratchOn {
        /// In memory, as the container's.
        Memory = "memory",
        /// On disk, or in memory where the node cannot.
        Auto = "auto",
        /// On disk; where the node cannot, the container is refused.
        Disk = "disk",
    }
}

words! {
    /// What may be done with a mount.
    Access {
        /// It is not there.
        None = "none",
        /// It is read.
        ReadOnly = "read-only",
        /// It is read and written.
        ReadWrite = "read-write",
    }
}

words! {
    /// What becomes of binds and volumes other than the workspace.
    MountRule {
        /// They are not mounted.
        Drop = "drop",
        /// They are mounted read-only, except those that `write` lists.
        ReadOnly = "read-only",
        /// They keep the access that the engine gave.
        Keep = "keep",
    }
}

words! {
    /// What becomes of a mount that is too large to be searched.
    SearchRule {
        /// The container is refused.
        Complete = "complete",
        /// It gets the mount, with what was found masked.
        Partial = "partial",
    }
}

words! {
    /// What becomes of a pod's volume with what is secret.
    SecretRule {
        /// It is not mounted.
        Drop = "drop",
        /// It is mounted read-only.
        ReadOnly = "read-only",
    }
}

words! {
    /// What becomes of a container that asked for a mount and does not get it.
    LeftOut {
        /// It is refused.
        Refuse = "error",
        /// It starts without; `explain` names the mount.
        Report = "report",
    }
}

words! {
    /// How far a connection gets.
    NetworkMode {
        /// An interface `lo` and nothing else.
        None = "none",
        /// The same, and the inbound ports that the policy names.
        Local = "local",
        /// What the policy's rules allow, through the sidecar.
        Allowlist = "allowlist",
    }
}

/// What records of before there was this field meant.
fn search_as_before() -> SearchRule {
    SearchRule::Partial
}

/// What records of before there were these fields meant.
fn secrets_as_before() -> SecretRule {
    SecretRule::Drop
}

/// What records of before there was this field meant.
fn scratch_on_as_before() -> ScratchOn {
    ScratchOn::Memory
}

/// What records of before there was this field meant.
fn left_out_as_before() -> LeftOut {
    LeftOut::Report
}

/// What records of before there was this field meant.
fn set_id_as_before() -> Switch {
    Switch::On
}

/// What records of before there was asking meant.
fn unknown_is_denied() -> OnUnknown {
    OnUnknown::Deny
}

fn ask_half_a_minute() -> AskSeconds {
    30.try_into().expect("it is within the bounds")
}

fn no_budgets_kept() -> BudgetsKept {
    0.try_into().expect("it is within the bounds")
}

fn no_cool_down() -> CoolDown {
    0.try_into().expect("it is within the bounds")
}

words! {
    /// What becomes of a connection to a name that no rule names.
    OnUnknown {
        /// It is refused.
        Deny = "deny",
        /// It waits until a person decides, within the ceiling.
        Ask = "ask",
    }
}

words! {
    /// On or off.
    Switch {
        /// Off.
        Off = "off",
        /// On.
        On = "on",
    }
}

impl Policy {
    /// The policy as a file that says everything and needs no base.
    pub fn to_toml(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            filesystem: &'a Filesystem,
            network: &'a Network,
            syscalls: &'a Syscalls,
            privileges: &'a Privileges,
            limits: &'a Limits,
            annotations: &'a Annotations,
        }
        // The name is the file's.
        let Policy {
            name: _,
            filesystem,
            network,
            syscalls,
            privileges,
            limits,
            annotations,
        } = self;
        toml::to_string(&Document {
            filesystem,
            network,
            syscalls,
            privileges,
            limits,
            annotations,
        })
        .expect("tables of strings and arrays of strings always have a TOML form")
    }
}
