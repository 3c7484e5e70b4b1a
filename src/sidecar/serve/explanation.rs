//! How an agent requests the rule that a refusal lacks.

use super::refusal::Refusal;
use super::wall::Wall;
use crate::policy::{Advice, Field, Host, Tool};

/// A text that an agent can show to its user.
pub(super) fn how_to_ask(
    wall: &Wall,
    (host, port): (&Host, u16),
    refusal: &Refusal,
    rule: &str,
) -> String {
    let container = &wall.container;
    if let Advice::Deliberate(why) | Advice::Never(why) = Advice::of(rule) {
        return format!("ask the user who started it to decide on a rule: {why}");
    }
    let adds = wall.tool.adds(Field::NetworkAllow, &[rule]);
    let typed = crate::policy::typed_rule(rule);
    match refusal {
        _ if container.is_empty() || (wall.tool, refusal) == (Tool::Wrap, &Refusal::Local) => {
            format!("ask the user who started `agentbox wrap` to start it again with {adds}")
        }
        Refusal::NotApproved(_) => format!(
            "ask the operator of this container to run `agentbox approve {container} {}`, and try again",
            crate::egress::endpoint(host, port)
        ),
        Refusal::Local => format!(
            "ask the operator of this container to start it again with the annotation {adds}, or with \
             network.allow in its policy"
        ),
        _ => format!(
            "ask the operator of this container to add the rule: while it runs with \
             `agentbox update {container} --network-add {typed}`, for the next one by {} {adds}, or in network.allow of its policy",
            wall.tool.calls_it()
        ),
    }
}
