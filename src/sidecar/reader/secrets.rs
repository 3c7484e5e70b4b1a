//! The node's secrets: put into requests here, and taken out of what comes back.
//!
//! The container has what stands for a secret. It belongs into one field of some requests; anywhere else in a head it is a mistake
//! or an attack, and the request is refused. What a host sends back is searched for the secret in the forms that [`spellings`]
//! lists, over the borders of its pieces.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use data_encoding::{
    BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE, HEXUPPER,
};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE,
};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::policy::request::Request;
use crate::policy::{NodeSecret, SecretPlace};

/// What stands where a secret was.
const REDACTED: u8 = b'*';
/// The shortest secret, in bytes: a shorter one is in many answers by chance.
pub const SHORTEST: usize = 8;

/// A secret and its value, which is wiped with it.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadSecret {
    /// What the node's file says of it.
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

/// All of a container.
pub(super) struct Secrets {
    all: Vec<ReadSecret>,
    /// The forms of all values, the longest first.
    spellings: Rc<[Vec<u8>]>,
}

impl Secrets {
    pub fn new(all: Vec<ReadSecret>) -> Self {
        let mut forms: Vec<Vec<u8>> = all
            .iter()
            .flat_map(|secret| spellings(secret.value.as_bytes()))
            .collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Self {
            all,
            spellings: forms.into(),
        }
    }

    /// Puts the secrets of this request into their places, whatever the container has there. Says what is done with the answer, or
    /// why the request may not go: something that stands for a secret is where it does not belong.
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
                    *query = query
                        .as_deref()
                        .and_then(|query| without(query, name.as_str()));
                    parameters.push(format!("{name}={}", percent_encoded(value)));
                }
                SecretPlace::Header(_) | SecretPlace::Basic(_) => {
                    let (name, value) = field(&secret.place, value)
                        .ok_or_else(|| format!("secret {} cannot be sent", secret.name))?;
                    headers.remove(&name);
                    fields.push((name, value));
                }
            }
        }
        self.check(request, query.as_deref(), headers)?;
        headers.extend(fields);
        parameters.splice(0..0, query.take());
        *query = (!parameters.is_empty()).then(|| parameters.join("&"));
        if !self.knows(request) {
            return Ok(Answers::AsTheyCome);
        }
        // Nobody could see a secret in an answer that is compressed, nor in pieces that the container chooses.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.remove(RANGE);
        headers.remove(IF_RANGE);
        Ok(Answers::Cleaned)
    }

    /// Whether the host of this request is one that gets a secret, which it could give back to any other request.
    fn knows(&self, request: &Request) -> bool {
        let mut rules = self.all.iter().flat_map(|secret| &secret.secret.requests);
        rules.any(|rule| rule.names(&request.host))
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
                    "what stands for the secret {} is in its {place}: it belongs into {} of {} and nowhere else",
                    secret.name,
                    secret.place,
                    requests.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Takes the secrets out of the head of an answer; an error where its body cannot be searched.
    pub fn clean(&self, headers: &mut HeaderMap) -> Result<(), &'static str> {
        let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
        if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
            return Err(
                "its answer is compressed although it was asked for a plain one, so that nobody sees whether a secret is in it",
            );
        }
        redact_fields(headers, &self.spellings);
        Ok(())
    }

    /// The body of an answer without the secrets.
    pub fn cleaned(&self, body: Incoming) -> Cleaned {
        Cleaned {
            body,
            filter: Some(Filter::new(Rc::clone(&self.spellings))),
            trailers: None,
        }
    }
}

/// What is done with the answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// Nothing: its host knows no secret.
    AsTheyCome,
    /// Secrets are taken out.
    Cleaned,
}

fn redact_fields(headers: &mut HeaderMap, spellings: &[Vec<u8>]) {
    for value in headers.values_mut() {
        let mut bytes = value.as_bytes().to_vec();
        if redact(&mut bytes, spellings)
            && let Ok(clean) = HeaderValue::from_bytes(&bytes)
        {
            *value = clean;
        }
    }
}

/// The field that has a secret, and its value there.
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

/// A query without this parameter, however its name is spelled; `None` where nothing is left.
fn without(query: &str, name: &str) -> Option<String> {
    let is_it = |pair: &&str| {
        let spelled = pair.split('=').next().unwrap_or_default();
        percent_decoded(spelled) == name.as_bytes()
    };
    let rest: Vec<&str> = query.split('&').filter(|pair| !is_it(pair)).collect();
    (!rest.is_empty()).then(|| rest.join("&"))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let coded = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match coded.and_then(|digits| HEXLOWER_PERMISSIVE.decode(digits).ok()) {
            Some(byte) => {
                all.extend(byte);
                at += 3;
            }
            None => {
                all.push(bytes[at]);
                at += 1;
            }
        }
    }
    all
}

