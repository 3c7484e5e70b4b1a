//! Fields of a head that is read in one place and written anew for another: what stays behind, and what is refused.

/// Fields that belong to one connection (RFC 9110, section 7.6.1), besides those that `Connection` names, and those that the
/// writer sets itself.
const STAY_BEHIND: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields by which servers take another method, path or host than the request's line says. An underscore counts as a hyphen:
/// to a CGI program it is (RFC 3875, section 4.1.18).
///
/// `Destination` is the second path of COPY and MOVE (RFC 4918, section 10.3).
const OVERRIDES: [&str; 15] = [
    "destination",
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-server",
    "x-forwarded-uri",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Whether a field is not passed on as it came.
pub fn stays_behind(name: &str) -> bool {
    STAY_BEHIND
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a field may make another request of this one.
pub fn overrides(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    OVERRIDES.contains(&name.as_str()) || name.starts_with("x-original-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_makes_another_request_in_every_spelling() {
        for name in [
            "X-HTTP-Method-Override",
            "Destination",
            "x_http_method_override",
            "X-Method-Override",
            "X-HTTP-Method",
            "X-Original-URL",
            "X-Original-Host",
            "X_Rewrite_Url",
            "X-Forwarded-Host",
            "Forwarded",
        ] {
            assert!(overrides(name), "{name}");
        }
        for name in [
            "accept",
            "authorization",
            "x-forwarded-for",
            "x-api-key",
            "origin",
        ] {
            assert!(!overrides(name) && !stays_behind(name), "{name}");
        }
        assert!(stays_behind("Transfer-Encoding") && stays_behind("EXPECT"));
    }
}
