//! Ceilings: a policy compared with another one, field by field.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::bound::{Amount, Bound};
use super::text::few;
use super::{
    EphemeralDir, Field, Filesystem, GuestPath, InboundPort, Limits, MountRule, Network,
    NetworkRule, Policy, Privileges, RootAccess, SyscallName, Syscalls,
};

/// A field in which a policy asks for more than its ceiling allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceeded {
    /// The field.
    pub field: Field,
    /// What was asked; of a set, only what is too much.
    pub asked: String,
    /// What is allowed.
    pub allowed: String,
}

/// What one ceiling lets a container's rules allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NetworkLimit {
    /// The ceiling's name, and who set it.
    pub ceiling: String,
    /// Each names hosts, and a port where it does not mean all of them.
    pub rules: BTreeSet<NetworkRule>,
}

impl NetworkLimit {
    /// What a policy lets be allowed where it is a ceiling.
    pub fn of(ceiling: String, network: &Network) -> Self {
        // What the ceiling allows is a limit on the port that it names; 443 where it names none.
        let allowed = network.allow.iter().map(NetworkRule::as_limit);
        Self {
            ceiling,
            rules: allowed.chain(network.limit.iter().cloned()).collect(),
        }
    }

    /// Whether a rule of an allowlist is within it.
    pub fn covers(&self, rule: &NetworkRule) -> bool {
        self.rules.iter().any(|limit| limit.covers(rule))
    }

    /// Whether another limit is within it.
    pub fn covers_limit(&self, rule: &NetworkRule) -> bool {
        self.rules.iter().any(|limit| limit.covers_limit(rule))
    }
}

/// Where `asked` has more than `own` gives by itself: what `own` would let through as a ceiling (`network.limit`, `syscalls.limit`,
/// any port in `network.inbound`) gives nothing, and to ask for approvals is more than to refuse.
pub(super) fn loosens(asked: &Policy, own: &Policy) -> Vec<Exceeded> {
    let mut over = exceeds(asked, own);
    let mut given = own.clone();
    given.network.limit.clear();
    given.network.inbound.remove(&InboundPort::Any);
    given.syscalls.limit.clear();
    let (asked_network, own_network) = (&asked.network, &own.network);
    let changed = |field: Field| match field {
        Field::NetworkAllow => asked_network.allow != own_network.allow,
        Field::NetworkInbound => asked_network.inbound != own_network.inbound,
        Field::SyscallsAllow => asked.syscalls.allow != own.syscalls.allow,
        _ => false,
    };
    for more in exceeds(asked, &given) {
        if changed(more.field) && !over.iter().any(|over| over.field == more.field) {
            over.push(more);
        }
    }
    if asked_network.on_unknown > own_network.on_unknown {
        over.push(Exceeded {
            field: Field::NetworkOnUnknown,
            asked: asked_network.on_unknown.to_string(),
            allowed: own_network.on_unknown.to_string(),
        });
    }
    over
}

/// Where `asked` exceeds `ceiling`: nowhere, if every field of it is the ceiling's or tighter.
pub fn exceeds(asked: &Policy, ceiling: &Policy) -> Vec<Exceeded> {
    // No `..`: a field added to the policy does not compile until it is limited. The name limits nothing.
    let Policy {
        name: _,
        filesystem,
        network,
        syscalls,
        privileges: Privileges {
            capabilities,
            set_id,
        },
        limits,
        // It gives the workload nothing: it counts only where nobody sets a ceiling.
        annotations: _,
    } = asked;
    let Policy {
        name: _,
        filesystem: filesystem_ceiling,
        network: network_ceiling,
        syscalls: syscalls_ceiling,
        privileges:
            Privileges {
                capabilities: capabilities_ceiling,
                set_id: set_id_ceiling,
            },
        limits: limits_ceiling,
        annotations: _,
    } = ceiling;
    let mut over = Over::default();
    compare_filesystem(filesystem, filesystem_ceiling, &mut over);
    compare_network(network, network_ceiling, &mut over);
    compare_syscalls(syscalls, syscalls_ceiling, &mut over);
    over.subset(
        Field::PrivilegesCapabilities,
        capabilities,
        capabilities_ceiling,
    );
    over.ordered(Field::PrivilegesSetId, set_id, set_id_ceiling);
    compare_limits(limits, limits_ceiling, &mut over);
    over.0
}

