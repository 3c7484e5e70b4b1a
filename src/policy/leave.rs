//! Permission to loosen: the fields in which annotations may request more than the chosen policy.

use std::collections::BTreeSet;

use super::annotation::{self, AnnotationRequest, Authors};
use super::ceiling::loosens;
use super::ceiling_rule::join;
use super::check::with_origins;
use super::fields::Origins;
use super::resolve::{CeilingPolicy, ChosenPolicy, Resolver, unasked};
use super::{
    AnnotationLeave, Ceiling, CpuLimit, Field, GuestPath, Limits, Loosening, MemoryLimit,
    MountRule, Origin, OverLimit, POLICY_KEY, Policy, PolicyChoice, PolicyError, ProcessLimit,
    Switch, UNCONFINED, Upstream, WORKSPACE_KEY, WrapOptions,
};

impl Resolver<'_> {
    /// Refuses a policy or workspace from an image's annotation if it is wider than what applies without it.
    pub fn check_choice(
        &self,
        request: &AnnotationRequest,
        chosen: &ChosenPolicy,
        flag: Option<PolicyChoice>,
        limits: &[CeilingPolicy],
    ) -> Result<(), PolicyError> {
        let leave = &self.sources.node.allow.annotations;
        let (without, by) = unasked(flag, self.sources.node);
        let without = match without {
            // With any walls the container has fewer rights than with none.
            Some(PolicyChoice::Unconfined) => None,
            Some(PolicyChoice::Named(name)) => Some(self.choose(Some(&name), &by, limits)?),
            None => Some(self.choose(None, &by, limits)?),
        };
        let than = match &without {
            Some(without) => format!("policy {}", without.loaded.policy.name),
            None => UNCONFINED.to_owned(),
        };
        let refuse = |key: &str, asked: String, leave| PolicyError::ChosenByImage {
            key: key.to_owned(),
            than: than.clone(),
            chosen_by: by.clone(),
            asked,
            leave,
        };
        let asked = &chosen.loaded.policy;
        if let Some(without) = &without
            && request.policy.is_some()
            && !leave.contains(&AnnotationLeave::Policy)
        {
            let without = &without.loaded.policy;
            let mut wider = loosens(asked, without).into_iter().map(|more| more.field);
            // This field decides which mount is written: another place means another mount.
            let elsewhere = asked.filesystem.workspace_at != without.filesystem.workspace_at;
            let elsewhere = elsewhere.then_some(Field::FilesystemWorkspaceAt);
            if let Some(field) = wider.next().or(elsewhere) {
                let asked = format!("policy {} has more, such as {field}", asked.name);
                return Err(refuse(POLICY_KEY, asked, AnnotationLeave::Policy));
            }
        }
        if leave.contains(&AnnotationLeave::Workspace) {
            return Ok(());
        }
        let places = &request.fields.filesystem.workspace_at;
        match (&request.workspace, places) {
            (Some(path), _) => {
                let asked = format!("it makes {path} the mount that may be written");
                Err(refuse(WORKSPACE_KEY, asked, AnnotationLeave::Workspace))
            }
            (None, Some(_)) => {
                let key = annotation::key(Field::FilesystemWorkspaceAt);
                let asked = "it says which mount may be written".to_owned();
                Err(refuse(&key, asked, AnnotationLeave::Workspace))
            }
            (None, None) => Ok(()),
        }
    }

    /// The fields in which annotations may request more than the chosen policy. The policy permits its own list only if
    /// the caller surely wrote the annotations; the node's file permits fields for all annotations.
    pub fn fields_with_leave(&self, own: &Policy, authors: Authors) -> BTreeSet<Field> {
        let node = self.sources.node.allow.annotations.iter();
        let node = node.filter_map(|leave| match leave {
            AnnotationLeave::Field(field) => Some(*field),
            AnnotationLeave::Policy | AnnotationLeave::Workspace => None,
        });
        let own = own
            .annotations
            .loosen
            .iter()
            .copied()
            .filter(|_| authors == Authors::Caller);
        node.chain(own).collect()
    }

    /// The proxy to the internet: the node's. Without one, that of the user of `wrap`, if the node permits it. By default
    /// it does where no operator set a ceiling. A proxy gets past the ceiling's list of hosts, as the other end of each
    /// connection.
    pub fn upstream(&self, limits: &[CeilingPolicy]) -> Option<Upstream> {
        let network = &self.sources.node.network;
        let mut set_by = limits.iter().map(|limit| &limit.ceiling.set_by);
        let default = match set_by.all(|by| *by == Origin::Default) {
            true => Switch::On,
            false => Switch::Off,
        };
        let permitted = network.upstream_from_user.unwrap_or(default);
        let of_user = self.sources.asked.proxy.clone();
        let of_user = of_user.filter(|_| permitted == Switch::On);
        let of_user = of_user.map(|proxy| Upstream {
            names: network.upstream_names,
            ..proxy
        });
        network.upstream().or(of_user)
    }
}

/// The fields in which annotations request more than the chosen policy, without permission.
pub(super) fn without_leave(
    policy: &Policy,
    own: &Policy,
    origins: &Origins,
    leave: &Loosening,
    mode_implied_by: Option<Field>,
) -> Vec<OverLimit> {
    let mut over = with_origins(loosens(policy, own), origins);
    over.retain(|over| match over.exceeded.field {
        // Permission to list hosts, or to request approvals, includes the mode that reaches hosts.
        Field::NetworkMode if mode_implied_by.is_some() => {
            let fields = [
                Field::NetworkMode,
                Field::NetworkAllow,
                Field::NetworkTemporary,
                Field::NetworkOnUnknown,
            ];
            !fields.into_iter().any(|field| leave.has(field))
        }
        field => !leave.has(field),
    });
    over
}

/// Refuses writable mounts of an annotation where the policy drops all mounts: the list would silently have no effect.
pub(super) fn check_dropped_writes(
    policy: &Policy,
    writes: &BTreeSet<GuestPath>,
    chosen_by: &Origin,
    origins: &Origins,
) -> Result<(), PolicyError> {
    if writes.is_empty() || policy.filesystem.mounts != MountRule::Drop {
        return Ok(());
    }
    let mounts_by = origins.get(&Field::FilesystemMounts).cloned();
    Err(PolicyError::WriteDropped {
        policy: policy.name.clone(),
        chosen_by: chosen_by.clone(),
        writes: join(writes),
        mounts_by: mounts_by.unwrap_or(Origin::Default),
    })
}

/// The limits of the chosen policy, without those that annotations may loosen.
pub(super) fn own_bounds(own: &Limits, leave: &Loosening) -> Limits {
    let mut bounds = *own;
    if leave.has(Field::LimitsPids) {
        bounds.pids = ProcessLimit::Unlimited;
    }
    if leave.has(Field::LimitsMemory) {
        bounds.memory = MemoryLimit::Unlimited;
    }
    if leave.has(Field::LimitsCpus) {
        bounds.cpus = CpuLimit::Unlimited;
    }
    bounds
}
/// A ceiling for the requests of `wrap`'s user. If no operator set it, the user names the private hosts that the user
/// reaches: neither metadata nor link-local addresses, nor the machine's own.
pub(super) fn with_users_hosts(
    mut ceiling: Policy,
    set: &Ceiling,
    requests: &WrapOptions,
) -> Policy {
    if set.set_by == Origin::Default && !requests.is_empty() {
        let private = "internal:*".parse();
        let private = private.expect("a test parses the rule");
        ceiling.network.limit.insert(private);
    }
    ceiling
}
