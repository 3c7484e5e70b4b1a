//! The decision about a host: one function for the proxy, the DNS stub, the log and `agentbox policy check`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::address::{AddressRefusal, Surroundings, vet};
use super::closed::{is_closed, is_metadata};
use super::connection::DEFAULT_PORT;
use super::connection::{HostReach, NetworkRule, RuleTarget};
use super::ended::ExpiredRule;
use super::expiry::Expiry;
use super::host::{Host, HostName};
use super::item::EgressRule;
use super::request::RequestRule;
use super::spelling;

/// The network rules of a container, with all presets expanded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EgressRules {
    /// Allowed, unless `deny` covers it.
    pub allow: BTreeSet<EgressRule>,
    /// Denied; without a port on all ports.
    pub deny: BTreeSet<EgressRule>,
    /// The engine's search list, which gives a private name several spellings. Known once the container has started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<HostName>,
    /// The ends of rules. A rule that has expired is here and no longer in `allow`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ends: BTreeMap<EgressRule, Expiry>,
    /// Rules whose end the policy gave (`network.temporary`), not `update`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ended_by_policy: BTreeSet<EgressRule>,
}

/// The decision about a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<'a> {
    /// This rule allows it.
    Allow(&'a NetworkRule),
    /// No rule allows it, or a denial wins.
    Deny(Denial),
}

/// Why a connection is denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Denial {
    /// No rule names the host.
    NotListed,
    /// Rules name the host, with these ports.
    Port(BTreeSet<u16>),
    /// This rule denies it.
    DeniedBy(NetworkRule),
    /// A cloud's metadata service or host agent, which only a rule with exactly this name or address opens.
    Metadata,
    /// Only requests that the sidecar reads are allowed to it, no tunnel.
    OnlyRequests,
    /// The rule that allowed it has expired.
    Expired(Box<ExpiredRule>),
}

impl Denial {
    /// The word under which it is counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotListed => "not-listed",
            Self::Port(_) => "port-not-listed",
            Self::DeniedBy(_) => "denied-by-rule",
            Self::Metadata => "metadata-service",
            Self::OnlyRequests => "only-requests",
            Self::Expired(_) => "rule-expired",
        }
    }

    /// Whether no rule was ever meant for it, so that an approval may allow it. Not for an expired rule: it is renewed by
    /// `update`, and learn mode does not go on with it.
    pub fn is_missing_rule(&self) -> bool {
        matches!(self, Self::NotListed | Self::Port(_))
    }
}

/// The explicit proxy's port on 127.0.0.1: the usual proxy port, or the next one that no rule names.
pub fn proxy_port(taken: &BTreeSet<u16>) -> u16 {
    const USUAL: u16 = 3128;
    (USUAL..u16::MAX)
        .find(|port| !taken.contains(port))
        .unwrap_or(USUAL)
}

/// A host and a port in the usual form: `HOST:PORT`, an IPv6 address in brackets.
pub fn endpoint(host: &Host, port: u16) -> String {
    match host {
        Host::Address(address) if address.is_ipv6() => format!("[{address}]:{port}"),
        Host::Address(_) | Host::Name(_) => format!("{host}:{port}"),
    }
}

/// The rule that would allow it; without a port if only the name was looked up. Only `node:` leads to the node.
pub fn rule_for(host: &Host, port: Option<u16>) -> String {
    let is_node = matches!(host, Host::Name(name) if name.is_the_nodes());
    match port {
        Some(port) if is_node => format!("node:{}", endpoint(host, port)),
        None if is_node => format!("node:{host}"),
        None | Some(DEFAULT_PORT) => host.to_string(),
        Some(port) => endpoint(host, port),
    }
}

