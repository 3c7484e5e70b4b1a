//! The answer of `policy check`, and its JSON form.

use serde::Serialize;

use crate::plan::NetworkPlan;
use crate::rules::{EgressRule, Expiry};
use crate::runtime::clock;

/// The answer as JSON.
#[derive(Debug, Serialize)]
pub struct JsonVerdict<'a> {
    /// The version of this form.
    version: u32,
    /// Whether the connection or request is allowed.
    allowed: bool,
    /// The verdict and its reason.
    verdict: &'a str,
    /// Further lines: the missing rule, what may add it.
    notes: Vec<&'a str>,
}

impl<'a> From<&'a (bool, String)> for JsonVerdict<'a> {
    /// From the text for people: its first line is the verdict.
    fn from((allowed, text): &'a (bool, String)) -> Self {
        let mut lines = text.lines();
        Self {
            version: 1,
            allowed: *allowed,
            verdict: lines.next().unwrap_or_default(),
            notes: lines.collect(),
        }
    }
}

/// The answer for one way of choosing a policy.
#[derive(Debug, PartialEq, Eq)]
pub struct CaseAnswer {
    /// Whether it is allowed, and why.
    pub verdict: (bool, String),
    /// Whether an annotation may add the missing rule, line by line.
    pub may_add: Vec<String>,
}

impl From<CaseAnswer> for (bool, String) {
    fn from(CaseAnswer { verdict, may_add }: CaseAnswer) -> Self {
        let (allowed, mut text) = verdict;
        for line in may_add {
            text += "\n";
            text += &line;
        }
        (allowed, text)
    }
}

/// What is left of a rule that ends.
pub fn ending(network: &NetworkPlan, rule: &EgressRule) -> String {
    let words = |end: &Expiry| format!(", {}", end.words(clock::reading()));
    network.rules.ends.get(rule).map(words).unwrap_or_default()
}

/// What to say of a missing rule that has ended: who adds it to network.allow gives no end.
pub fn without_end(network: &NetworkPlan, missing: &EgressRule) -> &'static str {
    match network.rules.has_expired(missing) {
        true => " (without an end: its rule has expired)",
        false => "",
    }
}