/// Percent-encoded where it has to be (RFC 3986, section 2.3).
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// The forms in which a secret is looked for: as it is, in hexadecimal digits, percent-encoded as a whole and where it has to be, and in
/// base64, as a part of something longer too.
fn spellings(value: &[u8]) -> Vec<Vec<u8>> {
    let every = |digits: fn(u8) -> String| -> Vec<u8> {
        value
            .iter()
            .flat_map(|byte| digits(*byte).into_bytes())
            .collect()
    };
    let encoded = percent_encoded(&String::from_utf8_lossy(value));
    let mut forms = vec![
        value.to_vec(),
        value.iter().rev().copied().collect(),
        HEXLOWER.encode(value).into_bytes(),
        HEXUPPER.encode(value).into_bytes(),
        every(|byte| format!("%{byte:02X}")),
        every(|byte| format!("%{byte:02x}")),
        encoded.into_bytes(),
    ];
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value);
        for encoding in [BASE64_NOPAD, BASE64URL_NOPAD] {
            let text = encoding.encode(&bytes).into_bytes();
            // Without the characters that neighbours have a share in.
            let first = (before * 8).div_ceil(6);
            let last = text.len() - usize::from(!bytes.len().is_multiple_of(3));
            forms.push(text[first..last].to_vec());
        }
    }
    forms
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Overwrites the secrets, those that overlap as well; whether there were any.
fn redact(bytes: &mut [u8], spellings: &[Vec<u8>]) -> bool {
    let mut begins = [false; 256];
    for first in spellings.iter().filter_map(|form| form.first()) {
        begins[usize::from(*first)] = true;
    }
    // One look at most bytes: answers may be long.
    let found: Vec<(usize, usize)> = (0..bytes.len())
        .filter(|at| begins[usize::from(bytes[*at])])
        .filter_map(|at| {
            let rest = &bytes[at..];
            let form = spellings.iter().find(|form| rest.starts_with(form))?;
            Some((at, at + form.len()))
        })
        .collect();
    for (begin, end) in &found {
        bytes[*begin..*end].fill(REDACTED);
    }
    !found.is_empty()
}

/// Searches a stream of pieces.
struct Filter {
    spellings: Rc<[Vec<u8>]>,
    /// The end of what has come, which may be the beginning of a secret.
    held: Vec<u8>,
}

impl Filter {
    fn new(spellings: Rc<[Vec<u8>]>) -> Self {
        Self {
            spellings,
            held: Vec::new(),
        }
    }

    /// What may go on after this piece.
    fn feed(&mut self, piece: &[u8]) -> Bytes {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        redact(&mut bytes, &self.spellings);
        let begins = |at: &usize| {
            let rest = &bytes[*at..];
            self.spellings.iter().any(|form| form.starts_with(rest))
        };
        let longest = self.spellings.iter().map(Vec::len).max().unwrap_or(0);
        let from = bytes.len().saturating_sub(longest.saturating_sub(1));
        let keep = (from..bytes.len()).find(begins).unwrap_or(bytes.len());
        self.held = bytes.split_off(keep);
        bytes.into()
    }

    /// The rest.
    fn end(self) -> Bytes {
        self.held.into()
    }
}

/// A body in which secrets are overwritten. Its length stays.
pub(super) struct Cleaned {
    body: Incoming,
    /// Until the end.
    filter: Option<Filter>,
    /// Trailers that came before the rest had gone.
    trailers: Option<HeaderMap>,
}