impl EgressRules {
    /// Whether a TCP connection to this host and port is allowed, whatever it carries.
    pub fn decide(&self, host: &Host, port: u16) -> Decision<'_> {
        if let Some(rule) = self.denies(host, port) {
            return Decision::Deny(Denial::DeniedBy(rule.clone()));
        }
        let by_requests = Decision::Deny(Denial::OnlyRequests);
        if let Some(rule) = self.opened_by(host, port) {
            return match self.sees(host, port) {
                true => by_requests,
                false => Decision::Allow(rule),
            };
        }
        if self.leads_to_requests(host, port) {
            return by_requests;
        }
        if let Some(expired) = self.expired_for(host, port) {
            return Decision::Deny(Denial::Expired(Box::new(expired)));
        }
        let named = self.connections().filter(|rule| self.names(rule, host));
        let mut ports: BTreeSet<u16> = named.map(NetworkRule::allowed_port).collect();
        let requests = self.requests().filter(|rule| rule.names(host));
        ports.extend(requests.map(RequestRule::allowed_port));
        Decision::Deny(
            if ports.contains(&port) || ports.is_empty() && is_of_a_cloud(host) {
                Denial::Metadata
            } else if ports.is_empty() {
                Denial::NotListed
            } else {
                Denial::Port(ports)
            },
        )
    }

    /// The connection rule for this host and port, ignoring denials.
    pub(super) fn opened_by(&self, host: &Host, port: u16) -> Option<&NetworkRule> {
        // Of several rules, the widest reach: `internal:` also allows private addresses. `node:` covers other addresses
        // than all others, and its author means the node.
        self.connections()
            .filter(|rule| rule.allowed_port() == port && self.names(rule, host))
            .filter(|rule| may_mean(&rule.target, host))
            .max_by_key(|rule| rule.reach)
    }

    /// The connection rules.
    pub fn connections(&self) -> impl Iterator<Item = &NetworkRule> {
        self.allow.iter().filter_map(EgressRule::connection)
    }

    /// The names to resolve if a client sends a name of a rule that allows private addresses.
    pub fn meant_by(&self, rule: &NetworkRule, said: &HostName) -> Vec<HostName> {
        match &rule.target {
            RuleTarget::Name(ruled) if rule.reach.is_private() => {
                spelling::resolved_names(said, ruled, &self.search)
            }
            RuleTarget::Name(_)
            | RuleTarget::Below(_)
            | RuleTarget::Any
            | RuleTarget::Addresses(..) => {
                vec![said.clone()]
            }
        }
    }

    pub(super) fn names(&self, rule: &NetworkRule, host: &Host) -> bool {
        match host {
            Host::Name(name) => {
                rule.target.matches_name(name)
                    || rule.reach.is_private() && self.is_spelling(&rule.target, name)
            }
            Host::Address(address) => rule.target.matches_address(*address),
        }
    }

    fn is_spelling(&self, target: &RuleTarget, name: &HostName) -> bool {
        match target {
            RuleTarget::Name(ruled) => {
                !spelling::resolved_names(name, ruled, &self.search).is_empty()
            }
            RuleTarget::Below(_) | RuleTarget::Any | RuleTarget::Addresses(..) => false,
        }
    }

    /// Whether to resolve a name: only if a connection to it is allowed on some port.
    pub fn decide_name(&self, name: &HostName) -> Result<(), Denial> {
        let host = Host::Name(name.clone());
        let mut first = None;
        let expired = self.expired().flat_map(|(rule, _)| rule.ports());
        for port in self.ports().into_iter().chain(expired) {
            match self.decide(&host, port) {
                Decision::Allow(_) | Decision::Deny(Denial::OnlyRequests) => return Ok(()),
                Decision::Deny(Denial::Port(_)) => {}
                Decision::Deny(denial @ Denial::Expired(_)) => match first {
                    None | Some(Denial::NotListed) => first = Some(denial),
                    Some(_) => {}
                },
                Decision::Deny(denial) => first = first.or(Some(denial)),
            }
        }
        Err(first.unwrap_or(Denial::NotListed))
    }

    /// The ports that rules allow: the sidecar listens on them.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.allow.iter().flat_map(EgressRule::ports).collect()
    }

    /// Whether to dial an address of an allowed name, under a rule with this reach.
    ///
    /// Called for each address just before dialling, so that a denial of an address holds under every name.
    pub fn vet(
        &self,
        address: IpAddr,
        port: u16,
        reach: HostReach,
        around: &Surroundings,
    ) -> Result<IpAddr, AddressRefusal> {
        let host = Host::Address(address);
        let whole = self
            .denies(&host, port)
            .cloned()
            .map(EgressRule::Connection);
        // The requests are not known yet, so any denial of requests refuses the address.
        let in_part = || self.request_denial(&host, port).cloned();
        match whole.or_else(|| in_part().map(EgressRule::Request)) {
            Some(rule) => Err(AddressRefusal::Denied(Box::new(rule))),
            None => vet(address, reach, around),
        }
    }

    /// Denials of addresses. They can be checked only where a name's addresses are known.
    pub fn denied_addresses(&self) -> impl Iterator<Item = &EgressRule> {
        self.deny.iter().filter(|rule| {
            let target = match rule {
                EgressRule::Connection(rule) => &rule.target,
                EgressRule::Request(rule) => &rule.target,
            };
            matches!(target, RuleTarget::Addresses(..))
        })
    }

    /// The rule that denies a host: by its name, or by its address under any name. Denying a private name denies all of
    /// its spellings.
    pub fn denies(&self, host: &Host, port: u16) -> Option<&NetworkRule> {
        let spellings = self.spellings_of(host);
        self.deny
            .iter()
            .filter_map(EgressRule::connection)
            .find(|rule| is_denied(&rule.target, rule.port, (host, port), &spellings))
    }

    /// A rule that denies some requests to a host.
    pub(super) fn request_denial(&self, host: &Host, port: u16) -> Option<&RequestRule> {
        let mut denials = self.deny.iter().filter_map(EgressRule::request).peekable();
        denials.peek()?;
        let spellings = self.spellings_of(host);
        denials.find(|rule| is_denied(&rule.target, rule.port, (host, port), &spellings))
    }

    pub(super) fn spellings_of(&self, host: &Host) -> Vec<HostName> {
        match host {
            Host::Name(name) => self.spellings(name),
            Host::Address(_) => Vec::new(),
        }
    }

    /// The other spellings of a name under the rules, if any.
    fn spellings(&self, name: &HostName) -> Vec<HostName> {
        if self.search.is_empty() {
            return Vec::new();
        }
        // Of expired rules too: a denial covers no less than before.
        let expired = self.expired().filter_map(|(rule, _)| rule.connection());
        let all = self.connections().chain(expired);
        let private = all.filter(|rule| rule.reach.is_private());
        let ruled = private.filter_map(|rule| match &rule.target {
            RuleTarget::Name(ruled) if self.is_spelling(&rule.target, name) => Some(ruled),
            RuleTarget::Name(_)
            | RuleTarget::Below(_)
            | RuleTarget::Any
            | RuleTarget::Addresses(..) => None,
        });
        ruled
            .flat_map(|ruled| {
                let others = spelling::others(ruled, &self.search);
                std::iter::once(ruled.clone()).chain(others)
            })
            .collect()
    }
}

