//! PURE. What was probably meant by a text that is no rule: a pasted address, two hosts in one item, a port's name.
//!
//! Nothing here accepts anything: the text stays an error, which names the rule to type.

use std::net::IpAddr;

use crate::text::{ValueError, few};

/// Ports that people call by their names.
const PORTS: [(&str, &str); 3] = [("https", ""), ("http", ":80"), ("ssh", ":22")];

/// The error of a text that is nearly a rule; `None` for another text. `is_rule` says whether a text is a rule for one host,
/// `is_request` whether it is one for requests.
pub fn error(
    text: &str,
    is_rule: &dyn Fn(&str) -> bool,
    is_request: &dyn Fn(&str) -> bool,
) -> Option<ValueError> {
    let is_one = |rule: &String| is_rule(rule);
    let near = |allowed: &str, suggestion: String| ValueError {
        suggestion: Some(suggestion),
        ..ValueError::grammar(text, allowed)
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    if let Some(rule) = request_rule(text, &words).filter(|rule| is_request(rule)) {
        return Some(near(
            "a rule for requests, whose methods are in capitals with commas alone between them",
            rule,
        ));
    }
    if words.len() > 1 {
        // `GET a.test` lacks an address, and is no list.
        let is_method = words[0].bytes().all(|byte| byte.is_ascii_uppercase());
        let are_rules = (words.iter()).all(|word| is_rule(word) || word.starts_with('@'));
        let allowed = format!(
            "one rule but {}: separate {} with commas (in a file: each in its own quotes)",
            words.len(),
            few(&words, 100)
        );
        return (are_rules && !is_method).then(|| ValueError::grammar(text, &allowed));
    }
    // The second item of `a.test:80,443`.
    if text.parse::<u16>().is_ok() && !is_rule(text) {
        let allowed = "a rule for a host, and each port needs one: HOST:80,HOST:443";
        return Some(ValueError::grammar(text, allowed));
    }
    if let Some(host) = host_of_address(text).filter(is_one) {
        return Some(near(
            "a rule for a host, which has no scheme and no path (for requests: METHOD https://HOST/PATH)",
            host,
        ));
    }
    if let Some(server) = server_of_address(text).filter(is_one) {
        return Some(near(
            "a rule for a server: its host, and its port if that is not 443",
            server,
        ));
    }
    let below = text.trim_start_matches('*').trim_start_matches('.');
    let wildcard = Some(format!("*.{below}"));
    if below != text
        && let Some(rule) = wildcard.filter(|rule| rule != text).filter(is_one)
    {
        return Some(near(
            "a rule for all names below one, which begins with *.",
            rule,
        ));
    }
    let (host, name) = text.rsplit_once(':')?;
    let (_, port) = PORTS.into_iter().find(|(known, _)| *known == name)?;
    let rule = Some(format!("{host}{port}")).filter(is_one)?;
    Some(near("a rule for a host, whose port is a number", rule))
}

/// Methods that people write in small letters.
const METHODS: [&str; 8] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "WEBSOCKET",
];

/// The rule for requests that `get https://HOST/` and `GET, POST https://HOST/` mean.
fn request_rule(text: &str, words: &[&str]) -> Option<String> {
    let (address, methods) = words.split_last()?;
    // More words are no list of methods.
    if methods.is_empty() || methods.len() > 2 * METHODS.len() {
        return None;
    }
    let methods = methods.iter().flat_map(|word| word.split(','));
    let methods: Vec<String> = methods
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_uppercase)
        .collect();
    let known = methods
        .iter()
        .all(|word| METHODS.contains(&word.as_str()) || text.contains(word.as_str()));
    let rule = format!("{} {address}", methods.join(","));
    (known && rule != text).then_some(rule)
}

/// Schemes of addresses that people paste, and the port of each as a rule has it.
const SCHEMES: [(&str, &str); 9] = [
    ("ssh", ":22"),
    ("wss", ""),
    ("ws", ":80"),
    ("git", ":9418"),
    ("postgres", ":5432"),
    ("postgresql", ":5432"),
    ("mysql", ":3306"),
    ("redis", ":6379"),
    ("mongodb", ":27017"),
];

