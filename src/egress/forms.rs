//! PURE. The forms of a value that are searched for in sent and received data.
//!
//! A value has a few plain forms: unchanged, reversed, hexadecimal, base64. A program may escape any characters of a
//! form, and each program chooses others. So a form is compared character by character. Each may be written as an
//! [escape](Escaped), whose characters may be escaped again, up to [`LEVELS`] times. Case is ignored.

use std::rc::Rc;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// How many times a form may be escaped: a URL in the query of a URL in the query of a URL.
const LEVELS: usize = 3;
/// The most bytes of a form that are kept across pieces, for each byte of the value. `%25252F` has 7 bytes,
/// `%26%23x2f%3b` has 12.
const WIDEST: usize = 12;

/// Percent-encodes what needs it (RFC 3986, section 2.3).
pub fn percent_encoded(text: &str) -> String {
    const RESERVED: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(text, &RESERVED).to_string()
}

/// The plain forms of a value: unchanged, reversed, in hexadecimal digits, and in base64, also within a longer text. In
/// lower case.
pub fn spellings(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![
        value.to_vec(),
        value.iter().rev().copied().collect(),
        HEXLOWER.encode(value).into_bytes(),
    ];
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value);
        for encoding in [BASE64_NOPAD, BASE64URL_NOPAD] {
            let text = encoding.encode(&bytes).into_bytes();
            // Without the characters that also depend on the neighbouring bytes.
            let first = (before * 8).div_ceil(6);
            let last = text.len() - usize::from(!bytes.len().is_multiple_of(3));
            forms.push(text[first..last].to_vec());
        }
    }
    forms
        .iter_mut()
        .for_each(|form| form.make_ascii_lowercase());
    forms
}

/// The forms of some values, to search for in bytes.
#[derive(Debug, Clone, Default)]
pub struct ValueForms {
    /// By their first byte, the longest first: most bytes begin no form.
    by_first: Rc<[Vec<Vec<u8>>]>,
    /// The most bytes of a form.
    longest: usize,
}

impl ValueForms {
    /// The forms of these values.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut by_first = vec![Vec::new(); 256];
        let mut longest = 0;
        for value in values {
            longest = longest.max(value.len() * WIDEST);
            for form in spellings(value) {
                if let Some(first) = form.first() {
                    by_first[usize::from(*first)].push(form);
                }
            }
        }
        for forms in &mut by_first {
            forms.sort_by_key(|form: &Vec<u8>| std::cmp::Reverse(form.len()));
            forms.dedup();
        }
        Self {
            by_first: by_first.into(),
            longest,
        }
    }

    /// The most bytes to keep across pieces. Depends only on the length of the longest value.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.longest == 0
    }

    /// The ranges of forms. Of several that begin at one place, the longest.
    pub fn places<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (usize, usize)> + 'a {
        let begins = (0..bytes.len()).filter(|_| !self.is_empty());
        begins.filter_map(|at| Some((at, self.end_at(bytes, at)?)))
    }

    /// Whether a form is in these bytes.
    pub fn are_in(&self, bytes: &[u8]) -> bool {
        self.places(bytes).next().is_some()
    }

    /// The end of a form that begins here.
    fn end_at(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let text = EscapedText(bytes);
        let mut end = None;
        for level in 0..=LEVELS {
            let (first, next) = text.read(at, level)?;
            let mut escapes = text.is_escape(at);
            for form in self.by_first.get(usize::from(first)).into_iter().flatten() {
                end = end.max(text.rest_of(form, (next, level), &mut escapes));
            }
            // Without escapes, all levels read the same. Most bytes begin nothing.
            if !escapes {
                break;
            }
        }
        end
    }
}

/// Text in which any character can be escaped: `%2F`, `\/`, `\u002f`, `\x2f`, `&#47;`, `&#x2f;`, `&amp;`.
struct EscapedText<'a>(&'a [u8]);

/// Characters with a name in HTML.
const NAMED: [(&[u8], u8); 6] = [
    (b"amp;", b'&'),
    (b"lt;", b'<'),
    (b"gt;", b'>'),
    (b"quot;", b'"'),
    (b"apos;", b'\''),
    (b"sol;", b'/'),
];

