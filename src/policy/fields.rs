//! A policy under construction: the fields that files and annotations have set so far, and the origin of each.

use std::collections::BTreeMap;

use super::conflict::Conflict;
use super::value::Expand;
use super::{Field, MountRule, NetworkMode, OnUnknown, Origin, Policy, PolicyError, PolicyName};

pub(super) use super::table::Fields;

/// Where each field of a policy came from.
pub(super) type Origins = BTreeMap<Field, Origin>;

/// Why a set of fields is not a policy.
pub(super) enum FieldsError {
    /// No author sets this field.
    Missing(Field),
    /// A preset does not exist or cannot be read.
    Preset(PolicyError),
}

impl Fields {
    /// Puts the fields of `over` over these, and records their origin.
    pub fn overlay(
        &mut self,
        over: Fields,
        origins: &mut Origins,
        origin: impl Fn(Field) -> Origin,
    ) {
        self.put(over, |field| {
            origins.insert(field, origin(field));
        });
    }

    /// Completes one author's fields: listing hosts, or waiting for approval of unknown ones, implies a mode that
    /// reaches them. Returns the field that implies the network's mode.
    ///
    /// Refuses contradictions. Narrowing may create one in a policy, but one author may not write it.
    pub fn settle(&mut self) -> Result<Option<Field>, Conflict> {
        let both = match (&self.syscalls.allow, &self.syscalls.deny) {
            (Some(allow), Some(deny)) => allow.items.intersection(&deny.items).next(),
            _ => None,
        };
        if let Some(name) = both {
            return Err(Conflict::Syscall(*name));
        }
        let files = &self.filesystem;
        let writes = (files.write.as_ref()).is_some_and(|list| !list.items.is_empty());
        if writes && files.mounts == Some(MountRule::Drop) {
            return Err(Conflict::WriteDropped);
        }
        let network = &mut self.network;
        let allows = (network.allow.as_ref()).is_some_and(|list| !list.items.is_empty());
        let allows = allows.then_some(Field::NetworkAllow);
        let temporary = (network.temporary.as_ref()).is_some_and(|list| !list.items.is_empty());
        let lists = allows.or(temporary.then_some(Field::NetworkTemporary));
        let asks = network.on_unknown == Some(OnUnknown::Ask);
        match network.mode {
            Some(NetworkMode::None | NetworkMode::Local) => match (lists, asks) {
                (Some(field), _) => Err(Conflict::NoNetwork(field)),
                (None, true) => Err(Conflict::NoneAsked),
                (None, false) => Ok(None),
            },
            None if lists.is_some() || asks => {
                network.mode = Some(NetworkMode::Allowlist);
                Ok(Some(lists.unwrap_or(Field::NetworkOnUnknown)))
            }
            Some(NetworkMode::Allowlist) | None => Ok(None),
        }
    }

    /// The complete policy, presets expanded and ineffective values removed, so that it can be written as one file. Or
    /// the missing field.
    pub fn complete(self, name: PolicyName, presets: &Expand<'_>) -> Result<Policy, FieldsError> {
        let mut policy = self.whole(name, presets)?;
        if policy.filesystem.mounts == MountRule::Drop {
            policy.filesystem.write.clear();
        }
        if policy.network.mode != NetworkMode::Allowlist {
            policy.network.allow.clear();
            policy.network.temporary.clear();
            policy.network.on_unknown = OnUnknown::Deny;
        }
        let calls = &mut policy.syscalls;
        calls.allow.retain(|name| !calls.deny.contains(name));
        Ok(policy)
    }
}
