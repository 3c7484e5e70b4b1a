//! A policy within a ceiling: field by field the tighter of both, denials united.

use std::collections::BTreeSet;

use super::bound::{Amount, Bound};
use super::ceiling::{syscalls_within, with_less};
use super::{
    EphemeralDir, Field, Filesystem, InboundPort, Limits, MountRule, Network, NetworkLimit,
    NetworkRule, OnUnknown, Policy, Privileges, RootAccess, Syscalls,
};

/// Adds the ceiling's denials, which no policy below it can be without; the fields that this changed.
pub(super) fn unite_denials(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    let mut changed = Changed::default();
    let (network, calls) = (&mut policy.network, &mut policy.syscalls);
    changed.set(Field::NetworkDeny, &mut network.deny, |deny| {
        deny.union(&ceiling.network.deny).cloned().collect()
    });
    changed.set(Field::SyscallsDeny, &mut calls.deny, |deny| {
        deny.union(&ceiling.syscalls.deny).cloned().collect()
    });
    // A pause is a denial too: the longer one holds.
    changed.set(Field::NetworkCoolDown, &mut network.cool_down, |own| {
        *own.max(&ceiling.network.cool_down)
    });
    let kept = &mut network.budgets_kept;
    changed.set(Field::NetworkBudgetsKept, kept, |own| {
        *own.max(&ceiling.network.budgets_kept)
    });
    changed.0
}

/// Narrows a policy to a ceiling; the fields that this changed. What is left exceeds the ceiling nowhere.
pub(super) fn meet(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    let mut changed = Changed(unite_denials(policy, ceiling));
    // No `..`: a field added to the policy does not compile until it is narrowed. The name limits nothing.
    let Policy {
        name: _,
        filesystem,
        network,
        syscalls: Syscalls {
            allow,
            limit,
            deny: _,
        },
        privileges: Privileges {
            capabilities,
            set_id,
        },
        limits: Limits { pids, memory, cpus },
        // Counts only where nobody sets a ceiling.
        annotations: _,
    } = policy;
    meet_filesystem(filesystem, &ceiling.filesystem, &mut changed);
    meet_network(network, &ceiling.network, &mut changed);
    let most = syscalls_within(&ceiling.syscalls);
    changed.common(Field::SyscallsAllow, allow, &most);
    changed.common(Field::SyscallsLimit, limit, &most);
    let most = &ceiling.privileges;
    changed.common(
        Field::PrivilegesCapabilities,
        capabilities,
        &most.capabilities,
    );
    changed.least(Field::PrivilegesSetId, set_id, &most.set_id);
    let most = &ceiling.limits;
    changed.bound(Field::LimitsPids, pids, &most.pids);
    changed.bound(Field::LimitsMemory, memory, &most.memory);
    changed.bound(Field::LimitsCpus, cpus, &most.cpus);
    changed.0
}

fn meet_filesystem(own: &mut Filesystem, ceiling: &Filesystem, changed: &mut Changed) {
    let Filesystem {
        root,
        ephemeral,
        scratch,
        // As in a ceiling: it gives the workload nothing.
        scratch_on: _,
        workspace,
        mounts,
        write,
        workspace_at,
        search,
        credentials,
        secrets,
        service_account_token,
        left_out,
    } = own;
    changed.least(Field::FilesystemRoot, root, &ceiling.root);
    if ceiling.root != RootAccess::Ephemeral {
        changed.set(Field::FilesystemEphemeral, ephemeral, |own| {
            let most = with_less(&ceiling.ephemeral);
            let both: BTreeSet<_> = own.intersection(&most).copied().collect();
            // The image's home may not be, an empty one in its place may.
            let instead = with_less(own).intersection(&most).max().copied();
            let empty = instead.filter(|dir| *dir == EphemeralDir::EmptyHome);
            let empty = empty.filter(|_| !both.contains(&EphemeralDir::Home));
            both.into_iter().chain(empty).collect()
        });
    }
    changed.least(Field::FilesystemScratch, scratch, &ceiling.scratch);
    changed.least(Field::FilesystemWorkspace, workspace, &ceiling.workspace);
    changed.least(Field::FilesystemMounts, mounts, &ceiling.mounts);
    if ceiling.mounts != MountRule::Keep {
        changed.common(Field::FilesystemWrite, write, &ceiling.write);
    }
    // A list that names nothing means anywhere. Two that have nothing in common leave no place, and nothing to narrow to:
    // the policy exceeds the ceiling.
    let at = &ceiling.workspace_at;
    if !at.is_empty() {
        changed.set(Field::FilesystemWorkspaceAt, workspace_at, |own| {
            let common: BTreeSet<_> = own.intersection(at).cloned().collect();
            match (own.is_empty(), common.is_empty()) {
                (true, _) => at.clone(),
                (false, true) => own.clone(),
                (false, false) => common,
            }
        });
    }
    changed.least(Field::FilesystemSearch, search, &ceiling.search);
    changed.common(
        Field::FilesystemCredentials,
        credentials,
        &ceiling.credentials,
    );
    changed.least(Field::FilesystemSecrets, secrets, &ceiling.secrets);
    changed.least(
        Field::FilesystemServiceAccountToken,
        service_account_token,
        &ceiling.service_account_token,
    );
    changed.least(Field::FilesystemLeftOut, left_out, &ceiling.left_out);
}

