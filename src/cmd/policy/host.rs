//! The host of `policy check --host`.

use crate::rules::{EgressRule, Host, NetworkRule, RuleTarget};
use crate::text::ValueError;

/// A typed host. The error of an address of a browser, or of a host with its port, has the options to type.
pub fn typed(text: &str) -> Result<Host, ValueError> {
    text.parse().map_err(|error: ValueError| ValueError {
        suggestion: suggested_rule(text),
        ..error
    })
}

fn suggested_rule(text: &str) -> Option<String> {
    let rule: NetworkRule = match text.parse::<EgressRule>() {
        Ok(rule) => rule.connection()?.clone(),
        Err(error) => error.suggestion?.parse().ok()?,
    };
    let host = match (rule.target.one_address(), rule.target) {
        (Some(address), _) => address.to_string(),
        (None, RuleTarget::Name(name)) => name.to_string(),
        (None, _) => return None,
    };
    Some(match rule.port {
        Some(port) => format!("--host {host} --port {port}"),
        None => format!("--host {host}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_browser_is_refused_with_the_host_in_it() {
        for (text, options) in [
            ("https://github.com/a", "--host github.com"),
            ("github.com/a", "--host github.com"),
            ("http://a.test:8080/", "--host a.test --port 8080"),
            ("a.test:22", "--host a.test --port 22"),
            ("https://[2001:db8::1]/", "--host 2001:db8::1"),
        ] {
            let error = typed(text).unwrap_err();
            assert_eq!(error.suggestion.as_deref(), Some(options), "{text}");
        }
        for text in ["*.a.test", "https://*/", "GET https://a.test/", "a b", ""] {
            assert_eq!(typed(text).unwrap_err().suggestion, None, "{text}");
        }
        assert!(typed("github.com").is_ok() && typed("2001:db8::1").is_ok());
    }
}
