//! Rules for calls of MCP (Model Context Protocol, Streamable HTTP): the JSON-RPC methods that an endpoint may be sent.
//!
//! ```text
//! rule = "mcp:" scheme "://" host [":" port] path 1*(" " method [":" name])        ("*" in a name: any characters)
//! ```
//!
//! Names are compared character by character, after JSON's escapes are decoded. A lookalike does not match.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::rules::expiry::is_word_of_end;
use crate::text::{ValueError, decodings, text_type};

/// The methods that a rule can limit by a name, and the field of `params` with the name.
const NAMED: [(&str, &str); 5] = [
    ("tools/call", "name"),
    ("prompts/get", "name"),
    ("resources/read", "uri"),
    ("resources/subscribe", "uri"),
    ("resources/unsubscribe", "uri"),
];
/// The methods that list what another method uses by name.
const LISTS: [(&str, &str); 3] = [
    ("tools/list", "tools/call"),
    ("prompts/list", "prompts/get"),
    ("resources/list", "resources/read"),
];
/// The most methods of a rule, and the longest pattern of names.
const MOST_WORDS: usize = 32;
const LONGEST_NAME: usize = 256;
const MOST_WILDCARDS: usize = 4;
const LONGEST_METHOD: usize = 64;
/// The most states of a comparison; a comparison that needs more is answered with no.
const MOST_STATES: usize = 4_000;

const GRAMMAR: &str = "methods of MCP after the address: METHOD[:NAME], such as tools/list; only tools/call, prompts/get and \
                       resources/{read,subscribe,unsubscribe} take names";

const NO_END: &str = "methods of MCP: `for` and `until` give an end, which stands last and once, in network.temporary alone";

/// The field of `params` with the name that a method uses.
pub fn name_field(method: &str) -> Option<&'static str> {
    let mut all = NAMED.iter();
    all.find(|(known, _)| *known == method)
        .map(|(_, field)| *field)
}

/// The method that uses the names that this one lists.
pub fn listed_for(method: &str) -> Option<&'static str> {
    let mut all = LISTS.iter();
    all.find(|(known, _)| *known == method).map(|(_, by)| *by)
}

/// Whether a text is a JSON-RPC method, as far as it is supported here.
pub fn is_method(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/_-.$".contains(&b);
    // A server that reads it as a path would resolve `..` or an empty segment to another method.
    let is_word = |word: &str| word.bytes().any(|b| b != b'.');
    (1..=LONGEST_METHOD).contains(&text.len())
        && text.bytes().all(plain)
        && text.split('/').all(is_word)
}

/// One MCP request message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpCall {
    /// The method.
    pub method: String,
    /// The name, or the address, of its subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl McpCall {
    /// Whether a rule can name it and no other call: a blank in its name would begin another word, an asterisk stand for any name.
    pub fn fits_a_rule(&self) -> bool {
        let fits = |name: &String| !name.contains('*') && name.parse::<NameGlob>().is_ok();
        self.name.as_ref().is_none_or(fits)
    }

    /// Whether every session needs it.
    fn is_of_the_protocol(&self) -> bool {
        ["initialize", "ping"].contains(&self.method.as_str())
            || self.method.starts_with("notifications/")
    }
}

/// ASCII, whatever characters the name has.
impl fmt::Display for McpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.method.escape_default())?;
        match &self.name {
            Some(name) => write!(f, ":{}", name.escape_default()),
            None => Ok(()),
        }
    }
}

/// `METHOD[:NAME]`, as typed.
impl FromStr for McpCall {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (method, name) = match text.split_once(':') {
            Some((method, name)) => (method, Some(name)),
            None => (text, None),
        };
        if !is_method(method) || name.is_some() != name_field(method).is_some() {
            return Err(ValueError::grammar(text, GRAMMAR));
        }
        Ok(Self {
            method: method.to_owned(),
            name: name.map(str::to_owned),
        })
    }
}

