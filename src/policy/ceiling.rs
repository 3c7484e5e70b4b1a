//! Ceilings: a policy compared with another, field by field.

use serde::{Deserialize, Serialize};

use super::{ConnectService, Field, InboundPort, Policy, SshKey, table};

/// A field whose requested value exceeds the ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceededField {
    /// The field.
    pub field: Field,
    /// The requested value; of a set, only the items beyond the ceiling.
    pub asked: String,
    /// The value that the ceiling allows.
    pub allowed: String,
}

/// Where `asked` has more than `own` itself grants. What `own` would only allow as a ceiling (`network.limit`,
/// `syscalls.limit`, `*` in `network.inbound`, `network.connect` and `network.ssh-keys`) grants nothing. Approvals and
/// learn mode are more than a denial.
pub fn loosens(asked: &Policy, own: &Policy) -> Vec<ExceededField> {
    let mut over = exceeds(asked, own);
    let mut given = own.clone();
    given.network.limit.clear();
    given.network.inbound.remove(&InboundPort::Any);
    given.network.connect.remove(&ConnectService::Any);
    given.network.ssh_keys.remove(&SshKey::Any);
    given.syscalls.limit.clear();
    let (asked_network, own_network) = (&asked.network, &own.network);
    let changed = |field: Field| match field {
        Field::NetworkAllow => asked_network.allow != own_network.allow,
        Field::NetworkTemporary => asked_network.temporary != own_network.temporary,
        Field::NetworkInbound => asked_network.inbound != own_network.inbound,
        Field::NetworkConnect => asked_network.connect != own_network.connect,
        Field::NetworkSshKeys => asked_network.ssh_keys != own_network.ssh_keys,
        Field::SyscallsAllow => asked.syscalls.allow != own.syscalls.allow,
        _ => false,
    };
    for more in exceeds(asked, &given) {
        if changed(more.field) && !over.iter().any(|over| over.field == more.field) {
            over.push(more);
        }
    }
    if asked_network.on_unknown > own_network.on_unknown {
        over.push(ExceededField {
            field: Field::NetworkOnUnknown,
            asked: asked_network.on_unknown.to_string(),
            allowed: own_network.on_unknown.to_string(),
        });
    }
    if asked.report.learn > own.report.learn {
        over.push(ExceededField {
            field: Field::ReportLearn,
            asked: asked.report.learn.to_string(),
            allowed: own.report.learn.to_string(),
        });
    }
    over
}

/// Where `asked` exceeds `ceiling`. Empty if each field is the ceiling's or tighter.
pub fn exceeds(asked: &Policy, ceiling: &Policy) -> Vec<ExceededField> {
    let mut over = Vec::new();
    table::compare(asked, ceiling, |field, excess| {
        over.push(ExceededField {
            field,
            asked: excess.asked,
            allowed: excess.allowed,
        });
    });
    // List what was requested before what was left out.
    over.sort_by_key(|over| match over.field {
        Field::NetworkDeny => (Field::NetworkLimit, true),
        Field::SyscallsDeny => (Field::SyscallsLimit, true),
        field => (field, false),
    });
    over
}
