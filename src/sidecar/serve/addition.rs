//! How to add the rule that a refusal lacks: for the log, and for an agent that asks its user. A command is named only if
//! it can work for this run.

use crate::policy::{Advice, Field, Tool, typed_rule};

/// A rule that a refusal lacks.
pub(super) struct MissingRule<'a> {
    pub rule: &'a str,
    /// The container's name; empty where no verb finds it.
    pub container: &'a str,
    pub tool: Tool,
    /// Whether `update` can add it while the run goes on.
    pub fits_now: bool,
}

impl MissingRule<'_> {
    /// The text that adds it to the next run.
    fn named(&self) -> String {
        self.tool
            .names(&self.tool.adds(Field::NetworkAllow, &[self.rule]))
    }

    /// How to add it; without a port if only the name was looked up.
    pub fn how_to_add(&self, port: Option<u16>) -> String {
        if let Some(why) = Advice::of(self.rule).why_not(self.rule) {
            return why;
        }
        let hint = match (self.fits_now, self.tool) {
            (true, _) => format!(
                "within the ceiling, agentbox update --network-add {} {}",
                typed_rule(self.rule),
                self.container
            ),
            (false, Tool::Wrap) => format!("{}, when the command is started", self.named()),
            (false, Tool::Engine | Tool::Annotating | Tool::Pod | Tool::PodmanPod) => format!(
                "{}, when the container is made, within the ceiling",
                self.named()
            ),
        };
        match port {
            Some(_) => hint,
            None => hint + &self.tool.for_other_ports(self.rule),
        }
    }

    /// A text that an agent can show to its user. `waits` is the HOST:PORT that can be approved, if there is one.
    pub fn how_to_ask(&self, waits: Option<&str>) -> String {
        let Self {
            rule, container, ..
        } = self;
        match Advice::of(rule) {
            Advice::Offer => {}
            Advice::Deliberate(why) | Advice::Never(why) => {
                return format!("ask the user who started it to decide on a rule: {why}");
            }
            advice @ Advice::Dotless => {
                let why = advice.why_not(rule).unwrap_or_default();
                return format!("ask the user who started it to decide on a rule: {why}");
            }
        }
        let adds = self.named();
        match waits {
            Some(waits) if !container.is_empty() => format!(
                "ask the operator of this container to run `agentbox approve {container} {waits}`, and try again"
            ),
            _ if self.fits_now => format!(
                "ask the operator of this container to add the rule: now with `agentbox update {container} --network-add {}`, \
                 for the next one by {adds}, or in its policy",
                typed_rule(rule)
            ),
            _ if container.is_empty() || self.tool == Tool::Wrap => {
                format!("ask the user who started `agentbox wrap` to start it again with {adds}")
            }
            _ if self.tool == Tool::PodmanPod => {
                format!("ask the operator of this pod to add {adds}")
            }
            _ => format!(
                "ask the operator of this container to start it again with {adds}, or with \
                 network.allow in its policy"
            ),
        }
    }
}
