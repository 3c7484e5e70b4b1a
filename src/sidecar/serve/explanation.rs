//! The explanation that an agent gets with a refusal: the reason, the missing rule, and how to request it.

use serde::Serialize;

use super::refusal::Refusal;
use super::wall::Wall;
use crate::policy::{Advice, Field, Host, Tool};

/// What a refusal says to an agent.
#[derive(Serialize)]
pub(super) struct Explanation<'a> {
    pub error: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip)]
    pub endpoint: Option<String>,
    pub reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how_to_ask: Option<String>,
}

impl<'a> Explanation<'a> {
    pub fn new(reason: &'a str) -> Self {
        Self {
            error: "denied by agentbox's network wall",
            host: None,
            port: None,
            endpoint: None,
            reason,
            missing_rule: None,
            how_to_ask: None,
        }
    }

    /// One line.
    pub fn bytes(&self) -> Vec<u8> {
        let mut body = serde_json::to_vec(self).unwrap_or_default();
        body.push(b'\n');
        body
    }
}

/// What an agent can tell the person who started it.
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
            "ask whoever started this container to start it again with the annotation {adds}, or with \
             network.allow in its policy"
        ),
        _ => format!(
            "ask whoever started this container to add the rule: while it runs with \
             `agentbox update {container} --network-add {typed}`, for the next one by {} {adds}, or in network.allow of its policy",
            wall.tool.calls_it()
        ),
    }
}
