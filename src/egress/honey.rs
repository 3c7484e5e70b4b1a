//! PURE. Honeytokens in sent data: values that look like a container's keys, but that no program has a reason to send.

use std::rc::Rc;

use data_encoding::BASE32_NOPAD;

use super::forms::{ValueForms, percent_encoded, spellings};
use crate::policy::{HoneyAction, HoneyValue, SecretName};

/// All honeytokens of a container, in their searched forms.
#[derive(Debug, Default)]
pub struct Honey(Vec<Bait>);

#[derive(Debug)]
struct Bait {
    name: SecretName,
    then: HoneyAction,
    /// In a byte stream.
    forms: ValueForms,
    /// In a host name, where case does not matter, and dots and hyphens may split the value.
    in_names: Vec<String>,
}

/// A honeytoken that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoneyMatch {
    /// Its name.
    pub name: SecretName,
    /// What happens to the container.
    pub then: HoneyAction,
}

impl Honey {
    /// The searched forms of these.
    pub fn new(all: &[HoneyValue]) -> Self {
        Self(all.iter().map(Bait::new).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first honeytoken in these bytes, in any case and with any escapes.
    pub fn find(&self, bytes: &[u8]) -> Option<HoneyMatch> {
        let is_in = |bait: &&Bait| bait.forms.are_in(bytes);
        self.0.iter().find(is_in).map(Bait::caught)
    }

    /// The first honeytoken in this host name, with any separators.
    pub fn find_in_name(&self, name: &str) -> Option<HoneyMatch> {
        let name = squeezed(name.as_bytes());
        let is_in = |bait: &&Bait| bait.in_names.iter().any(|form| name.contains(form));
        self.0.iter().find(is_in).map(Bait::caught)
    }

    /// The honeytoken of this name.
    pub fn named(&self, name: &str) -> Option<HoneyMatch> {
        let is_it = |bait: &&Bait| bait.name.to_string() == name;
        self.0.iter().find(is_it).map(Bait::caught)
    }

    fn longest(&self) -> usize {
        let forms = self.0.iter().map(|bait| bait.forms.longest());
        forms.max().unwrap_or(0)
    }
}

impl Bait {
    fn new(value: &HoneyValue) -> Self {
        let bytes = value.value.as_str().as_bytes();
        let mut in_names: Vec<String> =
            spellings(bytes).iter().map(|form| squeezed(form)).collect();
        in_names.push(squeezed(BASE32_NOPAD.encode(bytes).as_bytes()));
        in_names.push(squeezed(percent_encoded(value.value.as_str()).as_bytes()));
        Self {
            name: value.name.clone(),
            then: value.then,
            forms: ValueForms::of([bytes].into_iter()),
            in_names,
        }
    }

    fn caught(&self) -> HoneyMatch {
        HoneyMatch {
            name: self.name.clone(),
            then: self.then,
        }
    }
}

/// Only letters and digits, in lower case.
fn squeezed(bytes: &[u8]) -> String {
    let plain = bytes.iter().filter(|byte| byte.is_ascii_alphanumeric());
    plain
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect()
}

/// A search through a stream in pieces.
#[derive(Debug)]
pub struct HoneySearch {
    honey: Rc<Honey>,
    /// The end of the stream so far, where a honeytoken may begin.
    held: Vec<u8>,
}

impl HoneySearch {
    /// A search for these.
    pub fn new(honey: &Rc<Honey>) -> Self {
        Self {
            honey: Rc::clone(honey),
            held: Vec::new(),
        }
    }

    /// Searches a complete text.
    pub fn find(&self, whole: &[u8]) -> Option<HoneyMatch> {
        self.honey.find(whole)
    }

    /// Searches the next piece. Returns the honeytoken that ends in it.
    pub fn feed(&mut self, piece: &[u8]) -> Option<HoneyMatch> {
        if self.honey.is_empty() {
            return None;
        }
        self.held.extend_from_slice(piece);
        let caught = self.honey.find(&self.held);
        let keep = self.honey.longest().saturating_sub(1);
        let gone = self.held.len().saturating_sub(keep);
        self.held.drain(..gone);
        caught
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::{BASE64, HEXLOWER};

    const VALUE: &str = "sk-live_4f9A/b2c7+D81e";

    fn honey() -> Rc<Honey> {
        let text =
            format!("name = \"bait\"\nvalue = \"{VALUE}\"\npolicies = [\"agent\"]\nthen = \"end\"");
        Rc::new(Honey::new(&[toml::from_str(&text).unwrap()]))
    }

    #[test]
    fn n48_a_honey_value_is_found_in_every_cut_of_a_stream() {
        let honey = honey();
        let forms = [
            VALUE.to_owned(),
            BASE64.encode(format!("user:{VALUE}").as_bytes()),
            HEXLOWER.encode(VALUE.as_bytes()),
            VALUE.to_uppercase(),
            // As an MCP message may escape it; the sidecar would pass it on without escapes.
            VALUE.replace('k', "\\u006B").replace('/', "\\/"),
        ];
        for form in forms {
            let text = format!("GET /x?k={form} HTTP/1.1\r\n\r\n");
            for cut in 0..text.len() {
                let mut search = HoneySearch::new(&honey);
                let (first, second) = text.as_bytes().split_at(cut);
                let caught = search.feed(first).or_else(|| search.feed(second)).unwrap();
                assert_eq!(caught.then, HoneyAction::End, "{form} {cut}");
            }
            let mut search = HoneySearch::new(&honey);
            let caught = text.bytes().find_map(|byte| search.feed(&[byte]));
            assert_eq!(caught, honey.named("bait"), "{form}");
            // The control: without its last character, it is no honeytoken.
            let cut = &text[..9 + form.len() - 4];
            assert_eq!(HoneySearch::new(&honey).feed(cut.as_bytes()), None);
        }
        assert!(
            HoneySearch::new(&Rc::default())
                .feed(VALUE.as_bytes())
                .is_none()
        );
    }

    #[test]
    fn n48_a_honey_value_is_found_in_names_whatever_their_case_and_their_dots() {
        let honey = honey();
        let base32 = BASE32_NOPAD.encode(VALUE.as_bytes()).to_lowercase();
        let (one, two) = base32.split_at(20);
        let hex = HEXLOWER.encode(VALUE.as_bytes());
        let (hex, rest) = hex.split_at(30);
        for name in [
            "SK-live-4f9ab2c7d81e.evil.test".to_owned(),
            "sk.live.4f9a.b2c7d.81e.evil.test".to_owned(),
            format!("{one}.{two}.evil.test"),
            format!("x{hex}.{rest}y.evil.test"),
        ] {
            assert!(honey.find_in_name(&name).is_some(), "{name}");
        }
        for name in ["sk-live-4f9ab2c7d8.evil.test", "evil.test", ""] {
            assert_eq!(honey.find_in_name(name), None, "{name}");
        }
    }

    #[test]
    fn n48_a_honey_value_is_found_behind_any_percent_encoding() {
        let honey = honey();
        let address = "GET https://a.test/%73k-live_4f9A%2Fb2c%37%2bD81e";
        assert!(honey.find(address.as_bytes()).is_some());
        assert!(honey.find(b"GET https://a.test/%73k-live").is_none());
        assert!(Honey::default().find(address.as_bytes()).is_none());
    }
}
