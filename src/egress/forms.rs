//! PURE. The forms in which a value is looked for in what is sent and in what comes back.

use std::rc::Rc;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE, HEXUPPER};

/// Percent-encoded where it has to be (RFC 3986, section 2.3).
pub fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// The forms of all of these values, the longest first.
pub fn all_spellings<'a>(values: impl Iterator<Item = &'a [u8]>) -> Rc<[Vec<u8>]> {
    let mut forms: Vec<Vec<u8>> = values.flat_map(spellings).collect();
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms.dedup();
    forms.into()
}

/// The forms in which a secret is looked for: as it is, in hexadecimal digits, percent-encoded as a whole and where it has to be, and in
/// base64, as a part of something longer too.
pub fn spellings(value: &[u8]) -> Vec<Vec<u8>> {
    let every = |digits: fn(u8) -> String| -> Vec<u8> {
        value
            .iter()
            .flat_map(|byte| digits(*byte).into_bytes())
            .collect()
    };
    let encoded = percent_encoded(&String::from_utf8_lossy(value));
    let lower = lower_digits(&encoded);
    let mut forms = vec![
        value.to_vec(),
        value.iter().rev().copied().collect(),
        HEXLOWER.encode(value).into_bytes(),
        HEXUPPER.encode(value).into_bytes(),
        every(|byte| format!("%{byte:02X}")),
        every(|byte| format!("%{byte:02x}")),
        encoded.into_bytes(),
        lower.into_bytes(),
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

/// The same percent-encoding with its digits in lower case.
fn lower_digits(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let (digits, rest) = part.split_at(part.len().min(2));
        format!("{all}%{}{rest}", digits.to_ascii_lowercase())
    })
}

/// Where one begins in the other.
pub fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Where forms begin and end: of those that begin at one place the longest.
pub fn places<'a>(
    bytes: &'a [u8],
    forms: &'a [Vec<u8>],
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let mut begins = [false; 256];
    for first in forms.iter().filter_map(|form| form.first()) {
        begins[usize::from(*first)] = true;
    }
    // One look at most bytes: what is searched may be long.
    (0..bytes.len())
        .filter(move |at| begins[usize::from(bytes[*at])])
        .filter_map(|at| {
            let rest = &bytes[at..];
            let form = forms.iter().find(|form| rest.starts_with(form))?;
            Some((at, at + form.len()))
        })
}

/// Without its percent-encoding; what is none stays.
pub fn percent_decoded(text: &str) -> Vec<u8> {
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