fn is_denied(
    target: &RuleTarget,
    denied: Option<u16>,
    (host, port): (&Host, u16),
    spellings: &[HostName],
) -> bool {
    let is_named = || match host {
        Host::Name(name) => {
            let mut all = std::iter::once(name).chain(spellings);
            all.any(|name| target.denies_name(name))
        }
        Host::Address(address) => target.denies_address(*address),
    };
    denied.is_none_or(|denied| denied == port) && is_named()
}

/// Whether it is a cloud's metadata service, or an address where a cloud serves credentials.
pub fn is_of_a_cloud(host: &Host) -> bool {
    match host {
        Host::Name(name) => is_metadata(name),
        Host::Address(address) => is_closed(*address),
    }
}

/// Whether a rule's target may cover a host. Only the exact name or address covers a cloud's metadata service.
pub(super) fn may_mean(target: &RuleTarget, host: &Host) -> bool {
    match host {
        Host::Name(name) if is_metadata(name) => {
            matches!(target, RuleTarget::Name(ruled) if ruled == name)
        }
        Host::Address(address) if is_closed(*address) => target.one_address() == Some(*address),
        Host::Name(_) | Host::Address(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::rules;

    fn allowed(rules: &EgressRules, host: &str, port: u16) -> bool {
        matches!(
            rules.decide(&host.parse().unwrap(), port),
            Decision::Allow(_)
        )
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        let rules = EgressRules::default();
        for host in ["example.com", "192.0.2.1", "localhost", "::1"] {
            assert_eq!(
                rules.decide(&host.parse().unwrap(), 443),
                Decision::Deny(Denial::NotListed)
            );
        }
        assert!(rules.ports().is_empty());
    }

    #[test]
    fn a_denial_wins() {
        let rules = rules(
            &["*.example.com", "api.example.com:22", "192.0.2.0/24:80"],
            &["api.example.com:22", "bad.example.com", "192.0.2.7"],
        );
        assert!(allowed(&rules, "api.example.com", 443));
        assert!(!allowed(&rules, "api.example.com", 22));
        assert!(!allowed(&rules, "bad.example.com", 443));
        assert!(allowed(&rules, "192.0.2.6", 80));
        assert!(!allowed(&rules, "192.0.2.7", 80));
        assert!(!allowed(&rules, "::ffff:192.0.2.7", 80));
    }

    /// Denying a name, with `*.` or without, denies its subtree.
    #[test]
    fn a_denied_name_denies_everything_below_it() {
        for denied in ["bad.test", "*.bad.test"] {
            let rules = rules(&["*", "*.bad.test"], &[denied]);
            for host in ["bad.test", "a.bad.test", "c.b.a.bad.test"] {
                assert!(!allowed(&rules, host, 443), "{host} with {denied}");
                assert!(rules.decide_name(&host.parse().unwrap()).is_err());
            }
            for host in ["notbad.test", "test", "bad.test.example"] {
                assert!(allowed(&rules, host, 443), "{host} with {denied}");
            }
        }
        let port = rules(&["*", "*:80"], &["bad.test:80"]);
        assert!(!allowed(&port, "a.b.bad.test", 80) && allowed(&port, "a.b.bad.test", 443));
    }

    /// N-H2: denials also apply to the addresses of a name.
    #[test]
    fn a_denied_address_is_not_dialled_for_any_name() {
        let rules = rules(
            &["*", "internal:db:5432"],
            &["198.51.100.0/24", "10.9.9.0/24:5432", "2001:db8::7"],
        );
        let around = Surroundings::default();
        let vet = |address: &str, port, internal| {
            let reach = match internal {
                true => HostReach::Internal,
                false => HostReach::Public,
            };
            rules.vet(address.parse().unwrap(), port, reach, &around)
        };
        for (address, port, internal) in [
            ("198.51.100.12", 443, false),
            ("198.51.100.12", 80, true),
            ("::ffff:198.51.100.12", 443, false),
            ("64:ff9b::c633:640c", 443, false),
            ("2002:c633:640c::1", 443, false),
            ("2001:db8::7", 22, false),
            ("10.9.9.9", 5432, true),
        ] {
            assert!(
                matches!(vet(address, port, internal), Err(AddressRefusal::Denied(_))),
                "{address}:{port}"
            );
        }
        assert!(vet("198.51.101.12", 443, false).is_ok());
        assert!(vet("10.9.9.9", 5433, true).is_ok());
        assert_eq!(rules.denied_addresses().count(), 3);
    }

    /// N-H4: a rule with a prefix opens no cloud's own address; a rule with the address does.
    #[test]
    fn only_its_own_address_opens_a_clouds() {
        let wide = rules(&["0.0.0.0/0:80", "[::/0]:80", "[64:ff9b::/96]:80"], &[]);
        for host in [
            "168.63.129.16",
            "169.254.169.254",
            "100.100.100.200",
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "fd00:ec2::254",
        ] {
            assert_eq!(
                wide.decide(&host.parse().unwrap(), 80),
                Decision::Deny(Denial::Metadata),
                "{host}"
            );
        }
        assert!(allowed(&wide, "168.63.129.17", 80));
        let exact = rules(&["168.63.129.16:80", "[fd00:ec2::254]:80"], &[]);
        assert!(allowed(&exact, "168.63.129.16", 80) && allowed(&exact, "fd00:ec2::254", 80));
        assert!(!allowed(&exact, "168.63.129.16", 32526));
    }

    #[test]
    fn a_denial_names_the_listed_ports() {
        let rules = rules(&["example.com", "example.com:22"], &[]);
        let Decision::Deny(denial) = rules.decide(&"example.com".parse().unwrap(), 80) else {
            panic!("allowed");
        };
        assert_eq!(
            denial.to_string(),
            "network.allow lists it with port 22, 443 only"
        );
    }

    #[test]
    fn no_wildcard_opens_a_metadata_service() {
        let rules = rules(&["*.google.internal", "*.example.com"], &[]);
        assert_eq!(
            rules.decide(&"Metadata.Google.Internal.".parse().unwrap(), 443),
            Decision::Deny(Denial::Metadata)
        );
        assert!(
            rules
                .decide_name(&"metadata.google.internal".parse().unwrap())
                .is_err()
        );
        let exact = EgressRules {
            allow: ["metadata.google.internal:80".parse().unwrap()].into(),
            ..EgressRules::default()
        };
        assert!(allowed(&exact, "metadata.google.internal", 80));
    }

    #[test]
    fn a_rule_that_lets_a_name_be_private_is_found_among_others() {
        for other in ["db.example.com:5432", "*.example.com:5432", "*:5432"] {
            let rules = rules(&[other, "internal:db.example.com:5432"], &[]);
            let decision = rules.decide(&"db.example.com".parse().unwrap(), 5432);
            let internal = "internal:db.example.com:5432".parse().unwrap();
            assert_eq!(decision, Decision::Allow(&internal), "{other}");
        }
    }

    /// The spellings of a Service, and a denial of any of them.
    #[test]
    fn a_private_name_is_allowed_and_denied_with_all_its_spellings() {
        let with = |allow: &[&str], deny: &[&str]| EgressRules {
            search: [
                "default.svc.cluster.local",
                "svc.cluster.local",
                "cluster.local",
            ]
            .map(|domain| domain.parse().unwrap())
            .to_vec(),
            ..rules(allow, deny)
        };
        let spellings = [
            "postgres",
            "postgres.default",
            "postgres.default.svc",
            "postgres.default.svc.cluster.local",
        ];
        let one = with(&["internal:postgres:5432", "web.default:80"], &[]);
        for name in spellings {
            assert!(
                allowed(&one, name, 5432) && !allowed(&one, name, 5433),
                "{name}"
            );
            assert!(one.decide_name(&name.parse().unwrap()).is_ok(), "{name}");
        }
        // Another Service, a Service of another namespace, and spellings of a public name.
        for name in [
            "postgres.prod",
            "redis",
            "redis.default",
            "web",
            "web.default.svc",
        ] {
            assert!(
                !allowed(&one, name, 5432) && !allowed(&one, name, 80),
                "{name}"
            );
        }
        for denied in spellings {
            let rules = with(&["internal:postgres:5432"], &[denied]);
            for name in spellings {
                assert!(!allowed(&rules, name, 5432), "{name} with {denied} denied");
            }
        }
        // On a cloud's machine, the search list may turn a rule's name into the metadata service's.
        let mut cloud = rules(&["internal:metadata-1:80", "internal:metadata:80"], &[]);
        cloud.search = vec!["google.internal".parse().unwrap()];
        assert!(!allowed(&cloud, "metadata.google.internal", 80));
    }

    /// The rules read naively: text compared with text, bit with bit, without our types.
    fn naive(allow: &[String], deny: &[String], host: &str, port: u16) -> bool {
        let hit = |rule: &String, default: Option<u16>, named: fn(&str, &str) -> bool| {
            let rule = rule.strip_prefix("internal:").unwrap_or(rule);
            let (target, rule_port) = match rule.rsplit_once(':') {
                // Without brackets but with more colons, it is an IPv6 address without a port.
                Some((target, p)) if !target.contains(':') || target.ends_with(']') => {
                    (target, Some(p.parse::<u16>().unwrap()))
                }
                _ => (rule, default),
            };
            let target = target.trim_start_matches('[').trim_end_matches(']');
            named(target, host) && rule_port.is_none_or(|p| p == port)
        };
        allow.iter().any(|r| hit(r, Some(443), naively_named))
            && !deny.iter().any(|r| hit(r, None, naively_denied))
    }

    /// A denied name includes all names below it.
    fn naively_denied(target: &str, host: &str) -> bool {
        let domain = target.strip_prefix("*.").unwrap_or(target);
        let is_name = host.parse::<std::net::IpAddr>().is_err();
        naively_named(target, host)
            || is_name && format!(".{host}").ends_with(&format!(".{domain}"))
    }

    fn naively_named(target: &str, host: &str) -> bool {
        let bits = |text: &str| -> Option<String> {
            let address: std::net::IpAddr = text.parse().ok()?;
            Some(match address {
                std::net::IpAddr::V4(v4) => format!("4{:032b}", u32::from(v4)),
                std::net::IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                    Some(v4) => format!("4{:032b}", u32::from(v4)),
                    None => format!("6{:0128b}", u128::from(v6)),
                },
            })
        };
        if let Some(host) = bits(host) {
            let (address, length) = target.split_once('/').unwrap_or((target, "128"));
            return bits(address).is_some_and(|net| {
                let length = length.parse::<usize>().unwrap().min(net.len() - 1);
                net.len() == host.len() && net[..=length] == host[..=length]
            });
        }
        match (target, target.strip_prefix("*.")) {
            ("*", _) => true,
            (_, Some(domain)) => host
                .strip_suffix(domain)
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|label| !label.is_empty() && !label.contains('.')),
            _ => host == target,
        }
    }

    #[test]
    fn decides_as_the_rules_read_naively() {
        let hosts = [
            "a.test",
            "b.test",
            "a.b.test",
            "c.b.test",
            "d.c.b.test",
            "test",
            "aa.test",
            "x.y",
            "192.0.2.1",
            "192.0.2.200",
            "192.0.3.1",
            "::ffff:192.0.2.1",
            "2001:db8::1",
            "2001:db8:1::1",
            "::1",
        ];
        // Each with its form before a port.
        let targets = [
            ("a.test", "a.test"),
            ("*.test", "*.test"),
            ("b.test", "b.test"),
            ("*.b.test", "*.b.test"),
            ("internal:c.b.test", "internal:c.b.test"),
            ("c.b.test", "c.b.test"),
            ("test", "test"),
            ("*.c.b.test", "*.c.b.test"),
            ("y", "y"),
            ("*.y", "*.y"),
            ("*", "*"),
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.128/25", "192.0.2.128/25"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::1", "[2001:db8::1]"),
            ("2001:db8::/32", "[2001:db8::/32]"),
            ("::/0", "[::/0]"),
        ];
        let ports = ["", ":443", ":80", ":22"];
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut next = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % bound as u64).unwrap()
        };
        let mut counts = [0; 2];
        for _ in 0..3000 {
            let mut list = |most: usize| -> Vec<String> {
                let count = next(most + 1);
                let mut one = || match (targets[next(targets.len())], ports[next(4)]) {
                    ((bare, _), "") => bare.to_owned(),
                    ((_, bracketed), port) => format!("{bracketed}{port}"),
                };
                (0..count).map(|_| one()).collect()
            };
            let (allow, deny) = (list(4), list(2));
            let parse = |list: &[String]| list.iter().map(|r| r.parse().unwrap()).collect();
            let rules = EgressRules {
                allow: parse(&allow),
                deny: parse(&deny),
                ..EgressRules::default()
            };
            for host in hosts {
                for port in [443, 80, 22, 8080] {
                    let expected = naive(&allow, &deny, host, port);
                    assert_eq!(
                        allowed(&rules, host, port),
                        expected,
                        "{host}:{port} with {allow:?} minus {deny:?}"
                    );
                    counts[usize::from(expected)] += 1;
                }
                if let Ok(name) = host.parse() {
                    let some = [443, 80, 22].iter().any(|p| naive(&allow, &deny, host, *p));
                    assert_eq!(rules.decide_name(&name).is_ok(), some);
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 10_000), "{counts:?}");
    }
}