fn compare_limits(asked: &Limits, ceiling: &Limits, over: &mut Over) {
    let Limits { pids, memory, cpus } = asked;
    over.bounded(Field::LimitsPids, pids, &ceiling.pids);
    over.bounded(Field::LimitsMemory, memory, &ceiling.memory);
    over.bounded(Field::LimitsCpus, cpus, &ceiling.cpus);
}

fn compare_filesystem(asked: &Filesystem, ceiling: &Filesystem, over: &mut Over) {
    let Filesystem {
        root,
        ephemeral,
        scratch,
        // It gives the workload nothing: `scratch` bounds it wherever it lies.
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
    } = asked;
    let Filesystem {
        root: root_ceiling,
        ephemeral: ephemeral_ceiling,
        scratch: scratch_ceiling,
        scratch_on: _,
        workspace: workspace_ceiling,
        mounts: mounts_ceiling,
        write: write_ceiling,
        workspace_at: workspace_at_ceiling,
        search: search_ceiling,
        credentials: credentials_ceiling,
        secrets: secrets_ceiling,
        service_account_token: service_account_token_ceiling,
        left_out: left_out_ceiling,
    } = ceiling;
    over.ordered(Field::FilesystemRoot, root, root_ceiling);
    // Where all of the root may be written and thrown away, so may any directory in it.
    if *root_ceiling != RootAccess::Ephemeral {
        let ceiling = with_less(ephemeral_ceiling);
        over.subset(Field::FilesystemEphemeral, ephemeral, &ceiling);
    }
    over.ordered(Field::FilesystemScratch, scratch, scratch_ceiling);
    over.ordered(Field::FilesystemWorkspace, workspace, workspace_ceiling);
    over.ordered(Field::FilesystemMounts, mounts, mounts_ceiling);
    // Where every mount may keep the engine's access, listing some of them is less.
    if *mounts_ceiling != MountRule::Keep {
        over.subset::<GuestPath>(Field::FilesystemWrite, write, write_ceiling);
    }
    // A list that names nothing means anywhere.
    if !workspace_at_ceiling.is_empty()
        && (workspace_at.is_empty() || !workspace_at.is_subset(workspace_at_ceiling))
    {
        over.0.push(Exceeded {
            field: Field::FilesystemWorkspaceAt,
            asked: match workspace_at.is_empty() {
                true => "any place".to_owned(),
                false => join(workspace_at.difference(workspace_at_ceiling)),
            },
            allowed: join(workspace_at_ceiling),
        });
    }
    over.ordered(Field::FilesystemSearch, search, search_ceiling);
    over.subset(
        Field::FilesystemCredentials,
        credentials,
        credentials_ceiling,
    );
    over.ordered(Field::FilesystemSecrets, secrets, secrets_ceiling);
    over.ordered(
        Field::FilesystemServiceAccountToken,
        service_account_token,
        service_account_token_ceiling,
    );
    over.ordered(Field::FilesystemLeftOut, left_out, left_out_ceiling);
}

/// With what is less than one of the list: an empty home where the image's may be.
pub(super) fn with_less(list: &BTreeSet<EphemeralDir>) -> BTreeSet<EphemeralDir> {
    let mut list = list.clone();
    if list.contains(&EphemeralDir::Home) {
        list.insert(EphemeralDir::EmptyHome);
    }
    list
}

