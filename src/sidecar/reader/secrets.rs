//! Secrets of the node and of users: added to requests, and overwritten in answers.
//!
//! The container has only placeholders. A placeholder is valid in one field of some requests. Anywhere else in a head
//! it is a mistake or an attack, and the request is refused. A host's answer is [searched](super::redaction).

use std::fmt;

use data_encoding::BASE64;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::redaction::{RedactedBody, redact_fields};
use crate::egress::forms::{ValueForms, find, percent_encoded};
use crate::policy::{NodeSecret, SecretPlace};
use crate::rules::request::Request;
use crate::text::percent_decoded;

/// The shortest secret, in bytes: a shorter one is in many answers by chance.
pub const SHORTEST: usize = 8;

/// A secret and its value, which is wiped on drop.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadSecret {
    /// Its entry in the node's file, or in the user's settings.
    pub secret: NodeSecret,
    /// The value: visible ASCII, at least [`SHORTEST`] bytes.
    pub value: String,
}

impl Drop for ReadSecret {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

impl fmt::Debug for ReadSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadSecret({})", self.secret.name)
    }
}

/// All secrets of a container.
pub(super) struct Secrets {
    all: Vec<ReadSecret>,
    /// The forms of all values.
    forms: ValueForms,
}

impl Secrets {
    pub fn new(all: Vec<ReadSecret>) -> Self {
        let forms = ValueForms::of(all.iter().map(|secret| secret.value.as_bytes()));
        Self { all, forms }
    }

    /// Adds the secrets of this request, in place of the container's own values. Returns what to do with the answer, or
    /// why the request is refused: a placeholder is in the wrong place.
    pub fn put(
        &self,
        request: &Request,
        query: &mut Option<String>,
        headers: &mut HeaderMap,
    ) -> Result<Answers, String> {
        if self.all.is_empty() {
            return Ok(Answers::AsTheyCome);
        }
        let is_for = |secret: &&ReadSecret| {
            let mut rules = secret.secret.requests.iter();
            rules.any(|rule| rule.allows(request))
        };
        let (mut fields, mut parameters) = (Vec::new(), Vec::new());
        for ReadSecret { secret, value } in self.all.iter().filter(is_for) {
            match &secret.place {
                SecretPlace::Query(name) => {
                    check_query(query.as_deref().unwrap_or_default())?;
                    *query = query
                        .as_deref()
                        .and_then(|query| without(query, name.as_str()));
                    parameters.push(format!("{name}={}", percent_encoded(value)));
                }
                SecretPlace::Header(_) | SecretPlace::Basic(_) => {
                    let (name, value) = field(&secret.place, value)
                        .ok_or_else(|| format!("secret {} cannot be sent", secret.name))?;
                    fields.push((name, value));
                }
            }
        }
        if request.method.is_websocket() {
            self.check_websocket(request)?;
        }
        if !(fields.is_empty() && parameters.is_empty()) {
            without_own(headers, &fields);
        }
        self.check(request, query.as_deref(), headers)?;
        headers.extend(fields);
        // In front: many servers take the first of two parameters with one meaning.
        parameters.extend(query.take());
        *query = (!parameters.is_empty()).then(|| parameters.join("&"));
        if !self.knows(request) {
            return Ok(Answers::AsTheyCome);
        }
        // A secret could not be found in a compressed answer, or in ranges that the container chooses.
        without_forms(headers);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Ok(Answers::Cleaned)
    }

    /// Whether a secret goes into the field of this name.
    pub fn have(&self, name: &HeaderName) -> bool {
        let mut places = self.all.iter().map(|secret| &secret.secret.place);
        places.any(|place| {
            let field = place
                .field()
                .and_then(|field| HeaderName::try_from(field).ok());
            field.as_ref() == Some(name)
        })
    }

    /// Whether this request's host gets a secret: it could return it to any other request.
    fn knows(&self, request: &Request) -> bool {
        let mut rules = self.all.iter().flat_map(|secret| &secret.secret.requests);
        rules.any(|rule| rule.names(&request.host))
    }

