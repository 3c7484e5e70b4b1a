//! Checks across values: the node's permissions, the ceilings.

use std::collections::BTreeSet;

use super::fields::Origins;
use super::file::LoadedPolicy;
use super::remedy::{Remedy, root_within};
use super::resolve::{CeilingPolicy, Resolver};
use super::{
    Capability, ExceededField, Field, GuestPath, OnUnknown, Origin, OverLimit, Policy, PolicyError,
    PolicyName, SecretName, Switch, Tool, capability, exceeds, network,
};

impl Resolver<'_> {
    /// Checks that the policies of an entry of the node's file exist.
    pub fn check_entry(
        &self,
        table: &str,
        name: &SecretName,
        policies: &BTreeSet<PolicyName>,
    ) -> Result<(), PolicyError> {
        let by = Origin::NodeEntry(format!("[[{table}]] {name}"));
        let mut policies = policies.iter();
        policies.try_for_each(|policy| self.library.find(policy, &by).map(drop))
    }

    /// Checks names against the node's permissions.
    pub fn check_names(&self, policy: &Policy, origins: &Origins) -> Result<(), PolicyError> {
        let origin = |field| origins.get(&field).cloned().unwrap_or(Origin::Default);
        if policy.filesystem.write.iter().any(GuestPath::is_root) {
            return Err(PolicyError::RootPath {
                origin: origin(Field::FilesystemWrite),
                field: Field::FilesystemWrite.to_string(),
            });
        }
        let presets = self.library.presets();
        let is_preset = |name: &str| {
            let name = name.parse().ok();
            name.is_some_and(|name| presets.names().contains(&name))
        };
        network::check(&policy.network, &self.sources.node.allow, is_preset).map_err(
            |network::RuleRefusal { field, rule, why }| PolicyError::RuleNotAllowed {
                origin: origin(field),
                field,
                rule,
                why,
            },
        )?;
        if policy.report.learn == Switch::On && !self.sources.node.allow.learn {
            return Err(PolicyError::LearnNotAllowed {
                origin: origin(Field::ReportLearn),
            });
        }
        let asked = &policy.privileges.capabilities;
        let leave = &self.sources.node.allow.capabilities;
        let missing: Option<Capability> = capability::without_leave(asked, leave).next();
        match missing {
            Some(capability) => Err(PolicyError::CapabilityNotAllowed {
                origin: origin(Field::PrivilegesCapabilities),
                capability,
            }),
            None => Ok(()),
        }
    }
}

/// A default above its own ceiling is not the container's fault: the node's file names both.
pub(super) fn check_default(
    loaded: &LoadedPolicy,
    limits: &[CeilingPolicy],
) -> Result<(), PolicyError> {
    for CeilingPolicy { ceiling, policy } in limits {
        let over = over(&loaded.policy, policy, &loaded.origins);
        if !over.is_empty() {
            return Err(PolicyError::DefaultExceedsCeiling {
                policy: loaded.policy.name.clone(),
                ceiling: ceiling.policy.clone(),
                root: root_within(&over, policy),
                over,
            });
        }
    }
    Ok(())
}

pub(super) fn check_ceilings(
    policy: &Policy,
    origins: &Origins,
    limits: &[CeilingPolicy],
    is_file: impl Fn(&PolicyName) -> bool,
    tool: Tool,
) -> Result<(), PolicyError> {
    let asks = policy.network.on_unknown == OnUnknown::Ask;
    for limit in limits {
        let over = over(policy, &limit.policy, origins);
        if !over.is_empty() {
            return Err(PolicyError::ExceedsCeiling {
                policy: policy.name.clone(),
                ceiling: limit.ceiling.clone(),
                remedy: Box::new(Remedy::of(
                    &over,
                    policy,
                    (&limit.ceiling, &limit.policy),
                    Some(&limit.ceiling.policy)
                        .filter(|name| is_file(name))
                        .cloned(),
                    tool,
                )),
                over,
            });
        }
        if asks && limit.policy.network.limit.is_empty() {
            return Err(PolicyError::NothingToApprove {
                ceiling: limit.ceiling.clone(),
            });
        }
    }
    Ok(())
}

fn over(asked: &Policy, ceiling: &Policy, origins: &Origins) -> Vec<OverLimit> {
    with_origins(exceeds(asked, ceiling), origins)
}

pub(super) fn with_origins(exceeded: Vec<ExceededField>, origins: &Origins) -> Vec<OverLimit> {
    exceeded
        .into_iter()
        .map(|exceeded| OverLimit {
            origin: origins
                .get(&exceeded.field)
                .cloned()
                .unwrap_or(Origin::Default),
            exceeded,
        })
        .collect()
}
