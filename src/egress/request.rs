//! Requests in their one form, and the decision about them.
//!
//! A denial wins, and it means each reading of a path; what is allowed is allowed in all of them (`policy::request`). `policy check
//! --request` reads requests by this. No connection is looked into yet, so no policy can have such rules.

use std::collections::BTreeSet;
use std::fmt;

use super::http::{Head, HttpRefusal, authority};
use crate::policy::Host;
use crate::policy::request::{PathFault, Request, RequestPath, RequestRule, Scheme};

/// Which requests may be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// Allowed, unless `deny` names it too.
    pub allow: BTreeSet<RequestRule>,
    /// Denied.
    pub deny: BTreeSet<RequestRule>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestDecision<'a> {
    /// This rule allows it.
    Allow(&'a RequestRule),
    /// This rule denies it.
    DeniedBy(&'a RequestRule),
    /// No rule allows it.
    NotListed,
}

impl RequestRules {
    /// Whether this request is allowed.
    pub fn decide_request(&self, request: &Request) -> RequestDecision<'_> {
        let denied = self.deny.iter().find(|rule| rule.denies(request));
        let allowed = || self.allow.iter().find(|rule| rule.allows(request));
        match denied {
            Some(rule) => RequestDecision::DeniedBy(rule),
            None => allowed().map_or(RequestDecision::NotListed, RequestDecision::Allow),
        }
    }
}

/// A request and its query, which no rule looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What is decided about.
    pub request: Request,
    /// What follows the question mark, if there is one.
    pub query: Option<String>,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request {
            method,
            scheme,
            host,
            port,
            path,
        } = &self.request;
        write!(f, "{method} {scheme}://")?;
        match host {
            Host::Address(address) if address.is_ipv6() => write!(f, "[{address}]")?,
            Host::Address(_) | Host::Name(_) => write!(f, "{host}")?,
        }
        if *port != scheme.port() {
            write!(f, ":{port}")?;
        }
        path.fmt(f)?;
        match &self.query {
            Some(query) => write!(f, "?{query}"),
            None => Ok(()),
        }
    }
}

/// Reads `METHOD https://HOST[:PORT]/PATH[?QUERY]`, as a person types it.
pub fn typed(text: &str) -> Result<Asked, HttpRefusal> {
    let unlike = HttpRefusal::Unsupported("this is not METHOD https://HOST/PATH");
    let Some((method, address)) = text.split_once(' ') else {
        return Err(unlike);
    };
    let Some((scheme, rest)) = Scheme::split(address) else {
        return Err(unlike);
    };
    let (named, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, port) = authority(named)?;
    asked(
        method,
        scheme,
        (host, port.unwrap_or(scheme.port())),
        target,
    )
}

/// Reads the request of a head on a connection that leads to this host and port by this scheme. Each name in the head must be that
/// host: the Host field, and the address where the target is one, whose scheme is the client's own business.
pub fn of_head(head: &Head<'_>, scheme: Scheme, to: (Host, u16)) -> Result<Asked, HttpRefusal> {
    let is_same = |text: &str| match authority(text)? {
        (host, port) if host == to.0 && port.is_none_or(|port| port == to.1) => Ok(()),
        _ => Err(HttpRefusal::OtherHost(crate::policy::shown(text))),
    };
    match head.host {
        Some(host) => is_same(host)?,
        None => return Err(HttpRefusal::Unsupported("a request without a Host field")),
    }
    let target = match Scheme::split(head.target) {
        Some((_, rest)) => {
            let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (named, target) = rest.split_at(at);
            is_same(named)?;
            target
        }
        None if head.target.starts_with('/') => head.target,
        None => {
            return Err(HttpRefusal::Unsupported(
                "a target that is neither a path nor an address of HTTP",
            ));
        }
    };
    asked(head.method, scheme, to, target)
}

fn asked(
    method: &str,
    scheme: Scheme,
    (host, port): (Host, u16),
    target: &str,
) -> Result<Asked, HttpRefusal> {
    let method = method.parse().map_err(|_| {
        HttpRefusal::Unsupported("a method that is not A-Z and '-', or that is CONNECT")
    })?;
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = RequestPath::parse(path).map_err(|PathFault(why)| HttpRefusal::Ambiguous(why))?;
    // No rule looks at it; only what ends a line, or an address, is not part of one.
    let plain = |query: &str| query.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if !query.is_none_or(plain) {
        return Err(HttpRefusal::Ambiguous(
            "a query with a '#', a space or another character that is not visible ASCII",
        ));
    }
    Ok(Asked {
        request: Request {
            method,
            scheme,
            host,
            port,
            path,
        },
        query: query.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::super::http::head;
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> RequestRules {
        let parse = |list: &[&str]| list.iter().map(|r| r.parse().unwrap()).collect();
        RequestRules {
            allow: parse(allow),
            deny: parse(deny),
        }
    }

    fn allowed(rules: &RequestRules, text: &str) -> bool {
        let asked = typed(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        matches!(
            rules.decide_request(&asked.request),
            RequestDecision::Allow(_)
        )
    }

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

    #[test]
    fn what_has_no_one_form_is_refused() {
        for text in [
            "",
            "GET",
            "https://a.test/",
            "get https://a.test/",
            "CONNECT https://a.test/",
            "GET  https://a.test/",
            "GET ftp://a.test/",
            "GET https://u:p@a.test/",
            "GET https:///x",
            "GET https://a.test:0/",
            "GET https://a.test:/",
            "GET https://a.test/#x",
            "GET https://a.test/?a#x",
            "GET https://a.test/?a b",
            "GET https://a.test//x",
            "GET https://a.test/a;b",
            "GET https://a.test\\x/",
        ] {
            assert!(typed(text).is_err(), "{text}");
        }
        let printed = typed("GET HTTPS://A.test.:443?%2e").unwrap().to_string();
        assert_eq!(printed, "GET https://a.test/?%2e");
    }

    fn of(text: &str) -> Result<String, HttpRefusal> {
        let head = head(text.as_bytes())?.expect("a whole head");
        let to = ("a.test".parse().unwrap(), 443);
        of_head(&head, Scheme::Https, to).map(|asked| asked.to_string())
    }

    #[test]
    fn a_head_means_one_request_to_one_host() {
        for text in [
            "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET /y/../x HTTP/1.1\r\nhost: A.TEST.:443\r\n\r\n",
            "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
        ] {
            assert_eq!(of(text).as_deref(), Ok("GET https://a.test/x"), "{text}");
        }
        for text in [
            "GET /x HTTP/1.1\r\n\r\n",
            "GET /x HTTP/1.0\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost:\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: b.test\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: u@a.test\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: a.test\r\n b.test\r\n\r\n",
            "GET http://b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET http://a.test/x HTTP/1.1\r\nHost: b.test\r\n\r\n",
            "GET http://u@a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET ftp://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "get /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(of(text).is_err(), "{text}: {:?}", of(text));
        }
    }
}
