//! PURE. Service account tokens, recognised by form: a kubelet gives them any name, in volumes with other files.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::facts::TokenContent;

/// The names of the files that Kubernetes puts beside a token, in every container that does not refuse it.
const BESIDE: [&str; 3] = ["ca.crt", "service-ca.crt", "namespace"];

/// The content of files with these names and bytes. A name is the last component.
pub fn judge<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> TokenContent {
    let (mut token, mut more) = (false, false);
    for (name, content) in files {
        match has_token(content) {
            true => {
                token = true;
                more |= !is_one_word(content);
            }
            false => more |= !is_beside(name, content),
        }
    }
    match (token, more) {
        (false, _) => TokenContent::NoToken,
        (true, false) => TokenContent::TokenAlone,
        (true, true) => TokenContent::TokenAndMore,
    }
}

/// The certificates of the cluster, or the name of the pod's namespace (a DNS label).
fn is_beside(name: &str, content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content);
    let label = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    BESIDE.contains(&name)
        && match name {
            "namespace" => text.len() <= 63 && text.bytes().all(label),
            _ => !text.contains("PRIVATE KEY"),
        }
}

fn is_one_word(content: &[u8]) -> bool {
    content.trim_ascii().iter().copied().all(is_of_word)
}

/// A character of a JSON Web Token: base64url, and the dots between its parts (RFC 7519).
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Whether a file contains a service account token anywhere, for example in a kubeconfig, or in base64 as in the
/// password of a registry.
pub fn has_token(content: &[u8]) -> bool {
    // In case a program broke the base64 into lines.
    let whole: Vec<u8> = content
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    let mut words = content
        .split(|b| !is_of_base64(*b))
        .chain([whole.as_slice()]);
    is_in(content)
        || words.any(|word| {
            let text = word.trim_ascii_end();
            let text = text.strip_suffix(b"=").unwrap_or(text);
            let text = text.strip_suffix(b"=").unwrap_or(text);
            text.len() >= SHORTEST && decode(text).is_some_and(|decoded| is_in(&decoded))
        })
}

/// The shortest text to decode in search of a token, bytes: every token is longer, by its claims.
const SHORTEST: usize = 40;

/// A character of base64 and of base64url (RFC 4648), or padding.
fn is_of_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

fn is_in(content: &[u8]) -> bool {
    let mut words = content.split(|b| !is_of_word(*b));
    words.any(|word| {
        let parts: Vec<&[u8]> = word.split(|b| *b == b'.').collect();
        // A header, claims, a signature. Text before a token without a blank counts as its header here.
        parts.windows(3).any(|three| is_ours(three[1]))
    })
}

/// Whether these are the claims of a service account. Claims of another kind of subject are not; unreadable claims
/// count as such.
fn is_ours(claims: &[u8]) -> bool {
    // Claims are a JSON object, and `{"` is `eyJ`.
    if !claims.starts_with(b"eyJ") {
        return false;
    }
    let Some(json) = decode(claims) else {
        return true;
    };
    // Values stay text: a pod's author wrote them, and serde_json parses some objects again without a depth limit.
    let Ok(claims) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(&json) else {
        return true;
    };
    let subject = claims.get("sub");
    let subject = subject.and_then(|sub| serde_json::from_str::<String>(sub.get()).ok());
    subject.is_some_and(|sub| sub.starts_with("system:"))
        || claims.keys().any(|key| key.contains("kubernetes.io"))
}

