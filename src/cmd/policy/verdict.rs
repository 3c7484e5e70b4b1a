//! The answer of `policy check`, and its JSON form.

use anyhow::anyhow;
use serde::Serialize;

use crate::plan::NetworkPlan;
use crate::policy::{Origin, POLICY_KEY, PolicyError, PolicyName};
use crate::rules::{EgressRule, Expiry};
use crate::runtime::clock;
use crate::text::DidYouMean;

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

/// The error without the annotation as which the policy's argument is read: the caller has not typed one.
pub fn without_annotation(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(PolicyError::NoSuchPolicy {
            name,
            asked_by: Origin::Annotation(key),
            suggestion,
            known,
        }) if key == POLICY_KEY => {
            let meant = DidYouMean(suggestion.as_ref().map(PolicyName::as_str));
            anyhow!("there is no policy {name}{meant}; known: {known}")
        }
        Some(PolicyError::AnnotationValue { key, problem }) if key == POLICY_KEY => {
            anyhow!("{problem}; to try a file: agentbox wrap --policy FILE --dry-run")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_does_not_exist_is_no_annotations_fault() {
        let error = |key: &str| {
            let error = PolicyError::NoSuchPolicy {
                name: "standrd".parse().unwrap(),
                asked_by: Origin::Annotation(key.to_owned()),
                suggestion: Some("standard".parse().unwrap()),
                known: "strict, standard".to_owned(),
            };
            without_annotation(error.into()).to_string()
        };
        assert_eq!(
            error(POLICY_KEY),
            "there is no policy standrd; did you mean standard?; known: strict, standard"
        );
        assert!(error("dev.agentbox.other").starts_with("annotation"));
        let path = |key: &str| {
            let problem = "./full.toml".parse::<PolicyName>().unwrap_err();
            let key = key.to_owned();
            without_annotation(PolicyError::AnnotationValue { key, problem }.into()).to_string()
        };
        let said = path(POLICY_KEY);
        assert!(
            said.starts_with("\"./full.toml\" is not a policy's name")
                && said.ends_with("agentbox wrap --policy FILE --dry-run"),
            "{said}"
        );
        assert!(path("dev.agentbox.other").starts_with("annotation"));
    }
}
