//! Ceilings: a policy compared with another one, field by field.

use serde::{Deserialize, Serialize};

use super::ceiling_rule::Excess;
use super::{Field, InboundPort, Policy, table};

/// A field whose requested value exceeds the ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExceededField {
    /// The field.
    pub field: Field,
    /// What was asked; of a set, only what is too much.
    pub asked: String,
    /// What is allowed.
    pub allowed: String,
}

/// Where `asked` has more than `own` gives by itself: what `own` would allow as a ceiling (`network.limit`, `syscalls.limit`,
/// any port in `network.inbound`) gives nothing, and to ask for approvals, or to learn, is more than to refuse.
pub fn loosens(asked: &Policy, own: &Policy) -> Vec<ExceededField> {
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

/// Where `asked` exceeds `ceiling`: nowhere, if every field of it is the ceiling's or tighter.
pub fn exceeds(asked: &Policy, ceiling: &Policy) -> Vec<ExceededField> {
    let mut over = Vec::new();
    table::compare(asked, ceiling, |field, Excess { asked, allowed }| {
        over.push(ExceededField {
            field,
            asked,
            allowed,
        });
    });
    // What is asked for is said before what is left out.
    over.sort_by_key(|over| match over.field {
        Field::NetworkDeny => (Field::NetworkLimit, true),
        Field::SyscallsDeny => (Field::SyscallsLimit, true),
        field => (field, false),
    });
    over
}
