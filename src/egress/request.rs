//! Reads requests into their canonical form, as typed by a user and as sent by a client.

use super::http::{HttpRefusal, authority};
use crate::rules::Host;
use crate::rules::request::decide::FullRequest;
use crate::rules::request::{MCP, McpCall, PathFault, Request, RequestPath, Scheme};

/// Parses `METHOD https://HOST[:PORT]/PATH[?QUERY]`, or `mcp:https://HOST[:PORT]/PATH METHOD[:NAME]`, as typed.
pub fn typed(text: &str) -> Result<FullRequest, HttpRefusal> {
    if let Some(rest) = text.strip_prefix(MCP) {
        let unlike = HttpRefusal::Unsupported("this is not mcp:https://HOST/PATH METHOD[:NAME]");
        let Some((address, call)) = rest.split_once(' ') else {
            return Err(unlike);
        };
        let call: McpCall = call.parse().map_err(|_| unlike)?;
        let mut asked = typed(&format!("POST {address}"))?;
        asked.request.calls = Some(vec![call]);
        return Ok(asked);
    }
    let unlike = HttpRefusal::Unsupported("this is not METHOD https://HOST/PATH");
    let Some((method, address)) = text.split_once(' ') else {
        return Err(unlike);
    };
    let Some((scheme, rest)) = Scheme::split(address) else {
        return Err(unlike);
    };
    let (named, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, port) = authority(named)?;
    build_request(
        method,
        scheme,
        (host, port.unwrap_or(scheme.port())),
        target,
    )
}

/// The parts of a request's head that identify the request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a str,
    /// The target as written.
    pub target: &'a str,
    /// The one Host field, if there is one.
    pub host: Option<&'a str>,
}

/// Reads the request of a head on a connection to this host, port and scheme. The Host field must name that host, and
/// so must the target if it is an address. The scheme of such an address may differ.
pub fn of_said(
    head: RequestHead<'_>,
    scheme: Scheme,
    to: (Host, u16),
) -> Result<FullRequest, HttpRefusal> {
    let is_same = |text: &str| match authority(text)? {
        (host, port) if host == to.0 && port.is_none_or(|port| port == to.1) => Ok(()),
        _ => Err(HttpRefusal::OtherHost(crate::text::shown(text))),
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
    build_request(head.method, scheme, to, target)
}

fn build_request(
    method: &str,
    scheme: Scheme,
    (host, port): (Host, u16),
    target: &str,
) -> Result<FullRequest, HttpRefusal> {
    let method = method.parse().map_err(|_| {
        HttpRefusal::Unsupported("a method that is not A-Z and '-', or that is CONNECT")
    })?;
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = RequestPath::parse(path).map_err(|PathFault(why)| HttpRefusal::Ambiguous(why))?;
    // No rule reads the query. Only characters that end a line or a URL are refused.
    let plain = |query: &str| query.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if !query.is_none_or(plain) {
        return Err(HttpRefusal::Ambiguous(
            "a query with a '#', a space or another character that is not visible ASCII",
        ));
    }
    Ok(FullRequest {
        request: Request {
            method,
            scheme,
            host,
            port,
            path,
            calls: None,
        },
        query: query.map(str::to_owned),
    })
}

/// Whether rules allow a request or call as typed, for tests of rules.
#[cfg(test)]
pub fn allows(rules: &crate::rules::EgressRules, text: &str) -> bool {
    let asked = typed(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    let decision = rules.decide_request(&asked.request);
    matches!(decision, crate::rules::RequestDecision::Allow(_))
}

#[cfg(test)]
mod tests {
    use super::super::http::head;
    use super::*;

    #[test]
    fn a_request_without_a_canonical_form_is_refused() {
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
        let said = RequestHead {
            method: head.method,
            target: head.target,
            host: head.host,
        };
        of_said(said, Scheme::Https, to).map(|asked| asked.to_string())
    }

    #[test]
    fn a_head_has_one_request_to_one_host() {
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
