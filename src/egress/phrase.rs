//! The reason of a refusal in the one line that clients show: HTTP's status line. curl, pip, wget, Python's urllib and Node
//! print it where they leave the body of an answer to CONNECT unread.

/// The longest that is said there, in bytes.
const LONGEST: usize = 200;

/// The phrase of a status line: who refuses, what, and why. Printable ASCII on one line, whatever the reason repeats of what a
/// client said.
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

/// The explanation of a refusal, which is JSON, as one sentence.
pub fn in_words(explanation: &str) -> Option<String> {
    let data: serde_json::Value = serde_json::from_str(explanation).ok()?;
    let say = |field: &str| data.get(field).and_then(serde_json::Value::as_str);
    let mut text = format!("agentbox: {}", say("reason")?);
    if let Some(more) = say("how_to_ask") {
        text += "; ";
        text += more;
    }
    Some(text)
}

/// Whether the first bytes of a connection begin a request of HTTP, so that an answer in HTTP is understood.
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

    /// what an agent repeats to its person is the reason.
    #[test]
    fn says_who_what_and_why_on_one_line() {
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
    fn nothing_that_a_client_said_makes_another_line() {
        let forged = phrase(Some("a:1"), "x\r\nSet-Cookie: a=b\u{7f}\u{1b}[2Jé");
        assert_eq!(forged, "agentbox: a:1: x??Set-Cookie: a=b??[2J?");
        let long = phrase(Some(&"a".repeat(300)), "why");
        assert!(long.len() == LONGEST && long.ends_with("..."), "{long}");
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
