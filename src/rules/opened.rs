//! The hosts whose TLS is opened.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::connection::{HostReach, NetworkRule, RuleTarget};
use super::decide::EgressRules;
use super::host::Host;
use super::item::EgressRule;
use super::request::Scheme;

/// The hosts whose TLS is opened: those of the rules for HTTPS requests at the container's creation. The container's
/// certificate authority is valid only for these names, and none is added later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TlsHosts(BTreeSet<NetworkRule>);

impl TlsHosts {
    /// The hosts of these rules.
    pub fn of(rules: &EgressRules) -> Self {
        let all = rules.allow.iter().chain(&rules.deny);
        let secure = all
            .filter_map(EgressRule::request)
            .filter(|rule| rule.scheme == Scheme::Https);
        Self(
            secure
                .map(|rule| NetworkRule {
                    target: rule.target.clone(),
                    port: None,
                    reach: HostReach::Public,
                })
                .collect(),
        )
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this host is included.
    pub fn has(&self, host: &Host) -> bool {
        self.targets().any(|target| match host {
            Host::Name(name) => target.matches_name(name),
            Host::Address(address) => target.matches_address(*address),
        })
    }

    /// As connection rules.
    pub fn rules(&self) -> impl Iterator<Item = &NetworkRule> {
        self.0.iter()
    }

    /// The hosts only.
    pub fn targets(&self) -> impl Iterator<Item = &RuleTarget> {
        self.rules().map(|rule| &rule.target)
    }

    /// The first host that these rules would add.
    pub fn lacks(&self, rules: &EgressRules) -> Option<NetworkRule> {
        let wanted = Self::of(rules).0.into_iter();
        let mut missing = wanted.filter(|new| !self.0.iter().any(|rule| rule.covers_limit(new)));
        missing.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::rules;

    #[test]
    fn tls_is_opened_only_for_hosts_of_request_rules() {
        let rules = rules(
            &[
                "GET https://a.test/x",
                "POST https://*.b.test:8443/**",
                "GET http://c.test/**",
                "d.test",
            ],
            &["DELETE https://d.test/**"],
        );
        let opened = TlsHosts::of(&rules);
        for (host, expected) in [
            ("a.test", true),
            ("x.b.test", true),
            ("b.test", false),
            ("x.a.test", false),
            ("c.test", false),
            ("d.test", true),
            ("192.0.2.1", false),
        ] {
            assert_eq!(opened.has(&host.parse().unwrap()), expected, "{host}");
        }
        let text = serde_json::to_string(&opened).unwrap();
        assert_eq!(serde_json::from_str::<TlsHosts>(&text).unwrap(), opened);
    }

    #[test]
    fn a_host_that_is_added_later_must_be_among_them() {
        let opened = TlsHosts::of(&rules(&["GET https://*.a.test/**"], &[]));
        assert_eq!(
            opened.lacks(&rules(&["* https://x.a.test/**", "b.test"], &[])),
            None
        );
        let lacks = opened.lacks(&rules(&["GET https://b.test/x"], &[]));
        assert_eq!(
            lacks.map(|rule| rule.to_string()),
            Some("b.test".to_owned())
        );
    }
}