impl EscapedText<'_> {
    fn is_escape(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|byte| b"%\\&".contains(byte))
    }

    /// The end of the rest of a form after its first character, and whether it had an escape.
    fn rest_of(
        &self,
        form: &[u8],
        (mut at, level): (usize, usize),
        escapes: &mut bool,
    ) -> Option<usize> {
        for wanted in &form[1..] {
            *escapes |= self.is_escape(at);
            let (byte, next) = self.read(at, level)?;
            if byte != *wanted {
                return None;
            }
            at = next;
        }
        Some(at)
    }

    /// The character here, in lower case, after removing this many levels of escapes, and the position of the next.
    fn read(&self, at: usize, level: usize) -> Option<(u8, usize)> {
        let byte = *self.0.get(at)?;
        if level == 0 || !self.is_escape(at) {
            return Some((byte.to_ascii_lowercase(), at + 1));
        }
        let (sign, next) = self.read(at, level - 1)?;
        let escaped = match sign {
            b'%' => self.digits(next, level - 1, 2),
            b'\\' => self.backslash(next, level - 1),
            b'&' => self.entity(next, level - 1),
            _ => None,
        };
        Some(escaped.map_or((sign, next), |(byte, next)| {
            (byte.to_ascii_lowercase(), next)
        }))
    }

    /// A byte in this many hexadecimal digits.
    fn digits(&self, mut at: usize, level: usize, count: usize) -> Option<(u8, usize)> {
        let mut value = 0_u32;
        for _ in 0..count {
            let (digit, next) = self.read(at, level)?;
            value = value * 16 + char::from(digit).to_digit(16)?;
            at = next;
        }
        Some((u8::try_from(value).ok()?, at))
    }

    /// The rest of an escape of C or JSON after the backslash.
    fn backslash(&self, at: usize, level: usize) -> Option<(u8, usize)> {
        match self.read(at, level)? {
            (b'u', next) => self.digits(next, level, 4),
            (b'x', next) => self.digits(next, level, 2),
            (byte, next) if byte.is_ascii_punctuation() => Some((byte, next)),
            _ => None,
        }
    }

    /// The rest of an HTML escape after the `&`.
    fn entity(&self, at: usize, level: usize) -> Option<(u8, usize)> {
        let (first, next) = self.read(at, level)?;
        if first != b'#' {
            let named = NAMED.iter().find_map(|(name, byte)| {
                let mut at = at;
                for wanted in *name {
                    let (read, next) = self.read(at, level)?;
                    at = (read == *wanted).then_some(next)?;
                }
                Some((*byte, at))
            });
            return named;
        }
        let (radix, mut at) = match self.read(next, level)? {
            (b'x', behind) => (16, behind),
            _ => (10, next),
        };
        let mut value = 0_u32;
        // The number of an ASCII character, with leading zeros.
        for _ in 0..5 {
            let (digit, next) = self.read(at, level)?;
            at = next;
            match char::from(digit).to_digit(radix) {
                Some(digit) => value = value * radix + digit,
                None if digit == b';' => return Some((u8::try_from(value).ok()?, at)),
                None => return None,
            }
        }
        None
    }
}

/// The position of a text in another.
pub fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::{BASE64, HEXUPPER};

    /// Like the keys of Azure, AWS and Google.
    const VALUE: &str = "Zm9v/Base+64key==/x7+Q9";

    fn quoted(text: &str, safe: &str) -> String {
        let one = |byte: u8| match byte.is_ascii_alphanumeric() || safe.as_bytes().contains(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        text.bytes().map(one).collect()
    }

    fn every(write: fn(u8) -> String) -> String {
        VALUE.bytes().map(write).collect()
    }

    /// N43: the escapes in which servers send a value back.
    #[test]
    fn n43_a_value_is_found_in_every_escape_of_an_ordinary_server() {
        let forms = ValueForms::of([VALUE.as_bytes()].into_iter());
        // Python's quote, Go's PathEscape and QueryEscape, JavaScript's encodeURI and encodeURIComponent.
        let safe = [
            "/_.-~",
            "$&+=:@_.-~",
            "_.-~",
            ";,/?:@&=+$-_.!~*'()#",
            "-_.!~*'()",
            "",
            "/",
            "=",
            "+",
            "/+",
        ];
        let mut texts = vec![
            VALUE.to_owned(),
            VALUE.to_uppercase(),
            HEXUPPER.encode(VALUE.as_bytes()),
            VALUE.chars().rev().collect(),
            VALUE.replace('/', "\\/"),
            VALUE.replace('+', "\\u002b"),
            VALUE.replace('+', "\\\\u002B"),
            VALUE.replace('+', "\\x2b").replace('=', "&#61;"),
            VALUE.replace('/', "&#x2F;").replace('=', "&#061;"),
            VALUE.replace('+', "&amp;#43;"),
            VALUE.replace('/', "&sol;"),
            every(|byte| format!("%{byte:02x}")),
            every(|byte| format!("%25{byte:02X}")),
            every(|byte| format!("\\u{byte:04x}")),
            every(|byte| format!("&#{byte};")),
        ];
        for safe in safe {
            let once = quoted(VALUE, safe);
            let twice = quoted(&once, safe);
            texts.extend([
                once.to_lowercase(),
                quoted(&twice, safe),
                quoted(&twice, ""),
                twice,
                once,
            ]);
        }
        for text in &texts {
            for before in [
                "", "x", "%4", "%", "%25", "\\", "\\u00", "&", "&#4", "next=",
            ] {
                let all = format!("{before}{text}/..");
                let found = forms.places(all.as_bytes()).any(|(begin, end)| {
                    begin <= before.len() + 2 && end >= before.len() + text.len()
                });
                assert!(found, "{all}");
            }
            // The control: without its last character, it is no form.
            let cut = &text[..text.len() - 4];
            assert!(!forms.are_in(cut.as_bytes()), "{cut}");
        }
        let base64 = BASE64.encode(format!("user:{VALUE}").as_bytes());
        assert!(forms.are_in(quoted(&base64, "").as_bytes()));
        assert!(!ValueForms::default().are_in(VALUE.as_bytes()));
    }

    #[test]
    fn case_is_ignored_in_a_value_in_digits() {
        let forms = ValueForms::of([&b"0123456789abcdef"[..]].into_iter());
        for text in [
            "0123456789ABCDEF",
            "0123456789aBcDeF",
            "303132333435363738396162636465660",
        ] {
            assert!(forms.are_in(text.as_bytes()), "{text}");
        }
    }

    /// A host controls what it sends, so no input may take long.
    #[test]
    fn a_row_of_escape_characters_takes_bounded_time() {
        let forms = ValueForms::of([&b"%%%%%%%%"[..], b"\\\\\\\\u00"].into_iter());
        for sign in ["%", "\\", "&", "&#", "%25", "\\u00"] {
            let text = sign.repeat(20_000);
            assert!(forms.places(text.as_bytes()).count() <= text.len());
        }
    }
}