/// The rule for a server whose address has a login or one of [`SCHEMES`]: a git remote, the variable DATABASE_URL. Nothing of
/// the login is in it.
fn server_of_address(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (rest, usual) = match lower.split_once("://") {
        Some((scheme, rest)) => (rest, SCHEMES.iter().find(|(known, _)| *known == scheme)?.1),
        // As scp(1) takes it.
        None => {
            let (before, _) = lower.split_once(':')?;
            (before.contains('@').then_some(before)?, ":22")
        }
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let server = authority
        .rsplit_once('@')
        .map_or(authority, |(_, server)| server);
    Some(match server.contains(':') {
        true => server.to_owned(),
        false => format!("{server}{usual}"),
    })
}

/// The host of a pasted address, as a rule. Of texts without a scheme, only one with a path is an address.
fn host_of_address(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (rest, usual) = match (
        lower.strip_prefix("https://"),
        lower.strip_prefix("http://"),
    ) {
        (Some(rest), _) => (rest, ""),
        (None, Some(rest)) => (rest, ":80"),
        // An address with a wrong number of bits is no name with a path.
        (None, None) => {
            let (host, _) = lower.split_once('/')?;
            let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
            ((!is_address).then_some(host)?, "")
        }
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (host, None),
    };
    Some(match port {
        Some("443") => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
        None => format!("{host}{usual}"),
    })
}

#[cfg(test)]
mod tests {
    use crate::rules::{EgressRule, RuleItem};

    #[test]
    fn a_near_miss_is_refused_and_the_rule_is_named() {
        for (text, meant) in [
            ("https://files.example.test/", "files.example.test"),
            ("HTTPS://Files.example.test", "files.example.test"),
            ("https://a.test:443/x?y#z", "a.test"),
            ("https://a.test:8443", "a.test:8443"),
            ("http://a.test/x", "a.test:80"),
            ("http://a.test:8080", "a.test:8080"),
            ("https://[2001:db8::1]/", "[2001:db8::1]"),
            ("http://[2001:db8::1]/", "[2001:db8::1]:80"),
            ("https://*.a.test/", "*.a.test"),
            ("a.test/", "a.test"),
            ("a.test/v1/chat", "a.test"),
            ("a.test:8443/v1", "a.test:8443"),
            ("a.test:https", "a.test"),
            ("a.test:http", "a.test:80"),
            ("a.test:ssh", "a.test:22"),
            ("GET, POST https://a.test/", "GET,POST https://a.test/"),
            (
                "GET POST https://a.test/x/**",
                "GET,POST https://a.test/x/**",
            ),
            ("GET , POST http://a.test/", "GET,POST http://a.test/"),
            ("get https://a.test/", "GET https://a.test/"),
            ("Get,head https://a.test/", "GET,HEAD https://a.test/"),
            ("MKCOL, get https://a.test/", "MKCOL,GET https://a.test/"),
            ("ssh://git@a.test/me/x.git", "a.test:22"),
            ("git@a.test:me/x.git", "a.test:22"),
            ("postgres://me:word@db.a.test/app", "db.a.test:5432"),
            ("mysql://me@db.a.test:3307/app?x", "db.a.test:3307"),
            ("wss://a.test/socket", "a.test"),
            (".a.test", "*.a.test"),
            ("*a.test", "*.a.test"),
        ] {
            for error in [
                text.parse::<RuleItem>().unwrap_err(),
                text.parse::<EgressRule>().unwrap_err(),
            ] {
                assert_eq!(error.suggestion.as_deref(), Some(meant), "{text}: {error}");
            }
            assert!(meant.parse::<RuleItem>().is_ok(), "{meant}");
        }
        for text in [
            "a.test b.test",
            "a.test  *.b.test:80 10.0.0.0/8",
            "@github a.test",
            "a.test @github",
        ] {
            let error = text.parse::<RuleItem>().unwrap_err().to_string();
            let number = text.split_whitespace().count();
            assert!(
                error.contains(&format!("is not one rule but {number}: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn no_wider_rule_and_no_other_text_is_suggested() {
        for text in [
            "https://*/",
            "https://user@a.test/",
            "https://user:word@a.test/",
            "https://",
            "https:///x",
            "https://a.test:0/",
            "https://https://a.test/",
            "https://a.test:53/",
            "ftp://a.test/",
            "*/",
            "*:https",
            "/x",
            "10.0.0.0/40",
            "10.0.0.1/8",
            "2001:db8::/200",
            "[2001:db8::]/8",
            "a.test:smtp",
            ":https",
            "a.test * b.test",
            "GET a.test",
            "docs https://a.test/",
            "mkcol https://a.test/",
            ", https://a.test/",
            "* , GET https://a.test/",
            "connect https://a.test/",
            "get ftp://a.test/",
            "get https://a.test/x?y",
            "a.test nowhere:0",
        ] {
            let error = text.parse::<RuleItem>().unwrap_err();
            let said = error.to_string();
            assert!(
                error.suggestion.is_none() && !said.contains("one rule but"),
                "{said}"
            );
        }
        let port = "443".parse::<RuleItem>().unwrap_err().to_string();
        assert!(port.contains("HOST:80,HOST:443"), "{port}");
        let long = "https://".repeat(8_000);
        assert!(long.parse::<RuleItem>().is_err());
        let long = "a.test ".repeat(8_000);
        assert!(long.parse::<RuleItem>().unwrap_err().to_string().len() < 400);
    }
}