text_type! {
    /// A pattern of names: `*` matches any number of any characters.
    NameGlob,
    "a name of MCP: visible ASCII without comma, quotes and backslash, at most 256 characters and 4 asterisks, of \
     which no two stand together",
    |text| {
        let plain = |b: u8| b.is_ascii_graphic() && !b",'\"\\".contains(&b);
        let few = text.matches('*').count() <= MOST_WILDCARDS && !text.contains("**");
        (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(plain) && few
    }
}

impl NameGlob {
    /// Every name.
    pub fn any() -> Self {
        Self("*".to_owned())
    }

    fn is_any(&self) -> bool {
        self.0 == "*"
    }

    /// Whether it matches this name.
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.0, name)
    }

    /// Whether it matches this name for a server that ignores case, or that decodes addresses.
    pub fn denies(&self, name: &str) -> bool {
        let pattern = self.0.to_lowercase();
        let is_denied = |form: &Vec<u8>| {
            let text = String::from_utf8_lossy(form);
            self.matches(&text) || matches(&pattern, &text.to_lowercase())
        };
        decodings(name).is_none_or(|all| all.iter().any(is_denied))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A method, and the names that it may use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct McpWord {
    method: String,
    names: NameGlob,
}

/// The methods of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct McpWords(BTreeSet<McpWord>);

impl McpWords {
    /// Whether a rule with them allows this call. It includes every session's calls, and lists of allowed names.
    pub fn allow(&self, call: &McpCall) -> bool {
        let by = listed_for(&call.method);
        call.is_of_the_protocol()
            || self.0.iter().any(|word| {
                let names = |name: &String| word.names.matches(name);
                by.is_some_and(|by| word.method == by)
                    || word.method == call.method && call.name.as_ref().is_none_or(names)
            })
    }

    /// Whether a rule with them denies this call.
    pub fn deny(&self, call: &McpCall) -> bool {
        self.0.iter().any(|word| {
            let names = |name: &String| word.names.denies(name);
            word.method.eq_ignore_ascii_case(&call.method) && call.name.as_ref().is_none_or(names)
        })
    }

    /// The names that this method may use.
    pub fn names<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a NameGlob> {
        let words = self.0.iter().filter(move |word| word.method == method);
        words.map(|word| &word.names)
    }

    /// All words, by method.
    pub(super) fn iter(&self) -> impl Iterator<Item = &McpWord> {
        self.0.iter()
    }
}

impl McpWord {
    /// A call, as a rule, that this word allows and none of these do.
    pub(super) fn outside<'a>(&self, limits: impl Iterator<Item = &'a McpWords>) -> Option<String> {
        let globs: Vec<&NameGlob> = limits
            .flat_map(|words| words.0.iter())
            .filter(|word| word.method == self.method)
            .map(|word| &word.names)
            .collect();
        let name = names_outside(&self.names, &globs)?;
        Some(match name_field(&self.method) {
            Some(_) => format!("{}:{name}", self.method),
            None => self.method.clone(),
        })
    }
}

/// A name that a pattern matches and none of the others does. One character that no pattern names represents all that
/// the requested pattern does not name: only an asterisk matches any of them.
fn names_outside(asked: &NameGlob, others: &[&NameGlob]) -> Option<String> {
    let globs: Vec<Vec<char>> = std::iter::once(asked)
        .chain(others.iter().copied())
        .map(|glob| glob.0.chars().collect())
        .collect();
    let is_named = |c: &char| globs.iter().any(|glob| glob.contains(c));
    let unnamed = ('a'..='z')
        .chain('A'..='Z')
        .chain('0'..='9')
        .find(|c| !is_named(c))
        .unwrap_or('\u{e9}');
    let mut alphabet = vec![unnamed];
    alphabet.extend(globs[0].iter().filter(|c| **c != '*'));
    let begin: Vec<BTreeSet<usize>> = globs.iter().map(|glob| with_rest(glob, [0])).collect();
    // Without the beginning: no name is empty, and one of a single character may reach the same positions.
    let mut seen = HashSet::new();
    let mut ways = VecDeque::from([(begin, String::new())]);
    while let Some((places, name)) = ways.pop_front() {
        let is_end = |(glob, places): (&Vec<char>, &BTreeSet<usize>)| places.contains(&glob.len());
        let mut ends = globs.iter().zip(&places).map(is_end);
        if ends.next() == Some(true) && !ends.any(|end| end) && !name.is_empty() {
            return Some(name);
        }
        for symbol in &alphabet {
            let all = globs.iter().zip(&places);
            let next: Vec<BTreeSet<usize>> = all
                .map(|(glob, places)| after(glob, places, *symbol))
                .collect();
            if !next[0].is_empty() && seen.insert(next.clone()) {
                ways.push_back((next, format!("{name}{symbol}")));
            }
        }
        if seen.len() > MOST_STATES {
            return Some(asked.to_string());
        }
    }
    None
}

fn after(glob: &[char], places: &BTreeSet<usize>, symbol: char) -> BTreeSet<usize> {
    let next = places.iter().filter_map(|at| match glob.get(*at) {
        Some('*') => Some(*at),
        Some(c) if *c == symbol => Some(at + 1),
        Some(_) | None => None,
    });
    with_rest(glob, next)
}

/// An asterisk may also match nothing.
fn with_rest(glob: &[char], places: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
    let ways = |at: usize| match glob.get(at) {
        Some('*') => at..=at + 1,
        Some(_) | None => at..=at,
    };
    places.into_iter().flat_map(ways).collect()
}

impl fmt::Display for McpWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.iter().map(|word| match word.names.is_any() {
            true => word.method.clone(),
            false => format!("{}:{}", word.method, word.names),
        });
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

