//! Rules that end. A rule whose time is over allows nothing, and still narrows: what it excluded stays excluded.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::decide::EgressRules;
use super::decide::may_mean;
use super::expiry::{ClockReading, Expiry};
use super::host::Host;
use super::item::EgressRule;

/// A rule whose time is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpiredRule {
    /// The rule.
    pub rule: EgressRule,
    /// When it ended.
    pub end: Expiry,
}

impl EgressRules {
    /// With ends that a clock which is set back does not move.
    #[must_use]
    pub fn pinned(mut self, now: ClockReading) -> Self {
        self.ends
            .values_mut()
            .for_each(|end| *end = end.pinned(now));
        self
    }

    /// Takes the rules whose time is over out of `allow`, and returns them.
    pub fn expire(&mut self, now: ClockReading) -> Vec<ExpiredRule> {
        let over = self.ends.iter().filter(|(_, end)| end.is_over(now));
        let over: Vec<_> = over
            .filter(|(rule, _)| self.allow.contains(rule))
            .map(|(rule, end)| ExpiredRule {
                rule: rule.clone(),
                end: *end,
            })
            .collect();
        for ExpiredRule { rule, .. } in &over {
            self.allow.remove(rule);
        }
        over
    }

    /// The rules in force whose end the policy did not give.
    pub fn without_policys(&self) -> BTreeSet<EgressRule> {
        self.allow
            .difference(&self.ended_by_policy)
            .cloned()
            .collect()
    }

    /// Whether it is in force until the policy's end.
    pub fn ends_by_policy(&self, rule: &EgressRule) -> bool {
        self.allow.contains(rule) && self.ended_by_policy.contains(rule)
    }

    /// Whether a rule has ended by itself: a caller who removes it then has what the call is for.
    pub fn has_expired(&self, rule: &EgressRule) -> bool {
        self.ends.contains_key(rule) && !self.allow.contains(rule)
    }

    /// The rules that will expire.
    pub fn temporary(&self) -> impl Iterator<Item = (&EgressRule, Expiry)> {
        let ends = self.ends.iter().map(|(rule, end)| (rule, *end));
        ends.filter(|(rule, _)| self.allow.contains(rule))
    }

    /// The rules that have expired.
    pub(super) fn expired(&self) -> impl Iterator<Item = (&EgressRule, Expiry)> {
        let ends = self.ends.iter().map(|(rule, end)| (rule, *end));
        ends.filter(|(rule, _)| !self.allow.contains(rule))
    }

    /// The expired rule that allowed connections to this host and port, or requests that are sent to it.
    pub(super) fn expired_for(&self, host: &Host, port: u16) -> Option<ExpiredRule> {
        let covers = |rule: &EgressRule| match rule {
            EgressRule::Connection(rule) => {
                rule.allowed_port() == port
                    && self.names(rule, host)
                    && may_mean(&rule.target, host)
            }
            EgressRule::Request(rule) => rule.is_way(host, port),
        };
        self.expired_by(covers)
    }

    /// The first expired rule of these.
    pub(super) fn expired_by(&self, covers: impl Fn(&EgressRule) -> bool) -> Option<ExpiredRule> {
        let (rule, end) = self.expired().find(|(rule, _)| covers(rule))?;
        Some(ExpiredRule {
            rule: rule.clone(),
            end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::rules;
    use crate::rules::{Decision, Denial};

    fn allowed(rules: &EgressRules, host: &str, port: u16) -> bool {
        matches!(
            rules.decide(&host.parse().unwrap(), port),
            Decision::Allow(_)
        )
    }

    /// Rules of which these end in ten minutes, after eleven.
    fn expired(allow: &[&str], deny: &[&str], ending: &[&str]) -> EgressRules {
        let mut rules = rules(allow, deny);
        let end = Expiry::after(600, ClockReading::default()).unwrap();
        for rule in ending {
            let rule: EgressRule = rule.parse().unwrap();
            rules.allow.insert(rule.clone());
            rules.ends.insert(rule, end);
        }
        let at = |minutes: u32| ClockReading {
            boot_ms: u64::from(minutes) * 60_000,
            unix: 0,
        };
        assert_eq!(rules.expire(at(9)), []);
        assert_eq!(rules.temporary().count(), ending.len());
        assert_eq!(rules.expire(at(11)).len(), ending.len());
        assert_eq!(rules.expire(at(11)), [], "it is told once");
        assert_eq!(rules.temporary().count(), 0);
        rules
    }

    #[test]
    fn an_expired_rule_is_the_reason_and_allows_nothing() {
        let gone = expired(
            &["b.test", "c.test:22"],
            &["d.test"],
            &[
                "a.test",
                "*.w.test:8443",
                "GET https://r.test/**",
                "d.test",
                "b.test:80",
            ],
        );
        for (host, port) in [
            ("a.test", 443),
            ("x.w.test", 8443),
            ("r.test", 443),
            ("r.test", 80),
        ] {
            let host: Host = host.parse().unwrap();
            let Decision::Deny(denial) = gone.decide(&host, port) else {
                panic!("{host}:{port} is allowed");
            };
            assert_eq!(denial.kind(), "rule-expired", "{host}:{port}");
            let said = denial.to_string();
            assert!(said.contains("expired at 1970-01-01T00:10:00Z"), "{said}");
            let Host::Name(name) = &host else {
                unreachable!()
            };
            assert_eq!(gone.decide_name(name), Err(denial));
        }
        for (host, port) in [("a.test", 80), ("w.test", 8443), ("other.test", 443)] {
            let denied = gone.decide(&host.parse().unwrap(), port);
            assert!(
                !matches!(denied, Decision::Deny(Denial::Expired(_))),
                "{host}"
            );
        }
        // A denial is the nearer reason, and another rule still allows.
        let denied = gone.decide(&"d.test".parse().unwrap(), 443);
        assert!(matches!(denied, Decision::Deny(Denial::DeniedBy(_))));
        assert!(allowed(&gone, "b.test", 443) && !allowed(&gone, "b.test", 80));
        let request = |text: &str| crate::egress::request::typed(text).unwrap().request;
        for (text, is_expired) in [
            ("GET https://r.test/x", true),
            ("POST https://r.test/x", false),
            ("POST https://a.test/x", true),
        ] {
            let expired = gone.expired_request(&request(text));
            assert_eq!(expired.is_some(), is_expired, "{text}");
        }
    }

    /// An end never allows more than the rules without it: neither by a spelling that a denial no longer covers, nor by learn
    /// mode.
    #[test]
    fn an_expired_rule_still_narrows() {
        let search = ["default.svc.cluster.local", "svc.cluster.local"];
        let search = search.map(|domain| domain.parse().unwrap()).to_vec();
        let mut gone = expired(&["*:5432"], &["postgres"], &["internal:postgres:5432"]);
        gone.search = search;
        assert!(!allowed(&gone, "postgres.default", 5432));
        gone.ends.clear();
        assert!(allowed(&gone, "postgres.default", 5432), "the control");
        let mut gone = expired(&[], &[], &["GET https://r.test/**"]);
        let host = "r.test".parse().unwrap();
        assert!(gone.names_requests_to(&host));
        gone.ends.clear();
        assert!(!gone.names_requests_to(&host), "the control");
    }
}
