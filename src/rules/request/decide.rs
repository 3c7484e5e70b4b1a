//! The decision about a request.
//!
//! A denial wins, and applies to each reading of a path. A request is allowed only if all readings are. The sidecar and
//! `policy check --request` both use this.

use std::fmt;

use super::mcp::McpCall;
use super::path::RequestPath;
use super::{MCP, Request, RequestRule, Scheme};
use crate::rules::decide::EgressRules;
use crate::rules::decide::may_mean;
use crate::rules::ended::ExpiredRule;
use crate::rules::host::Host;
use crate::rules::item::EgressRule;

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestDecision {
    /// This rule allows it.
    Allow(EgressRule),
    /// This rule denies it.
    DeniedBy(EgressRule),
    /// No rule allows it.
    NotListed,
}

impl EgressRules {
    /// Whether this request is allowed: by a request rule, or by a connection rule, which allows any request.
    ///
    /// Each of several MCP calls must be allowed. The first one that is not gives the answer.
    pub fn decide_request(&self, request: &Request) -> RequestDecision {
        let mut all = request.alone().map(|request| self.decide_one(&request));
        let mut decided = all.next().unwrap_or(RequestDecision::NotListed);
        for other in all {
            if !matches!(other, RequestDecision::Allow(_)) {
                decided = match decided {
                    RequestDecision::Allow(_) => other,
                    first => first,
                };
            }
        }
        decided
    }

    fn decide_one(&self, request: &Request) -> RequestDecision {
        let Request { host, port, .. } = request;
        if let Some(rule) = self.denies(host, *port) {
            return RequestDecision::DeniedBy(rule.clone().into());
        }
        let denials = self.deny.iter().filter_map(EgressRule::request);
        if let Some(rule) = self.denying(denials, request) {
            return RequestDecision::DeniedBy(rule.clone().into());
        }
        let by_request = self
            .requests()
            .find(|rule| rule.allows(request) && may_mean(&rule.target, host));
        let whole = || self.opened_by(host, *port).cloned().map(EgressRule::from);
        let allowed = by_request.cloned().map(EgressRule::from).or_else(whole);
        allowed.map_or(RequestDecision::NotListed, RequestDecision::Allow)
    }

    /// Denials of a private name include all of its spellings.
    fn denying<'a>(
        &self,
        mut denials: impl Iterator<Item = &'a RequestRule>,
        request: &Request,
    ) -> Option<&'a RequestRule> {
        let others = self.spellings_of(&request.host).into_iter();
        let others: Vec<Request> = others
            .map(|name| Request {
                host: Host::Name(name),
                ..request.clone()
            })
            .collect();
        denials.find(|rule| rule.denies(request) || others.iter().any(|other| rule.denies(other)))
    }

    /// The request rules that allow.
    pub fn requests(&self) -> impl Iterator<Item = &RequestRule> {
        self.allow.iter().filter_map(EgressRule::request)
    }

    /// Whether any rule is for requests, so that the sidecar must read them.
    pub fn have_requests(&self) -> bool {
        let mut all = self.allow.iter().chain(&self.deny);
        all.any(|rule| rule.request().is_some())
    }

    /// The scheme and port to which a plain request to this host and port is sent. `None` if no rule is for requests to
    /// it; the connection is then decided as a whole.
    ///
    /// Port 80 means the host's HTTPS if a rule is for that.
    pub fn plain_way(&self, host: &Host, port: u16) -> Option<(Scheme, u16)> {
        let secure = match port {
            80 => Scheme::Https.port(),
            port => port,
        };
        let ways = [(Scheme::Https, secure), (Scheme::Http, port)];
        ways.into_iter()
            .find(|(scheme, port)| self.is_way(host, *scheme, *port))
    }

    fn is_way(&self, host: &Host, scheme: Scheme, port: u16) -> bool {
        // A connection rule does not name a protocol.
        let is_secure = || {
            let denial = self.request_denial(host, port);
            port == Scheme::Https.port()
                || denial
                    .is_some_and(|rule| rule.scheme == Scheme::Https && rule.port == Some(port))
        };
        let whole = || {
            self.sees(host, port)
                && self.opened_by(host, port).is_some()
                && is_secure() == (scheme == Scheme::Https)
        };
        self.allow_requests(host, scheme, port) || whole()
    }

    /// Whether a rule allows some request to this host with this scheme and port.
    pub fn allow_requests(&self, host: &Host, scheme: Scheme, port: u16) -> bool {
        let mut rules = self.requests();
        rules.any(|rule| rule.scheme == scheme && rule.allowed_port() == port && rule.names(host))
    }

    /// Whether requests to a host must be read, because a rule denies some.
    pub(in crate::rules) fn sees(&self, host: &Host, port: u16) -> bool {
        self.request_denial(host, port).is_some()
    }

    /// Whether a rule allows requests to a host, on any port, or did before it expired.
    pub(in crate::rules) fn names_requests_to(&self, host: &Host) -> bool {
        let expired = self.expired().filter_map(|(rule, _)| rule.request());
        let mut all = self.requests().chain(expired);
        all.any(|rule| rule.names(host))
    }

    /// Whether a rule allows requests to a host that are sent to this port, plain or with TLS.
    pub(in crate::rules) fn leads_to_requests(&self, host: &Host, port: u16) -> bool {
        self.requests().any(|rule| rule.is_way(host, port))
    }

    /// The expired rule that allowed this request, as such or with its connection.
    pub fn expired_request(&self, request: &Request) -> Option<ExpiredRule> {
        let Request { host, port, .. } = request;
        let is_expired = |one: &Request| {
            self.expired_by(|rule| match rule {
                EgressRule::Request(rule) => rule.allows(one) && may_mean(&rule.target, host),
                EgressRule::Connection(rule) => {
                    rule.allowed_port() == *port
                        && self.names(rule, host)
                        && may_mean(&rule.target, host)
                }
            })
        };
        request.alone().find_map(|one| is_expired(&one))
    }
}

