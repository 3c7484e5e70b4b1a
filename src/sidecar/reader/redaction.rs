//! The node's secrets in answers: found in the forms of [`crate::egress::forms`], across borders of pieces, and
//! overwritten.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{HeaderMap, HeaderValue};

use crate::egress::forms::ValueForms;

/// Replaces each byte of a secret.
const REDACTED: u8 = b'*';

/// Overwrites the secrets in header or trailer fields, and removes fields with a secret in their name.
pub(super) fn redact_fields(headers: &mut HeaderMap, forms: &ValueForms) {
    let named = headers.keys();
    let named = named.filter(|name| forms.are_in(name.as_str().as_bytes()));
    for name in named.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        let mut bytes = value.as_bytes().to_vec();
        if redact(&mut bytes, forms)
            && let Ok(clean) = HeaderValue::from_bytes(&bytes)
        {
            *value = clean;
        }
    }
}

/// Overwrites the secrets, also overlapping ones. Returns whether there were any.
pub(super) fn redact(bytes: &mut [u8], forms: &ValueForms) -> bool {
    let found: Vec<_> = forms.places(bytes).collect();
    for (begin, end) in &found {
        bytes[*begin..*end].fill(REDACTED);
    }
    !found.is_empty()
}

/// Whether a form of any secret could have this byte: values and their forms are visible ASCII.
fn is_of_forms(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

/// Searches a stream of pieces.
struct Filter {
    forms: ValueForms,
    /// The last word so far, unchanged: it may be the start of a secret.
    held: Vec<u8>,
    /// How many of its bytes are the end of a found secret.
    covered: usize,
}

impl Filter {
    fn new(forms: ValueForms) -> Self {
        Self {
            forms,
            held: Vec::new(),
            covered: 0,
        }
    }

    /// Returns what may be sent on after this piece.
    fn feed(&mut self, piece: &[u8]) -> Bytes {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        // Bytes that may become a secret, or a longer one, are kept unchanged and searched again. The client sees from
        // the sizes of pieces how many are kept. If that depended on the secrets, it would reveal whether a guess is
        // right. So the last word is kept.
        let longest = self.forms.longest();
        let from = bytes.len().saturating_sub(longest.saturating_sub(1));
        let before = bytes[from..].iter().rposition(|byte| !is_of_forms(*byte));
        let keep = from + before.map_or(0, |at| at + 1);
        let mut found: Vec<_> = self.forms.places(&bytes).collect();
        found.retain(|(begin, _)| *begin < keep);
        found.push((0, self.covered));
        let reach = found.iter().map(|(_, end)| *end).max().unwrap_or(0);
        self.covered = reach.saturating_sub(keep);
        self.held = bytes.split_off(keep);
        for (begin, end) in found {
            bytes[begin..end.min(keep)].fill(REDACTED);
        }
        bytes.into()
    }

    /// Returns the rest.
    fn end(mut self) -> Bytes {
        redact(&mut self.held, &self.forms);
        self.held[..self.covered].fill(REDACTED);
        self.held.into()
    }
}

/// A body in which secrets are overwritten. Its length does not change.
pub(super) struct RedactedBody {
    body: Incoming,
    /// `None` after the end.
    filter: Option<Filter>,
    /// Trailers that came before the rest was sent.
    trailers: Option<HeaderMap>,
}

impl RedactedBody {
    /// For this body, without these forms.
    pub fn new(body: Incoming, forms: ValueForms) -> Self {
        Self {
            body,
            filter: Some(Filter::new(forms)),
            trailers: None,
        }
    }
}

impl Body for RedactedBody {
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
            let forms = filter.forms.clone();
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
                        redact_fields(&mut trailers, &forms);
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
    use crate::egress::forms::{find, spellings};

    const VALUE: &str = "sk-live-0123456789abcdef";

    fn spelled() -> ValueForms {
        ValueForms::of([VALUE.as_bytes()].into_iter())
    }

    #[test]
    fn no_way_of_cutting_an_answer_lets_a_secret_through() {
        let spelled = spelled();
        let forms = spellings(VALUE.as_bytes());
        assert!(forms.iter().all(|form| form.len() >= VALUE.len() - 3));
        for form in forms {
            let whole = [b"before ".as_slice(), &form, b" after"].concat();
            for cut in 0..whole.len() {
                let mut filter = Filter::new(spelled.clone());
                let mut out = filter.feed(&whole[..cut]).to_vec();
                out.extend(filter.feed(&whole[cut..]));
                out.extend(filter.end());
                assert_eq!(out.len(), whole.len());
                assert_eq!(find(&out, &form), None, "{cut}");
                assert!(out.starts_with(b"before ") && out.ends_with(b" after"));
            }
            let mut filter = Filter::new(spelled.clone());
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
        let spelled = spelled();
        for before in ["", "u", "us", "use", "user:"] {
            let text = format!("{before}{VALUE}:more");
            let mut bytes = data_encoding::BASE64.encode(text.as_bytes()).into_bytes();
            assert!(redact(&mut bytes, &spelled), "{before:?}");
        }
    }

    #[test]
    fn forms_that_overlap_are_both_taken_out() {
        let forms = ValueForms::of([&b"abcabd"[..], b"abdxyz"].into_iter());
        let mut bytes = b"--abcabdxyz--".to_vec();
        assert!(redact(&mut bytes, &forms));
        assert_eq!(bytes, b"--*********--");
        assert!(!redact(&mut bytes, &forms));
    }

    #[test]
    fn a_streaming_answer_is_not_held_back() {
        let mut filter = Filter::new(spelled());
        assert_eq!(filter.feed(b"data: 1\n\n"), b"data: 1\n\n".as_slice());
    }

    /// A client that sends guesses to a host that echoes them sees how an answer is cut.
    #[test]
    fn no_piece_says_whether_a_guess_at_a_secret_begins_it() {
        let sizes = |pieces: &[String]| {
            let mut filter = Filter::new(spelled());
            let mut sizes: Vec<usize> = pieces
                .iter()
                .map(|piece| filter.feed(piece.as_bytes()).len())
                .collect();
            sizes.push(filter.end().len());
            sizes
        };
        let behind = |guess: &str| [format!("a {guess}"), " b".to_owned()];
        for form in spellings(VALUE.as_bytes()) {
            let form = String::from_utf8(form).unwrap();
            for length in 1..form.len() {
                let wrong = format!("{}~", &form[..length - 1]);
                let right = sizes(&behind(&form[..length]));
                assert_eq!(right, sizes(&behind(&wrong)), "{form} {length}");
                // The control: words are held back, and nothing more.
                assert_eq!(right[0], 2, "{form} {length}");
            }
        }
    }

    /// Secrets that begin another one, or end in its middle, wherever an answer is cut.
    #[test]
    fn secrets_that_share_bytes_are_taken_out_in_every_cut() {
        let one = b"sk-live-0123";
        let other = b"sk-live-0123-4567-tail";
        let third = b"4567-tail-and-more";
        let spelled = ValueForms::of([&one[..], other, third].into_iter());
        for (text, left) in [
            ("a sk-live-0123-4567-tail-and-more b", "a  b"),
            ("a sk-live-0123-4567-ta b", "a -4567-ta b"),
            ("sk-live-0123", ""),
            ("a sk-live-0123-4567-tail", "a "),
            ("sk-live-01 sk-live-0123", "sk-live-01 "),
        ] {
            let bytes = text.as_bytes();
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let mut filter = Filter::new(spelled.clone());
                    let mut out = Vec::new();
                    for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                        out.extend(filter.feed(piece));
                    }
                    out.extend(filter.end());
                    assert_eq!(out.len(), bytes.len());
                    out.retain(|byte| *byte != REDACTED);
                    assert_eq!(
                        String::from_utf8(out).unwrap(),
                        left,
                        "{text} {first} {second}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_field_whose_name_is_the_secret_is_removed() {
        let spelled = ValueForms::of([&b"Sk-Live-0123"[..]].into_iter());
        let mut headers = HeaderMap::new();
        headers.insert("x-sk-live-0123", "a".parse().unwrap());
        headers.insert("x-other", "a".parse().unwrap());
        redact_fields(&mut headers, &spelled);
        assert_eq!(headers.len(), 1);
        assert!(headers.contains_key("x-other"));
    }

    #[test]
    fn percent_encoding_is_found_with_digits_in_either_case() {
        let spelled = ValueForms::of([&b"a/b+c/0123"[..]].into_iter());
        for text in [
            "a%2Fb%2Bc%2F0123",
            "a%2fb%2bc%2f0123",
            "%61%2f%62%2b%63%2f%30%31%32%33",
        ] {
            let mut bytes = text.as_bytes().to_vec();
            assert!(redact(&mut bytes, &spelled), "{text}");
        }
    }
}