fn meet_network(own: &mut Network, ceiling: &Network, changed: &mut Changed) {
    let Network {
        mode,
        allow,
        limit,
        // United before.
        deny: _,
        cool_down: _,
        budgets_kept: _,
        on_unknown,
        // They give the workload nothing, so a ceiling says nothing of them.
        ask_seconds: _,
        proxy_env: _,
        connections,
        connections_per_minute,
        upload,
        hosts,
        inbound,
    } = own;
    changed.least(Field::NetworkMode, mode, &ceiling.mode);
    // Where nothing could be approved, nothing is asked.
    if ceiling.limit.is_empty() {
        changed.least(Field::NetworkOnUnknown, on_unknown, &OnUnknown::Deny);
    }
    // A rule that is covered in part goes as a whole: less is open, never more.
    let within = NetworkLimit::of(String::new(), ceiling);
    let keep = |rules: &BTreeSet<NetworkRule>, covers: fn(&NetworkLimit, &NetworkRule) -> bool| {
        let kept = rules.iter().filter(|rule| covers(&within, rule));
        kept.cloned().collect::<BTreeSet<_>>()
    };
    changed.set(Field::NetworkAllow, allow, |own| {
        keep(own, NetworkLimit::covers)
    });
    changed.set(Field::NetworkLimit, limit, |own| {
        keep(own, NetworkLimit::covers_limit)
    });
    changed.least(Field::NetworkConnections, connections, &ceiling.connections);
    let field = Field::NetworkConnectionsPerMinute;
    changed.least(
        field,
        connections_per_minute,
        &ceiling.connections_per_minute,
    );
    changed.least(Field::NetworkUpload, upload, &ceiling.upload);
    changed.least(Field::NetworkHosts, hosts, &ceiling.hosts);
    if !ceiling.inbound.contains(&InboundPort::Any) {
        changed.set(Field::NetworkInbound, inbound, |own| {
            // Any port leads nowhere by itself, so narrowing it opens none.
            own.intersection(&ceiling.inbound).cloned().collect()
        });
    }
}

/// The fields that were changed.
#[derive(Default)]
struct Changed(Vec<Field>);

impl Changed {
    fn set<T: PartialEq>(&mut self, field: Field, slot: &mut T, narrowed: impl Fn(&T) -> T) {
        let value = narrowed(slot);
        if value != *slot {
            *slot = value;
            self.0.push(field);
        }
    }

    fn least<T: Ord + Clone>(&mut self, field: Field, slot: &mut T, most: &T) {
        self.set(field, slot, |own| own.min(most).clone());
    }

    fn common<T: Ord + Clone>(&mut self, field: Field, slot: &mut BTreeSet<T>, most: &BTreeSet<T>) {
        self.set(field, slot, |own| own.intersection(most).cloned().collect());
    }

    fn bound<T: Amount>(&mut self, field: Field, slot: &mut Bound<T>, most: &Bound<T>) {
        self.set(field, slot, |own| match own.is_within(most) {
            true => *own,
            false => *most,
        });
    }
}