impl RequestRule {
    /// Whether requests of this rule are sent to this host and port, plain or with TLS.
    pub(in crate::rules) fn is_way(&self, host: &Host, port: u16) -> bool {
        (self.allowed_port() == port || self.plain_port() == port)
            && self.names(host)
            && may_mean(&self.target, host)
    }
}

/// A request with its query. No rule reads the query, except for git's service ([`FullRequest::push`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullRequest {
    /// The request to decide about.
    pub request: Request,
    /// The text after the question mark, if any.
    pub query: Option<String>,
}

impl FullRequest {
    /// Each of its calls as a request of its own, and the push that it announces.
    pub fn alone(&self) -> impl Iterator<Item = Self> {
        let each = self.request.alone().map(|request| Self {
            request,
            query: self.query.clone(),
        });
        each.chain(self.push())
    }

    /// Of this request and the push that it announces, the first that is not allowed.
    pub fn decisive(&self, rules: &EgressRules) -> Self {
        let refused = |one: &Self| {
            let decided = rules.decide_request(&one.request);
            !matches!(decided, RequestDecision::Allow(_))
        };
        self.alone().find(refused).unwrap_or_else(|| self.clone())
    }

    /// The push that git begins with this request: the query of `info/refs` names the service (gitprotocol-http(5)). A
    /// query in another spelling than git's may mean it too.
    pub fn push(&self) -> Option<Self> {
        const SERVICE: &str = "git-receive-pack";
        let path = self.request.path.to_string();
        let repository = path.strip_suffix("/info/refs")?;
        let mut parts = self.query.as_deref()?.split(['&', ';']);
        if !parts.any(|part| part.contains('%') || part.contains(SERVICE)) {
            return None;
        }
        Some(Self {
            request: Request {
                method: "POST".parse().ok()?,
                path: RequestPath::parse(&format!("{repository}/{SERVICE}")).ok()?,
                ..self.request.clone()
            },
            query: None,
        })
    }

    /// The rule that allows only this request. `None` if its path has an asterisk, which is a wildcard in a rule, or its call
    /// a name that no rule can have.
    pub fn rule(&self) -> Option<RequestRule> {
        if !self
            .request
            .calls
            .iter()
            .flatten()
            .all(McpCall::fits_a_rule)
        {
            return None;
        }
        let alone = Self {
            query: None,
            request: self.request.clone(),
        };
        let text = alone.to_string();
        (!text.contains('*')).then(|| text.parse().ok()).flatten()
    }
}