impl FromStr for McpWords {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let word = |word: &str| {
            let (method, names) = match word.split_once(':') {
                Some((method, names)) if name_field(method).is_some() => (method, names.parse()?),
                Some(_) => return Err(ValueError::grammar(text, GRAMMAR)),
                None => (word, NameGlob::any()),
            };
            // The end of a rule, which only network.temporary reads: as methods, they would make the rule last.
            // So would `10m` after a misspelt `for`. No method begins with a digit.
            if is_word_of_end(method) || method.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(ValueError::grammar(text, NO_END));
            }
            match is_method(method) {
                true => Ok(McpWord {
                    method: method.to_owned(),
                    names,
                }),
                false => Err(ValueError::grammar(text, GRAMMAR)),
            }
        };
        let words: BTreeSet<McpWord> = text.split(' ').map(word).collect::<Result<_, _>>()?;
        match words.len() <= MOST_WORDS {
            true => Ok(Self(words)),
            false => Err(ValueError::grammar(text, "a rule with at most 32 methods")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> McpWords {
        text.parse().unwrap()
    }

    fn call(text: &str) -> McpCall {
        text.parse().unwrap()
    }

    #[test]
    fn a_rule_allows_its_calls_and_those_of_the_protocol() {
        let words = words("resources/read:file:///docs/* tools/call:search_* tools/call:exact");
        for (text, allowed) in [
            ("initialize", true),
            ("ping", true),
            ("notifications/initialized", true),
            ("tools/list", true),
            ("resources/list", true),
            ("prompts/list", false),
            ("resources/templates/list", false),
            ("tools/call:search_code", true),
            ("tools/call:search_", true),
            ("tools/call:exact", true),
            ("tools/call:exactly", false),
            ("tools/call:Search_code", false),
            ("tools/call:s\u{435}arch_code", false),
            ("tools/call:x/search_", false),
            ("resources/read:file:///docs/a/b", true),
            ("resources/read:file:///etc/passwd", false),
            ("prompts/get:search_code", false),
            ("logging/setLevel", false),
            ("Tools/call", false),
        ] {
            assert_eq!(words.allow(&call(text)), allowed, "{text}");
        }
    }

    #[test]
    fn a_denial_ignores_case() {
        let words = words("tools/call:delete_*");
        assert!(words.deny(&call("tools/call:Delete_all")));
        assert!(!words.deny(&call("tools/call:search")));
        assert!(!words.deny(&call("tools/list")));
    }

    #[test]
    fn a_denial_holds_for_an_address_in_every_encoding() {
        let words = words("resources/read:file:///secret/*");
        for uri in [
            "file:///secret/key",
            "file:///%73ecret/key",
            "file:///%2573ecret/key",
            "file:///secret%2Fkey",
            "FILE:///%53ecret/key",
        ] {
            assert!(words.deny(&call(&format!("resources/read:{uri}"))), "{uri}");
        }
        for uri in ["file:///open/key", "file:///100%/key", "file:///%zz"] {
            assert!(
                !words.deny(&call(&format!("resources/read:{uri}"))),
                "{uri}"
            );
        }
    }

    #[test]
    fn patterns_match_as_they_are_read() {
        for (pattern, name, expected) in [
            ("a*b", "ab", true),
            ("a*b", "axxb", true),
            ("a*b", "a", false),
            ("ab*ba", "aba", false),
            ("*a*", "xay", true),
            ("*a*b", "ba", false),
            ("*", "", true),
            ("a", "a", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_beyond_limits_are_shown() {
        let beyond = |asked: &str, limits: &[&str]| {
            let limits: Vec<NameGlob> = limits.iter().map(|text| text.parse().unwrap()).collect();
            names_outside(&asked.parse().unwrap(), &limits.iter().collect::<Vec<_>>())
        };
        assert_eq!(beyond("search_*", &["search_*"]), None);
        assert_eq!(beyond("search_*", &["*"]), None);
        assert_eq!(beyond("a*b", &["a*", "x"]), None);
        assert_eq!(
            beyond("search_*", &["search_a*"]).as_deref(),
            Some("search_")
        );
        assert_eq!(beyond("*", &["a*"]).as_deref(), Some("b"));
        assert_eq!(beyond("x", &[]).as_deref(), Some("x"));
        assert_eq!(beyond("*", &[]).as_deref(), Some("a"));
        assert_eq!(beyond("*", &["*"]), None);
    }

    #[test]
    fn a_text_that_is_no_method_is_refused() {
        for text in [
            "",
            "tools/call:",
            "tools/call:a,b",
            "tools/call:a\\b",
            "tools/call:**",
            "tools/list:x",
            "tools/call  tools/list",
            "tools/*",
            "*",
        ] {
            assert!(text.parse::<McpWords>().is_err(), "{text:?}");
        }
        let text = "prompts/get tools/call:a tools/call:b*";
        assert_eq!(words(text).to_string(), text);
    }
}
