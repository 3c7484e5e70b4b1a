//! How to add the rule that a refusal lacks: for the log, and for an agent that asks its user. A command is named only if
//! it can work for this run.

use super::config::LatePorts;
use super::refusal::Refusal;
use super::wall::Wall;
use crate::policy::{Advice, Field, Tool, typed_rule};
use crate::rules::{EgressRule, Host};

impl Wall {
    /// Whether `update` can add this rule while the run goes on.
    fn takes_now(&self, rule: &str) -> bool {
        let Ok(rule) = rule.parse::<EgressRule>() else {
            return false;
        };
        let ports = self.ports.borrow();
        let listens = rule.ports().iter().all(|port| ports.contains(port));
        let is_read = matches!(rule, EgressRule::Connection(_)) || self.reader().is_some();
        let is_heard = listens || self.late_ports == LatePorts::Possible;
        !self.refusing && !self.container.is_empty() && is_read && is_heard
    }

    /// How to add a rule; without a port if only the name was looked up.
    pub(super) fn how_to_add(&self, rule: &str, port: Option<u16>) -> String {
        if let Some(why) = Advice::of(rule).why_not() {
            return why;
        }
        let named = self
            .tool
            .names(&self.tool.adds(Field::NetworkAllow, &[rule]));
        let hint = match (self.takes_now(rule), self.tool) {
            (true, _) => format!(
                "within the ceiling, agentbox update --network-add {} {}",
                typed_rule(rule),
                self.container
            ),
            (false, Tool::Wrap) => format!("{named}, when the command is started"),
            (false, Tool::Engine | Tool::Annotating | Tool::Pod) => {
                format!("{named}, when the container is made, within the ceiling")
            }
        };
        match port {
            Some(_) => hint,
            None => hint + &self.tool.for_ssh(rule),
        }
    }
}

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
    let adds = wall
        .tool
        .names(&wall.tool.adds(Field::NetworkAllow, &[rule]));
    match refusal {
        Refusal::NotApproved(_) if !container.is_empty() => format!(
            "ask the operator of this container to run `agentbox approve {container} {}`, and try again",
            crate::rules::endpoint(host, port)
        ),
        _ if wall.takes_now(rule) => format!(
            "ask the operator of this container to add the rule: while it runs with \
             `agentbox update {container} --network-add {}`, for the next one by {adds}, or in network.allow of its policy",
            typed_rule(rule)
        ),
        _ if container.is_empty() || wall.tool == Tool::Wrap => {
            format!("ask the user who started `agentbox wrap` to start it again with {adds}")
        }
        _ => format!(
            "ask the operator of this container to start it again with {adds}, or with \
             network.allow in its policy"
        ),
    }
}