impl fmt::Display for FullRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request {
            method,
            scheme,
            host,
            port,
            path,
            calls,
        } = &self.request;
        let call = match calls.as_deref() {
            Some([call]) => Some(call),
            Some(_) | None => None,
        };
        match call {
            Some(_) => write!(f, "{MCP}{scheme}://")?,
            None => write!(f, "{method} {scheme}://")?,
        }
        match host {
            Host::Address(address) if address.is_ipv6() => write!(f, "[{address}]")?,
            Host::Address(_) | Host::Name(_) => write!(f, "{host}")?,
        }
        if *port != scheme.port() {
            write!(f, ":{port}")?;
        }
        path.fmt(f)?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        match call {
            Some(call) => write!(f, " {call}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::request::allows as allowed;
    use crate::rules::address::Surroundings;
    use crate::rules::samples::rules;
    use crate::rules::{Decision, Denial, HostReach};

    #[test]
    fn a_request_is_allowed_by_method_host_and_path() {
        let rules = rules(
            &[
                "GET,HEAD https://api.github.com/repos/acme/**",
                "* http://*.a.test/x",
            ],
            &[],
        );
        for (text, expected) in [
            ("GET https://api.github.com/repos/acme/app?q=1", true),
            ("HEAD https://API.github.com.:443/repos/acme/app", true),
            ("GET https://api.github.com/repos/other/../acme/app", true),
            ("POST https://api.github.com/repos/acme/app", false),
            ("GET https://api.github.com/repos/acme", false),
            ("GET https://api.github.com/repos/acme/../other/app", false),
            ("GET https://api.github.com/repos%2facme/app", false),
            ("GET https://api.github.com/gists?/repos/acme/x", false),
            ("GET http://api.github.com/repos/acme/app", false),
            ("GET https://api.github.com:8443/repos/acme/app", false),
            ("GET https://github.com/repos/acme/app", false),
            ("DELETE http://b.a.test/x", true),
            ("DELETE http://c.b.a.test/x", false),
        ] {
            assert_eq!(allowed(&rules, text), expected, "{text}");
        }
    }

    #[test]
    fn a_denial_wins_in_every_reading() {
        let rules = rules(
            &["* https://*.a.test/**"],
            &["* https://a.test/admin/**", "DELETE https://api.a.test"],
        );
        assert!(allowed(&rules, "GET https://api.a.test/x"));
        for text in [
            "DELETE https://api.a.test/x",
            "GET https://api.a.test/admin/x",
            "GET https://api.a.test/Admin",
            "GET https://api.a.test/admin%2fx",
            "GET https://api.a.test/x/%2e%2e/admin/x",
        ] {
            assert!(!allowed(&rules, text), "{text}");
        }
    }

    /// A tunnel to a host with request rules is refused: its requests could not be read.
    #[test]
    fn a_host_of_request_rules_is_reached_by_requests_alone() {
        let rules = rules(
            &[
                "GET https://api.test.example/x",
                "GET https://a.test.example:8443/**",
                "* http://plain.test.example/**",
                "whole.test.example",
                "whole.test.example:22",
                "other.test.example",
            ],
            &["DELETE https://whole.test.example:443/**"],
        );
        let decide = |host: &str, port| rules.decide(&host.parse().unwrap(), port);
        let only = Decision::Deny(Denial::OnlyRequests);
        for (host, port) in [
            ("api.test.example", 443),
            ("api.test.example", 80),
            ("a.test.example", 8443),
            ("plain.test.example", 80),
            ("whole.test.example", 443),
        ] {
            assert_eq!(decide(host, port), only, "{host}:{port}");
            assert_eq!(rules.decide_name(&host.parse().unwrap()), Ok(()));
        }
        for (host, port, ports) in [
            ("api.test.example", 22, [443].into()),
            ("a.test.example", 443, [8443].into()),
            ("whole.test.example", 80, [22, 443].into()),
        ] {
            let denial = Decision::Deny(Denial::Port(ports));
            assert_eq!(decide(host, port), denial, "{host}:{port}");
        }
        assert!(matches!(
            decide("whole.test.example", 22),
            Decision::Allow(_)
        ));
        assert!(matches!(
            decide("other.test.example", 443),
            Decision::Allow(_)
        ));
        assert_eq!(rules.ports(), [22, 80, 443, 8443].into());
        let way = |host: &str, port| rules.plain_way(&host.parse().unwrap(), port);
        for (host, port, expected) in [
            ("api.test.example", 80, Some((Scheme::Https, 443))),
            ("api.test.example", 443, Some((Scheme::Https, 443))),
            ("api.test.example", 22, None),
            ("a.test.example", 8443, Some((Scheme::Https, 8443))),
            ("a.test.example", 80, None),
            ("plain.test.example", 80, Some((Scheme::Http, 80))),
            ("whole.test.example", 80, Some((Scheme::Https, 443))),
            ("whole.test.example", 22, None),
            ("other.test.example", 80, None),
        ] {
            assert_eq!(way(host, port), expected, "{host}:{port}");
        }
        assert!(allowed(&rules, "GET https://whole.test.example/x"));
        assert!(!allowed(&rules, "DELETE https://whole.test.example/x"));
        assert!(!allowed(&rules, "GET http://whole.test.example/x"));
    }

    /// No wildcard of request rules opens a cloud's metadata service. A denied address is denied under any name.
    #[test]
    fn requests_open_no_metadata_service_and_no_denied_address() {
        let wide = rules(
            &["GET http://*/**", "GET http://metadata.goog/x"],
            &["GET https://192.0.2.7/**", "b.test"],
        );
        assert!(!allowed(&wide, "GET http://metadata.google.internal/x"));
        assert!(!allowed(&wide, "GET http://b.test/x"));
        assert!(
            allowed(&wide, "GET http://metadata.goog/x") && allowed(&wide, "GET http://c.test/")
        );
        let host = "metadata.google.internal".parse().unwrap();
        let denied = wide.decide(&host, 80);
        assert_eq!(denied, Decision::Deny(Denial::Metadata));
        let around = Surroundings::default();
        let vet = |address: &str| {
            let address = address.parse().unwrap();
            wide.vet(address, 80, HostReach::Public, &around)
        };
        assert!(vet("192.0.2.7").is_err() && vet("::ffff:192.0.2.7").is_err());
        assert_eq!(wide.denied_addresses().count(), 1);
    }
}
