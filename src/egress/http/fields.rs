//! Header fields when a head is written anew for another connection: which are dropped, and which are sent on.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::data::table;
use crate::rules::request::FieldPattern;

/// Fields of a single connection (RFC 9110, section 7.6.1), besides those that `Connection` names, and fields that the
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

/// Whether a field is not sent on unchanged.
pub fn stays_behind(name: &str) -> bool {
    STAY_BEHIND
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// `policies/request-fields.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    group: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// For readers of the file.
    #[serde(rename = "of")]
    _of: String,
    names: Vec<FieldPattern>,
}

static BUILTIN: LazyLock<Vec<FieldPattern>> = LazyLock::new(|| {
    let file: File = table!("request-fields")
        .read()
        .expect("a test parses the built-in list");
    let groups = file.group.into_iter();
    groups.flat_map(|group| group.names).collect()
});

/// The request fields that are sent on. It is an allowlist, because a list of the fields by which some server takes
/// another method, path or host would never be complete.
#[derive(Debug)]
pub struct KnownFields {
    own: BTreeSet<FieldPattern>,
}

impl KnownFields {
    /// The fields of `policies/request-fields.toml`, and these.
    pub fn new(own: BTreeSet<FieldPattern>) -> Self {
        // Parse now: later, the reader can do nothing but handle requests.
        LazyLock::force(&BUILTIN);
        Self { own }
    }

    /// Whether the field of this name is sent on.
    pub fn has(&self, name: &str) -> bool {
        let mut all = BUILTIN.iter().chain(&self.own);
        all.any(|pattern| pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found in reviews: with some, a server was seen to take another request; with others, servers are said to.
    #[test]
    fn n39_what_makes_another_request_is_no_known_field() {
        let known = KnownFields::new(BTreeSet::new());
        for name in [
            "X-HTTP-Method-Override",
            "x_http_method_override",
            "X.HTTP.Method.Override",
            "X-Method-Override",
            "Destination",
            "X-Original-URL",
            "X.Original.URL",
            "X_Rewrite_Url",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "Forwarded",
            // gunicorn, and proxies in front of it.
            "SCRIPT_NAME",
            "SCRIPT-NAME",
            "PATH_INFO",
            "X-Script-Name",
            "X-Forwarded-Context",
            "X-ProxyContextPath",
            "X-Ingress-Path",
            "X-Envoy-Original-Path",
            "Base-Url",
            "Request-Uri",
            "X-Accel-Mapping",
            "X-Sendfile-Type",
            // Gemstash fetches from the host that it names.
            "X-Gemfile-Source",
            // Object stores.
            "x-amz-copy-source",
            "x-amz-copy-source-range",
            "x-goog-copy-source",
            "x-ms-copy-source",
            "x-ms-rename-source",
            "x-copy-from",
            "x-amz-target",
            "x-amz-acl",
            // Framing, and names that some servers read as others.
            "Transfer_Encoding",
            "Content_Length",
            "Host_",
            "Mcp.Name",
            "Request.Range",
            "X.Api.Key",
            "anthropic-beta.x",
            "x-stainless-a_b",
            // Fields that tell servers and gateways where to go.
            "x-opencode-directory",
            "Helicone-Target-Url",
            "x-portkey-custom-host",
            "",
        ] {
            assert!(!known.has(name), "{name}");
        }
    }

    /// Fields that agents and their tools send. `session_id`, `chatgpt-account-id`, `pacote-*` and `x-gemini-*` were
    /// found in public sources.
    #[test]
    fn fields_that_agents_send_are_known() {
        let known = KnownFields::new(["x-acme-*".parse().unwrap()].into());
        for name in [
            "accept",
            "authorization",
            "content-type",
            "user-agent",
            "anthropic-beta",
            "anthropic-dangerous-direct-browser-access",
            "anthropic-version",
            "x-app",
            "x-api-key",
            "x-stainless-retry-count",
            "x-claude-code-session-id",
            "session_id",
            "conversation_id",
            "originator",
            "chatgpt-account-id",
            "openai-beta",
            "version",
            "x-codex-turn-metadata",
            "x-goog-api-client",
            "x-goog-api-key",
            "http-referer",
            "x-title",
            "x-initiator",
            "x-opencode-session",
            "x-gemini-api-privileged-user-id",
            "copilot-integration-id",
            "git-protocol",
            "npm-command",
            "pacote-version",
            "x-github-api-version",
            "graphql-features",
            "time-zone",
            "traceparent",
            "mcp-session-id",
            "last-event-id",
            "sec-websocket-key",
            "x-amz-date",
            "amz-sdk-request",
            "x-acme-one",
        ] {
            assert!(known.has(name), "{name}");
        }
    }

    #[test]
    fn fields_of_a_single_connection_are_dropped() {
        for name in ["accept", "authorization", "x-api-key", "origin"] {
            assert!(!stays_behind(name), "{name}");
        }
        assert!(stays_behind("Transfer-Encoding") && stays_behind("EXPECT"));
    }
}
