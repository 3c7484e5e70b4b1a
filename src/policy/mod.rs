//! PURE: what a container is allowed. Text in (annotations, `--policy`, the node's files), [`Policy`] out.
//!
//! Nothing here reads a file, the environment or a clock. The shell passes in texts, and [`resolve`] returns the policy
//! with the origin of each field, within all ceilings. Unreadable input is an error with its place, the fault and the
//! allowed values; nothing is skipped.
//!
//! ```text
//! annotations --annotation--> Request --+
//! options of wrap ----asked---> Layer ---+
//! policies/*.toml --file--> Draft ------+--resolve--> Selection
//! config.toml --node--> NodeConfig -----+      \--ceiling: field by field
//! ```

mod advice;
mod annotation;
mod audited;
pub mod bound;
mod builtin;
pub mod capability;
pub mod catalogue;
pub mod ceiling;
mod ceiling_rule;
mod check;
mod conflict;
pub mod connect;
pub mod credential;
mod error;
mod fields;
mod file;
mod file_text;
mod honey;
pub mod inbound;
mod key_preset;
mod leave;
mod list;
mod message;
pub mod name;
mod narrow;
mod network;
pub mod node;
pub mod number;
mod option_error;
pub mod path;
pub mod period;
mod policy_text;
pub mod preset;
pub mod protected;
mod publish;
mod remedy;
mod resolve;
mod rows;
pub mod secret;
mod secret_source;
mod selection;
pub mod size;
pub mod ssh_key;
pub mod syscall;
mod table;
mod temporary;
pub mod upstream;
mod user_proxy;
mod value;
mod word;
mod wrap_options;
mod written_secret;

#[cfg(test)]
mod tests;

use crate::kernel::SyscallName;

pub use advice::{Advice, Tool, typed as typed_rule, typed_path};
pub use annotation::{
    ImageAnnotations, POLICY_KEY, PREFIX as ANNOTATION_PREFIX, WORKSPACE_KEY, key as annotation_key,
};
pub use audited::{AuditOutcome, AuditedPolicy};
pub use bound::{CpuLimit, MemoryLimit, ProcessLimit};
pub use builtin::BUILTIN;
pub use builtin::is_builtin;
pub use capability::Capability;
pub use ceiling::{ExceededField, exceeds, loosens};
pub use connect::ConnectService;
pub use credential::CredentialName;
pub use error::{OverLimit, PolicyError};
pub use file::misnamed as misnamed_policy;
pub use file_text::FileText;
pub use honey::{HoneyAction, HoneyValue};
pub use inbound::InboundPort;
pub use list::{items as annotation_list, items_of_file, list_text};
pub use name::{PolicyChoice, PolicyName, UNCONFINED, VariableName};
pub use network::MOST_PORTS;
pub use node::{AnnotationLeave, NamespaceKind, NodeAllow, NodeConfig, NodeLog};
pub use number::{AskSeconds, CoolDown, Count};
pub use option_error::OptionError;
pub use path::{GuestPath, HostPath};
pub use period::{Grace, Lifetime, TimeLimit};
pub use preset::{Preset, misnamed as misnamed_preset};
pub use protected::ProtectedName;
pub use publish::Publish;
pub use resolve::resolve;
pub use secret::{NodeSecret, SecretName, SecretPlace};
pub use secret_source::{SecretCommand, SecretSource, UserSource, VolumeKey};
pub use selection::{Asker, Ceiling, Loosening, Origin, ResolvedPolicy, Selection, Sources};
pub use size::ByteSize;
pub use ssh_key::{SshFingerprint, SshKey};
pub use table::{
    Annotations, Field, Filesystem, Limits, Network, Policy, Privileges, Report, Syscalls, Time,
};
pub use temporary::{RuleTerm, TemporaryRule};
pub use upstream::{NodeNetwork, ProxyUrl, Secret, Upstream, UpstreamNames, UpstreamSource};
pub use user_proxy::{
    DirectHost, UserProxy, VARIABLES as PROXY_VARIABLES, why_not as why_no_proxy,
};
pub use word::*;
pub use wrap_options::{FieldOption, PolicyOption, WrapOptions};
pub use written_secret::UserSecret;

impl Syscalls {
    /// The calls that are actually added to the base rules: a denial wins.
    pub fn allowed(&self) -> impl Iterator<Item = &SyscallName> {
        self.allow.difference(&self.deny)
    }
}
