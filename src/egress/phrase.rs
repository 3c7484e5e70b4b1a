//! The reason of a refusal in HTTP's status line, which clients show. curl, pip, wget, Python's urllib and Node print
//! it, but do not read the body of an answer to CONNECT. And the explanation in that body, for clients that read it.

use serde::{Deserialize, Serialize};

/// The longest phrase, in bytes.
const LONGEST: usize = 200;

/// The phrase of a status line: who refuses, what, and why. Printable ASCII on one line, whatever client text the
/// reason repeats.
pub fn phrase(endpoint: Option<&str>, reason: &str) -> String {
    let text = match endpoint {
        Some(endpoint) => format!("agentbox: {endpoint}: {reason}"),
        None => format!("agentbox: {reason}"),
    };
    let printable = |c: char| match c {
        ' '..='~' => c,
        _ => '?',
    };
    let mut line: String = text.chars().map(printable).take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.truncate(LONGEST - 3);
        line.push_str("...");
    }
    line
}

/// A refusal for an agent: JSON for programs, and one sentence for clients that show only text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusalExplanation {
    /// Who caused it.
    pub error: RefusalOrigin,
    /// The host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Why.
    pub reason: String,
    /// The rule that would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_rule: Option<String>,
    /// What an agent can tell its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how_to_ask: Option<String>,
}

/// The cause of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalOrigin {
    /// The policy denied it.
    #[serde(rename = "denied by agentbox's network wall")]
    Wall,
    /// The policy allowed it, but the host was not reached.
    #[serde(rename = "allowed by agentbox, but not reached")]
    Network,
}

impl RefusalExplanation {
    /// A denial without a host.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            error: RefusalOrigin::Wall,
            host: None,
            port: None,
            reason: reason.into(),
            missing_rule: None,
            how_to_ask: None,
        }
    }

    /// JSON on one line.
    pub fn json(&self) -> Vec<u8> {
        let mut body = serde_json::to_vec(self).unwrap_or_default();
        body.push(b'\n');
        body
    }

    /// One sentence.
    pub fn sentence(&self) -> String {
        let reason = &self.reason;
        match &self.how_to_ask {
            Some(how) => format!("agentbox: {reason}; {how}"),
            None => format!("agentbox: {reason}"),
        }
    }
}

/// Whether the first bytes of a connection begin an HTTP request, so that the client understands an HTTP answer.
pub fn speaks_http(bytes: &[u8]) -> bool {
    const METHODS: [&[u8]; 9] = [
        b"GET ",
        b"HEAD ",
        b"POST ",
        b"PUT ",
        b"DELETE ",
        b"OPTIONS ",
        b"PATCH ",
        b"CONNECT ",
        b"PROPFIND ",
    ];
    METHODS.iter().any(|method| bytes.starts_with(method))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent repeats the reason to its user.
    #[test]
    fn a_phrase_has_the_source_the_host_and_the_reason_on_one_line() {
        assert_eq!(
            phrase(
                Some("files.example.org:443"),
                "no rule in network.allow matches it"
            ),
            "agentbox: files.example.org:443: no rule in network.allow matches it"
        );
        assert_eq!(phrase(None, "no request"), "agentbox: no request");
    }

    #[test]
    fn client_text_makes_no_second_line() {
        let forged = phrase(Some("a:1"), "x\r\nSet-Cookie: a=b\u{7f}\u{1b}[2Jé");
        assert_eq!(forged, "agentbox: a:1: x??Set-Cookie: a=b??[2J?");
        let long = phrase(Some(&"a".repeat(300)), "why");
        assert!(long.len() == LONGEST && long.ends_with("..."), "{long}");
    }

    /// Agents and scripts read these fields.
    #[test]
    fn an_explanation_is_json_and_a_sentence() {
        let explanation = RefusalExplanation {
            host: Some("a.test".to_owned()),
            port: Some(443),
            how_to_ask: Some("ask".to_owned()),
            ..RefusalExplanation::new("no rule")
        };
        let json = String::from_utf8(explanation.json()).unwrap();
        assert_eq!(
            json,
            "{\"error\":\"denied by agentbox's network wall\",\"host\":\"a.test\",\"port\":443,\"reason\":\"no rule\",\
             \"how_to_ask\":\"ask\"}\n"
        );
        let again: RefusalExplanation = serde_json::from_str(&json).unwrap();
        assert_eq!(again, explanation);
        assert_eq!(explanation.sentence(), "agentbox: no rule; ask");
        assert_eq!(RefusalExplanation::new("no").sentence(), "agentbox: no");
    }

    #[test]
    fn knows_http_by_its_methods() {
        assert!(speaks_http(b"GET / HTTP/1.1\r\n"));
        for other in [
            &b""[..],
            b"GE",
            b"\x16\x03\x01",
            b"SSH-2.0-x",
            b"get / HTTP/1.1",
        ] {
            assert!(!speaks_http(other), "{other:?}");
        }
    }
}