impl Body for Cleaned {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            let Some(filter) = &mut self.filter else {
                let trailers = self.trailers.take();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            };
            let spellings = Rc::clone(&filter.spellings);
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let rest = self.filter.take().map(Filter::end).unwrap_or_default();
                    match rest.is_empty() {
                        true => continue,
                        false => return Poll::Ready(Some(Ok(Frame::data(rest)))),
                    }
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let clean = self.filter.as_mut().map(|filter| filter.feed(&data));
                    let clean = clean.unwrap_or_default();
                    if !clean.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(clean))));
                    }
                }
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        redact_fields(&mut trailers, &spellings);
                        self.trailers = Some(trailers);
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_held = |filter: &Filter| !filter.held.is_empty();
        let more = self.filter.as_ref().is_some_and(is_held) || self.trailers.is_some();
        !more && (self.filter.is_none() || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.filter.as_ref().map_or(0, |filter| filter.held.len());
        let held = u64::try_from(held).unwrap_or(u64::MAX);
        let rest = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::request::typed;

    const VALUE: &str = "sk-live-0123456789abcdef";

    fn secrets() -> Secrets {
        let header = "authorization: Bearer {}".parse().unwrap();
        secrets_in(SecretPlace::Header(header), VALUE)
    }

    fn secrets_in(place: SecretPlace, value: &str) -> Secrets {
        let secret = NodeSecret {
            name: "model".parse().unwrap(),
            file: "/etc/agentbox/model".parse().unwrap(),
            policies: ["agent".parse().unwrap()].into(),
            requests: ["POST https://a.test/v1/**".parse().unwrap()].into(),
            place,
            env: None,
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

    #[test]
    fn a_secret_is_a_password() {
        let secrets = secrets_in(SecretPlace::Basic("x-access-token".parse().unwrap()), VALUE);
        let own = BASE64.encode(b"x:agentbox-secret-model");
        let own = format!("Basic {own}");
        for fields in [&[][..], &[("authorization", &*own)]] {
            let (headers, _) = put_of(&secrets, "POST https://a.test/v1/x", fields).unwrap();
            let all: Vec<_> = headers.get_all("authorization").iter().collect();
            let both = BASE64.encode(format!("x-access-token:{VALUE}").as_bytes());
            assert_eq!(all, [&format!("Basic {both}")]);
            let mut echo = both.into_bytes();
            assert!(redact(&mut echo, &secrets.spellings));
        }
    }

    #[test]
    fn a_secret_is_one_parameter_of_a_query() {
        let value = "a&b=c+d/e#f%25-0123";
        let secrets = secrets_in(SecretPlace::Query("key".parse().unwrap()), value);
        let spelled = "key=a%26b%3Dc%2Bd%2Fe%23f%2525-0123";
        for (query, expected) in [
            ("", spelled.to_owned()),
            ("?key=mine", spelled.to_owned()),
            ("?alt=sse", format!("alt=sse&{spelled}")),
            (
                "?key=agentbox-secret-model&alt=sse&k%65y=mine&key",
                format!("alt=sse&{spelled}"),
            ),
            ("?keys=1&akey=2", format!("keys=1&akey=2&{spelled}")),
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
        let (_, other) = put_of(&secrets, "GET https://a.test/v1/x?key=mine", &[]).unwrap();
        assert_eq!(other.as_deref(), Some("key=mine"));
        let mut echo = format!("see {spelled}").into_bytes();
        assert!(redact(&mut echo, &secrets.spellings));
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
        let ranged = put(
            address,
            &[("range", "bytes=0-3"), ("accept-encoding", "gzip")],
        )
        .unwrap();
        assert!(ranged.get(RANGE).is_none() && ranged[ACCEPT_ENCODING] == "identity");
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
            assert!(error.contains("nowhere else"), "{address}: {error}");
        }
    }

    #[test]
    fn no_way_of_cutting_an_answer_lets_a_secret_through() {
        let secrets = secrets();
        let forms = spellings(VALUE.as_bytes());
        assert!(forms.iter().all(|form| form.len() >= VALUE.len() - 3));
        for form in forms {
            let whole = [b"before ".as_slice(), &form, b" after"].concat();
            for cut in 0..whole.len() {
                let mut filter = Filter::new(Rc::clone(&secrets.spellings));
                let mut out = filter.feed(&whole[..cut]).to_vec();
                out.extend(filter.feed(&whole[cut..]));
                out.extend(filter.end());
                assert_eq!(out.len(), whole.len());
                assert_eq!(find(&out, &form), None, "{cut}");
                assert!(out.starts_with(b"before ") && out.ends_with(b" after"));
            }
            let mut filter = Filter::new(Rc::clone(&secrets.spellings));
            let mut out = Vec::new();
            for byte in &whole {
                out.extend(filter.feed(&[*byte]));
            }
            out.extend(filter.end());
            assert_eq!((out.len(), find(&out, &form)), (whole.len(), None));
        }
    }

    #[test]
    fn base64_of_something_longer_is_found() {
        let secrets = secrets();
        for before in ["", "u", "us", "use", "user:"] {
            let text = format!("{before}{VALUE}:more");
            let mut bytes = BASE64.encode(text.as_bytes()).into_bytes();
            assert!(redact(&mut bytes, &secrets.spellings), "{before:?}");
        }
    }

    #[test]
    fn forms_that_overlap_are_both_taken_out() {
        let forms = [b"abcabd".to_vec(), b"abdxyz".to_vec()];
        let mut bytes = b"--abcabdxyz--".to_vec();
        assert!(redact(&mut bytes, &forms));
        assert_eq!(bytes, b"--*********--");
        assert!(!redact(&mut bytes, &forms));
    }

    #[test]
    fn an_answer_that_streams_is_not_held_back() {
        let mut filter = Filter::new(Rc::clone(&secrets().spellings));
        assert_eq!(filter.feed(b"data: 1\n\n"), b"data: 1\n\n".as_slice());
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