    /// WebSocket traffic is not searched. So a host that gets any secret may have a WebSocket only if the node's file
    /// allows it for that secret: the handshake must be among its requests.
    fn check_websocket(&self, request: &Request) -> Result<(), String> {
        let is_open = |secret: &NodeSecret| {
            let rules = &secret.requests;
            rules.iter().any(|rule| rule.names(&request.host))
                && !rules.iter().any(|rule| rule.allows(request))
        };
        let mut secrets = self.all.iter().map(|secret| &secret.secret);
        match secrets.find(|secret| is_open(secret)) {
            None => Ok(()),
            Some(secret) => Err(format!(
                "its host gets the secret {}, which a WebSocket's unread answers may contain: WEBSOCKET among the \
                 requests of its [[secret]] permits that",
                secret.name
            )),
        }
    }

    fn check(
        &self,
        request: &Request,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<(), String> {
        let path = request.path.to_string();
        for ReadSecret { secret, .. } in &self.all {
            let placeholder = secret.placeholder();
            let is_in = |bytes: &[u8]| find(bytes, placeholder.as_bytes()).is_some();
            let place = match headers.iter().find(|(_, value)| is_in(value.as_bytes())) {
                Some((name, _)) => Some(name.as_str()),
                None if is_in(path.as_bytes()) => Some("path"),
                None if query.is_some_and(|query| is_in(query.as_bytes())) => Some("query"),
                None => None,
            };
            if let Some(place) = place {
                let requests: Vec<String> =
                    secret.requests.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "the placeholder of secret {} was sent in the {place}; it is valid only in {} of {}",
                    secret.name,
                    secret.place,
                    requests.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Overwrites the secrets in the head of an answer; an error if its body cannot be searched.
    pub fn clean(&self, headers: &mut HeaderMap) -> Result<(), &'static str> {
        let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
        if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
            return Err(
                "its answer is compressed although plain text was requested, so it cannot be checked for secrets",
            );
        }
        redact_fields(headers, &self.forms);
        Ok(())
    }

    /// The body of an answer, with the secrets overwritten.
    pub fn cleaned(&self, body: Incoming) -> RedactedBody {
        RedactedBody::new(body, self.forms.clone())
    }
}

/// How to treat the answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// Unchanged: its host knows no secret.
    AsTheyCome,
    /// Secrets are overwritten.
    Cleaned,
}

/// Fields that choose the form of an answer, or a part of it. They are those of RFC 9110, of RFC 3229 (`A-IM`, which
/// has ranges too), and further names for ranges in Apache's httpd and Azure's storage.
const FORMS: [&str; 7] = [
    "a-im",
    "accept-charset",
    "accept-encoding",
    "if-range",
    "range",
    "request-range",
    "x-ms-range",
];

/// Removes the fields that choose the form of an answer.
fn without_forms(headers: &mut HeaderMap) {
    without_fields(headers, |spelled| FORMS.contains(&spelled));
}

/// Removes fields by their names. An underscore counts as a hyphen, as for some servers (RFC 3875, section 4.1.18).
fn without_fields(headers: &mut HeaderMap, is_one: impl Fn(&str) -> bool) {
    let named = headers.keys();
    let named: Vec<HeaderName> = named
        .filter(|name| is_one(&name.as_str().replace('_', "-")))
        .cloned()
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Parts of field names that identify clients. A request with a secret of the node identifies itself only by that.
const CREDENTIALS: [&str; 12] = [
    "access-key",
    "api-key",
    "apikey",
    "application-key",
    "auth",
    "cookie",
    "credential",
    "functions-key",
    "master-key",
    "secret",
    "subscription-key",
    "token",
];

/// Removes the program's own credentials, and other spellings of the fields with secrets.
fn without_own(headers: &mut HeaderMap, fields: &[(HeaderName, HeaderValue)]) {
    without_fields(headers, |spelled| {
        CREDENTIALS.iter().any(|word| spelled.contains(word))
            || fields.iter().any(|(field, _)| field.as_str() == spelled)
    });
}

/// The field for a secret, and its value.
fn field(place: &SecretPlace, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let text = Zeroizing::new(match place {
        SecretPlace::Header(header) => header.value(value),
        SecretPlace::Basic(user) => {
            let both = Zeroizing::new(format!("{user}:{value}"));
            format!("Basic {}", BASE64.encode(both.as_bytes()))
        }
        SecretPlace::Query(_) => return None,
    });
    let name = HeaderName::try_from(place.field()?).ok()?;
    let mut value = HeaderValue::try_from(text.as_str()).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// Why a query may not get a secret parameter: some servers would read another parameter in it.
fn check_query(query: &str) -> Result<(), String> {
    let two = [
        (
            ";",
            "a ';', behind which some servers read another parameter",
        ),
        ("%u", "a '%u', by which some servers spell letters (IIS)"),
    ];
    let query = query.to_ascii_lowercase();
    match two.iter().find(|(text, _)| query.contains(text)) {
        Some((_, why)) => Err(format!("its query has {why}")),
        None => Ok(()),
    }
}

/// A query without this parameter, in any spelling of its name, also as a list (`name[]`); `None` if nothing is left.
fn without(query: &str, name: &str) -> Option<String> {
    let is_it = |pair: &&str| {
        let spelled = pair.split('=').next().unwrap_or_default();
        let spelled = percent_decoded(spelled);
        let alone = spelled.split(|byte| *byte == b'[').next();
        let mut readings = [alone.unwrap_or_default(), &spelled[..]].into_iter();
        readings.any(|read| variable(read) == variable(name.as_bytes()))
    };
    let rest: Vec<&str> = query.split('&').filter(|pair| !is_it(pair)).collect();
    (!rest.is_empty()).then(|| rest.join("&"))
}

/// A parameter's name as the laxest servers read it. PHP skips leading spaces, stops at a NUL, and reads a dot, a space
/// or an unclosed bracket as an underscore (its manual, "Variables From External Sources"). Others ignore case.
fn variable(name: &[u8]) -> Vec<u8> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'+');
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let letters = name.iter().skip_while(|byte| is_space(byte));
    let one = |byte: &u8| match byte {
        b' ' | b'+' | b'.' | b'[' => b'_',
        other => other.to_ascii_lowercase(),
    };
    letters.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::request::typed;
    use crate::policy::SecretSource;

    const VALUE: &str = "sk-live-0123456789abcdef";

    fn secrets() -> Secrets {
        let header = "authorization: Bearer {}".parse().unwrap();
        secrets_in(SecretPlace::Header(header), VALUE)
    }

    fn secrets_in(place: SecretPlace, value: &str) -> Secrets {
        let secret = NodeSecret {
            name: "model".parse().unwrap(),
            source: SecretSource::File("/etc/agentbox/model".parse().unwrap()),
            policies: ["agent".parse().unwrap()].into(),
            requests: ["POST https://a.test/v1/**".parse().unwrap()].into(),
            place,
            env: None,
            uses: None,
            until: None,
        };
        let value = value.to_owned();
        Secrets::new(vec![ReadSecret { secret, value }])
    }

    fn put(address: &str, fields: &[(&'static str, &str)]) -> Result<HeaderMap, String> {
        put_of(&secrets(), address, fields).map(|(headers, _)| headers)
    }

    fn put_of(
        secrets: &Secrets,
        address: &str,
        fields: &[(&'static str, &str)],
    ) -> Result<(HeaderMap, Option<String>), String> {
        let asked = typed(address).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let mut query = asked.query;
        secrets.put(&asked.request, &mut query, &mut headers)?;
        Ok((headers, query))
    }

    /// A host could return the secret in frames, which are not searched.
    #[test]
    fn a_host_of_a_secret_has_a_websocket_only_if_the_secret_names_it() {
        let address = "WEBSOCKET https://a.test/v1/socket";
        let error = put(address, &[]).unwrap_err();
        assert!(error.contains("the secret model"), "{error}");
        let mut named = secrets();
        let rules = &mut named.all[0].secret.requests;
        rules.insert("WEBSOCKET https://a.test/v1/socket".parse().unwrap());
        let (headers, _) = put_of(&named, address, &[]).unwrap();
        assert!(headers.contains_key("authorization"));
        assert!(put_of(&named, "WEBSOCKET https://a.test/v1/other", &[]).is_err());
        assert!(put("WEBSOCKET https://b.test/v1/socket", &[]).is_ok());
        // A rule with the method `*` does not name the handshake.
        let mut all = secrets();
        all.all[0].secret.requests = ["* https://a.test/**".parse().unwrap()].into();
        assert!(put_of(&all, address, &[]).is_err());
    }

    #[test]
    fn no_key_of_the_programs_own_goes_beside_a_secret() {
        let address = "POST https://a.test/v1/messages";
        let own = [
            ("x_api_key", "mine"),
            ("x-api-key", "mine"),
            ("x-goog-api-key", "mine"),
            ("x-functions-key", "mine"),
            ("dd-application-key", "mine"),
            ("cookie", "session=mine"),
            ("x-api", "kept"),
            ("accept", "kept"),
        ];
        let headers = put(address, &own).unwrap();
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["accept", "accept-encoding", "authorization", "x-api"]
        );
        // Another request to that host keeps the program's own fields.
        let headers = put("GET https://a.test/v1/messages", &own).unwrap();
        assert_eq!(headers["x-api-key"], "mine");
        let key = secrets_in(SecretPlace::Header("x-api-key: {}".parse().unwrap()), VALUE);
        let (headers, _) = put_of(
            &key,
            address,
            &[("x_api_key", "mine"), ("authorization", "Bearer mine")],
        )
        .unwrap();
        assert_eq!(headers["x-api-key"], VALUE);
        assert_eq!(headers.len(), 2, "{headers:?}");
    }

    #[test]
    fn a_secret_can_be_a_password() {
        let secrets = secrets_in(SecretPlace::Basic("x-access-token".parse().unwrap()), VALUE);
        let own = BASE64.encode(b"x:agentbox-secret-model");
        let own = format!("Basic {own}");
        for fields in [&[][..], &[("authorization", &*own)]] {
            let (headers, _) = put_of(&secrets, "POST https://a.test/v1/x", fields).unwrap();
            let all: Vec<_> = headers.get_all("authorization").iter().collect();
            let both = BASE64.encode(format!("x-access-token:{VALUE}").as_bytes());
            assert_eq!(all, [&format!("Basic {both}")]);
            let mut echo = both.into_bytes();
            assert!(super::super::redaction::redact(&mut echo, &secrets.forms));
        }
    }

    #[test]
    fn a_secret_can_be_one_parameter_of_a_query() {
        let value = "a&b=c+d/e#f%25-0123";
        let secrets = secrets_in(SecretPlace::Query("key".parse().unwrap()), value);
        let spelled = "key=a%26b%3Dc%2Bd%2Fe%23f%2525-0123";
        for (query, expected) in [
            ("", spelled.to_owned()),
            ("?key=mine", spelled.to_owned()),
            ("?alt=sse", format!("{spelled}&alt=sse")),
            (
                "?key=agentbox-secret-model&alt=sse&k%65y=mine&key&KEY=mine&key[]=mine&key%5b0%5d=mine",
                format!("{spelled}&alt=sse"),
            ),
            ("?keys=1&akey=2", format!("{spelled}&keys=1&akey=2")),
        ] {
            let address = format!("POST https://a.test/v1/x{query}");
            let (headers, sent) = put_of(&secrets, &address, &[]).unwrap();
            assert_eq!(sent, Some(expected), "{query}");
            assert!(headers.get("authorization").is_none());
        }
        let elsewhere = put_of(
            &secrets,
            "POST https://a.test/v1/x?k=agentbox-secret-model",
            &[],
        );
        assert!(
            elsewhere
                .unwrap_err()
                .contains("the parameter key of the query")
        );
        for (query, why) in [("a=1;key=mine", "';'"), ("%u006bey=mine", "'%u'")] {
            let odd = put_of(&secrets, &format!("POST https://a.test/v1/x?{query}"), &[]);
            assert!(odd.unwrap_err().contains(why), "{query}");
        }
        let (_, other) = put_of(&secrets, "GET https://a.test/v1/x?key=mine", &[]).unwrap();
        assert_eq!(other.as_deref(), Some("key=mine"));
        let mut echo = format!("see {spelled}").into_bytes();
        assert!(super::super::redaction::redact(&mut echo, &secrets.forms));
    }

    /// Names that lax servers such as PHP take for the parameter's.
    #[test]
    fn no_spelling_of_a_parameter_is_beside_the_secret() {
        let secrets = secrets_in(SecretPlace::Query("api_key".parse().unwrap()), VALUE);
        let put = |query: &str| {
            let address = format!("POST https://a.test/v1/x?{query}");
            put_of(&secrets, &address, &[]).unwrap().1.unwrap()
        };
        for name in [
            "api.key",
            "Api+Key",
            "api%20key",
            "api%2ekey",
            "+api_key",
            "%20api_key",
            "api_key%00x",
            "api[key",
            "api.key[]",
        ] {
            assert_eq!(
                put(&format!("{name}=mine&a=1")),
                format!("api_key={VALUE}&a=1")
            );
        }
        for name in ["apikey", "api-key", "api_key2", "my_api_key"] {
            let kept = format!("api_key={VALUE}&{name}=1");
            assert_eq!(put(&format!("{name}=1")), kept);
        }
    }

    #[test]
    fn a_secret_is_put_into_its_own_requests_whatever_the_container_has_there() {
        let address = "POST https://a.test/v1/messages";
        for fields in [
            &[][..],
            &[("authorization", "Bearer agentbox-secret-model")],
            &[
                ("authorization", "Bearer mine"),
                ("authorization", "Bearer more"),
            ],
        ] {
            let headers = put(address, fields).unwrap();
            let all: Vec<_> = headers.get_all("authorization").iter().collect();
            assert_eq!(all, [&format!("Bearer {VALUE}")]);
            assert_eq!(headers[ACCEPT_ENCODING], "identity");
        }
        let chosen = [
            ("range", "bytes=0-3"),
            ("request-range", "bytes=0-3"),
            ("x_ms_range", "bytes=0-3"),
            ("a-im", "range"),
            ("accept-charset", "utf-16"),
            ("accept-encoding", "gzip"),
            ("accept_encoding", "gzip"),
        ];
        for (name, value) in chosen {
            let fields = [
                (name, value),
                ("content-range", "bytes 0-3/4"),
                ("accept", "x"),
            ];
            let headers = put(address, &fields).unwrap();
            // The control: other fields arrive.
            assert!(headers.contains_key("content-range") && headers.contains_key("accept"));
            assert_eq!(headers[ACCEPT_ENCODING], "identity", "{name}");
            assert_eq!(headers.len(), 4, "{name}: {headers:?}");
        }
        for other in ["GET https://a.test/v1/messages", "POST https://b.test/v1/x"] {
            let headers = put(other, &[("authorization", "Bearer mine")]).unwrap();
            assert_eq!(headers["authorization"], "Bearer mine", "{other}");
        }
    }

    #[test]
    fn what_stands_for_a_secret_goes_nowhere_else() {
        for (address, fields) in [
            (
                "GET https://a.test/v1/x",
                &[("authorization", "Bearer agentbox-secret-model")][..],
            ),
            (
                "POST https://b.test/v1/x",
                &[("authorization", "Bearer agentbox-secret-model")],
            ),
            (
                "POST https://a.test/v1/x",
                &[("x-other", "a agentbox-secret-model b")],
            ),
            ("POST https://a.test/v1/x?k=agentbox-secret-model", &[]),
            ("POST https://a.test/v1/agentbox-secret-model", &[]),
        ] {
            let error = put(address, fields).unwrap_err();
            assert!(error.contains("valid only in"), "{address}: {error}");
        }
    }

    #[test]
    fn a_compressed_answer_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", format!("Bearer {VALUE}").parse().unwrap());
        secrets().clean(&mut headers).unwrap();
        assert_eq!(
            headers["x-echo"],
            format!("Bearer {}", "*".repeat(VALUE.len()))
        );
        headers.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        assert!(secrets().clean(&mut headers).is_err());
    }
}
