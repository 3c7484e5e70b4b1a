//! PURE. What a report-only policy would take away, besides what is enforced.
//!
//! It is planned like the enforced policy, from the same spec and facts, and nothing of it is enforced. Visible
//! differences are compared: mounts, capabilities and devices here, connections by the sidecar. What cannot be observed
//! at run time, such as a system call that only this policy denies, is reported as a difference of the two policies.

use oci_spec::runtime::Spec;

use super::decided::{DecidedPlan, Plan};
use super::facts::{BundleFacts, HostFacts};
use super::mount::{OmittedMount, PlannedMount};
use super::plan;
use super::reason::OmittedItem;
use super::report::{AuditPlan, AuditedNetwork};
use crate::policy::{AuditOutcome, ExceededField, Policy, PolicyName, ResolvedPolicy, loosens};

/// What the report-only policy would take away, if there is one.
pub fn report(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    bundle: &BundleFacts,
    host: &HostFacts,
    enforced: &DecidedPlan,
) -> Option<AuditPlan> {
    let AuditOutcome { name, outcome } = resolved.audited.as_ref()?;
    let shared = enforced.plan.network.shared.is_some();
    let there = match outcome {
        Err(why) => Err(why.clone()),
        Ok(audited) => {
            let mut audited = audited.as_ref().clone();
            if shared {
                // Another container's policy decides about the network, whichever policy is in force here.
                audited.policy.network = resolved.policy.network.clone();
            }
            plan(&audited, spec, bundle, host).map_err(|why| why.to_string())
        }
    };
    Some(match there {
        Err(why) => AuditPlan {
            policy: name.clone(),
            refused: Some(why),
            mounts: Vec::new(),
            not_given: Vec::new(),
            less: Vec::new(),
            network: None,
        },
        Ok(there) => AuditPlan {
            network: (!shared).then(|| network(name, &there)),
            ..compare(name, enforced, &there)
        },
    })
}

fn network(name: &PolicyName, there: &DecidedPlan) -> AuditedNetwork {
    let network = &there.plan.network;
    AuditedNetwork {
        policy: name.clone(),
        rules: network.rules.clone(),
        asks: network.asking.is_some(),
    }
}

/// All differences except those of the network.
fn compare(name: &PolicyName, here: &DecidedPlan, there: &DecidedPlan) -> AuditPlan {
    AuditPlan {
        policy: name.clone(),
        refused: None,
        mounts: mounts(&here.plan, &there.plan),
        not_given: not_given(&here.plan, &there.plan),
        less: less(&here.resolved, &there.resolved),
        network: None,
    }
}

fn mounts(here: &Plan, there: &Plan) -> Vec<OmittedMount> {
    let own = |plan: &'_ Plan| -> Vec<PlannedMount> {
        let all = plan.filesystem.mounts.iter();
        all.filter(|m| !m.is_the_kernels()).cloned().collect()
    };
    let (here, others) = (own(here), own(there));
    let mut all = Vec::new();
    for mount in here {
        let other = others.iter().find(|m| m.destination == mount.destination);
        let pruned = there.filesystem.pruned.iter();
        let mut pruned = pruned.filter(|m| m.destination == mount.destination);
        let why = match other {
            None => match pruned.next() {
                Some(pruned) => pruned.why.clone(),
                None => "it would not be mounted".to_owned(),
            },
            Some(other) if mount.is_writable() && !other.is_writable() => {
                format!("it would be read-only: {}", other.why)
            }
            Some(other) if !mount.is_private() && other.is_private() && mount.is_writable() => {
                "writes to it would be discarded".to_owned()
            }
            Some(_) => continue,
        };
        all.push(OmittedMount {
            destination: mount.destination.clone(),
            source: mount.source().to_owned(),
            why,
            of_every_engine: false,
        });
    }
    all
}

fn not_given(here: &Plan, there: &Plan) -> Vec<OmittedItem> {
    let given = there.not_given.iter();
    // Mounts are compared separately.
    let given = given
        .filter(|item| {
            !matches!(
                item,
                OmittedItem::MountOptions { .. } | OmittedItem::EngineMountOptions { .. }
            )
        })
        .filter(|item| !here.not_given.contains(item));
    let masked = there.filesystem.masked.iter();
    let hidden = masked.filter(|path| !here.filesystem.masked.contains(path));
    let hidden = hidden.map(|path| OmittedItem::HiddenFile { path: path.clone() });
    given.cloned().chain(hidden).collect()
}

/// Fields whose use is not observed. Connections and mounts are observed, and capabilities are among the engine's
/// requests.
fn less(here: &Policy, there: &Policy) -> Vec<ExceededField> {
    let mut all = loosens(here, there);
    all.retain(|less| !less.field.is_observed());
    all
}