/// base64 and base64url without padding (RFC 4648, sections 4 and 5).
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let value = |byte: u8| {
        Some(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        })
    };
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut have) = (0_u32, 0);
    for byte in text {
        bits = (bits << 6 | u32::from(value(*byte)?)) & 0xff_ffff;
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push(u8::try_from(bits >> have & 0xff).ok()?);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// base64url without padding.
    fn encode(bytes: &[u8]) -> String {
        const CODE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits: Vec<u8> = bytes
            .iter()
            .flat_map(|b| (0..8).rev().map(move |i| b >> i & 1))
            .collect();
        let six = |six: &[u8]| {
            let value = (0..6).fold(0, |v, i| v << 1 | six.get(i).copied().unwrap_or(0));
            char::from(CODE[usize::from(value)])
        };
        bits.chunks(6).map(six).collect()
    }

    /// `{"alg":"RS256"}` and claims, as a token.
    fn token(claims: &str) -> Vec<u8> {
        let (head, claims) = (encode(br#"{"alg":"RS256"}"#), encode(claims.as_bytes()));
        format!("{head}.{claims}.c2lnbmF0dXJl").into_bytes()
    }

    fn accounts() -> Vec<u8> {
        token(r#"{"aud":["x"],"sub":"system:serviceaccount:default:default"}"#)
    }

    #[test]
    fn a_service_account_token_is_found_anywhere() {
        let own = accounts();
        let legacy = token(r#"{"kubernetes.io/serviceaccount/namespace":"default"}"#);
        for found in [&own, &legacy] {
            assert!(has_token(found));
            let kubeconfig = [b"users:\n- token: \"", &found[..], b"\"\n"].concat();
            assert!(has_token(&kubeconfig));
            assert!(has_token(&[b"x.", &found[..]].concat()));
            assert!(has_token(&[b"Bearer_", &found[..]].concat()));
        }
        // Unreadable claims count as a token.
        assert!(has_token(b"eyJhbGciOiJub25lIn0.eyJub3QganNvbg.x"));
        for other in [
            token(r#"{"sub":"1234567890","name":"a key of some service"}"#),
            b"eyJhbGciOiJub25lIn0".to_vec(),
            b"eyJhbGciOiJub25lIn0.cGxhaW4.x".to_vec(),
            b"sk-0123456789".to_vec(),
            Vec::new(),
        ] {
            assert!(!has_token(&other), "{}", String::from_utf8_lossy(&other));
        }
    }

    /// L1: the password of a registry, in Docker's format; and the output of `base64`.
    #[test]
    fn a_token_in_base64_is_found() {
        let login = [b"sa:", &accounts()[..]].concat();
        let standard = encode(&login).replace('-', "+").replace('_', "/");
        let padded = format!("{standard}{}", "=".repeat((4 - standard.len() % 4) % 4));
        for text in [&standard, &padded, &encode(&login)] {
            let config = format!(r#"{{"auths":{{"r.example.test":{{"auth":"{text}"}}}}}}"#);
            assert!(has_token(config.as_bytes()), "{config}");
            assert_eq!(
                judge([(".dockerconfigjson", config.as_bytes())]),
                TokenContent::TokenAndMore
            );
        }
        let lines: Vec<&str> = padded
            .as_bytes()
            .chunks(76)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        assert!(has_token(format!("{}\n", lines.join("\n")).as_bytes()));
        for other in ["user:a password that is long enough to be decoded", "x"] {
            let text = format!(r#"{{"auth":"{}"}}"#, encode(other.as_bytes()));
            assert!(!has_token(text.as_bytes()));
        }
    }

    #[test]
    fn files_that_kubernetes_puts_beside_a_token_do_not_count_as_more() {
        let own = accounts();
        let pem: &[u8] = b"-----BEGIN CERTIFICATE-----\n";
        let usual = [
            ("token", &own[..]),
            ("ca.crt", pem),
            ("namespace", b"default"),
        ];
        assert_eq!(judge(usual), TokenContent::TokenAlone);
        assert_eq!(judge([("vault", &own[..])]), TokenContent::TokenAlone);
        for more in [
            ("password", &b"x"[..]),
            ("namespace", b"Not a name"),
            ("ca.crt", b"-----BEGIN PRIVATE KEY-----"),
        ] {
            assert_eq!(
                judge([usual[0], more]),
                TokenContent::TokenAndMore,
                "{more:?}"
            );
        }
        let config = [b"token: ", &own[..]].concat();
        assert_eq!(judge([("config", &config[..])]), TokenContent::TokenAndMore);
        assert_eq!(judge([usual[1], ("password", b"x")]), TokenContent::NoToken);
        assert_eq!(judge([]), TokenContent::NoToken);
    }
}