fn compare_network(asked: &Network, ceiling: &Network, over: &mut Over) {
    let Network {
        mode,
        allow,
        deny,
        limit,
        // They give the workload nothing: a person decides, within every ceiling; it is told of the proxy or not.
        on_unknown: _,
        ask_seconds: _,
        proxy_env: _,
        connections,
        connections_per_minute,
        upload,
        hosts,
        cool_down,
        budgets_kept,
        inbound,
    } = asked;
    over.ordered(Field::NetworkMode, mode, &ceiling.mode);
    let within = NetworkLimit::of(String::new(), ceiling);
    let covers = [NetworkLimit::covers, NetworkLimit::covers_limit];
    let lists = [(Field::NetworkAllow, allow), (Field::NetworkLimit, limit)];
    for ((field, rules), covers) in lists.into_iter().zip(covers) {
        let too_much: Vec<&NetworkRule> =
            rules.iter().filter(|rule| !covers(&within, rule)).collect();
        if !too_much.is_empty() {
            over.0.push(Exceeded {
                field,
                asked: join(too_much),
                allowed: join(ceiling.limit.iter().chain(&ceiling.allow)),
            });
        }
    }
    // The other way round: a denial may be added, not left out.
    if !deny.is_superset(&ceiling.deny) {
        over.0.push(Exceeded {
            field: Field::NetworkDeny,
            asked: format!("a list without {}", join(ceiling.deny.difference(deny))),
            allowed: format!("a list with {}", join(&ceiling.deny)),
        });
    }
    over.ordered(Field::NetworkConnections, connections, &ceiling.connections);
    let field = Field::NetworkConnectionsPerMinute;
    over.ordered(
        field,
        connections_per_minute,
        &ceiling.connections_per_minute,
    );
    over.ordered(Field::NetworkUpload, upload, &ceiling.upload);
    over.ordered(Field::NetworkHosts, hosts, &ceiling.hosts);
    // The other way round: a longer pause is tighter, and so is what is counted for longer.
    if *cool_down < ceiling.cool_down {
        over.0.push(Exceeded {
            field: Field::NetworkCoolDown,
            asked: cool_down.to_string(),
            allowed: format!("at least {}", ceiling.cool_down),
        });
    }
    if *budgets_kept < ceiling.budgets_kept {
        over.0.push(Exceeded {
            field: Field::NetworkBudgetsKept,
            asked: budgets_kept.to_string(),
            allowed: format!("at least {}", ceiling.budgets_kept),
        });
    }
    // Where any port may be named, so may these.
    if !ceiling.inbound.contains(&InboundPort::Any) {
        over.subset(Field::NetworkInbound, inbound, &ceiling.inbound);
    }
}

fn compare_syscalls(asked: &Syscalls, ceiling: &Syscalls, over: &mut Over) {
    let Syscalls { allow, deny, limit } = asked;
    let Syscalls {
        allow: _,
        deny: deny_ceiling,
        limit: _,
    } = ceiling;
    let most = syscalls_within(ceiling);
    over.subset(Field::SyscallsAllow, allow, &most);
    over.subset(Field::SyscallsLimit, limit, &most);
    // The other way round: a denial may be added, not left out.
    if !deny.is_superset(deny_ceiling) {
        over.0.push(Exceeded {
            field: Field::SyscallsDeny,
            asked: format!("a list without {}", join(deny_ceiling.difference(deny))),
            allowed: format!("a list with {}", join(deny_ceiling)),
        });
    }
}

/// The calls that a ceiling lets be allowed.
pub(super) fn syscalls_within(ceiling: &Syscalls) -> BTreeSet<SyscallName> {
    ceiling.allow.union(&ceiling.limit).cloned().collect()
}

#[derive(Default)]
struct Over(Vec<Exceeded>);

impl Over {
    /// For fields whose values are ordered from least to most.
    fn ordered<T: Ord + fmt::Display>(&mut self, field: Field, asked: &T, ceiling: &T) {
        if asked > ceiling {
            self.0.push(Exceeded {
                field,
                asked: asked.to_string(),
                allowed: format!("at most {ceiling}"),
            });
        }
    }

    /// For bounds of what a container takes.
    fn bounded<T: Amount>(&mut self, field: Field, asked: &Bound<T>, ceiling: &Bound<T>) {
        if !asked.is_within(ceiling) {
            self.0.push(Exceeded {
                field,
                asked: asked.to_string(),
                allowed: format!("at most {ceiling}"),
            });
        }
    }

    /// For fields that list what is allowed.
    fn subset<T: Ord + fmt::Display>(
        &mut self,
        field: Field,
        asked: &BTreeSet<T>,
        ceiling: &BTreeSet<T>,
    ) {
        if !asked.is_subset(ceiling) {
            self.0.push(Exceeded {
                field,
                asked: join(asked.difference(ceiling)),
                allowed: join(ceiling),
            });
        }
    }
}

/// Enough for a person to see what is meant.
const LISTED: usize = 48;

fn join<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    few(items, LISTED)
}
