//! PURE. Quotes words that someone typed in error messages.
//!
//! Everything that a container can name is printed escaped and bounded. A near miss gets a "did you mean".

use std::fmt;

use thiserror::Error;

/// How many characters of a value an error shows.
const SHOWN: usize = 80;

/// Longer words get no suggestion: the table below is quadratic.
const COMPARED: usize = 128;

/// Quotes untrusted text: ASCII only, without control characters, at most about 80 characters.
pub fn shown(value: &str) -> String {
    shown_within(value, SHOWN)
}

/// The same with another bound, for text next to the wrong word.
pub fn shown_within(value: &str, most: usize) -> String {
    let mut out = String::from("\"");
    for character in value.chars() {
        let escaped = character.escape_default();
        if out.len() + escaped.len() > most {
            return format!("{out}...\" ({} bytes)", value.len());
        }
        out.extend(escaped);
    }
    out.push('"');
    out
}

/// The most characters of a message that agentbox writes itself. Engines print their own text around it.
pub const MESSAGE: usize = 300;

/// The most characters of a printed line: a message with the words of the steps around it. Docker and containerd show
/// 20,000 characters of a runtime's error, podman 1,500. Kubernetes cuts an event at 1,024, with the engine's own words.
pub const LINE: usize = 800;

/// A library's message that may quote untrusted text: bounded, without control characters.
pub fn printable(message: &str) -> String {
    let mut out = String::new();
    for character in message.chars().take(400) {
        match character {
            '\n' => out.push(' '),
            ' '..='~' => out.push(character),
            _ => out.extend(character.escape_default()),
        }
    }
    bounded(&out, 205)
}

/// The text, or its beginning and its end if it is too long. The first words give the fault; the last ones the remedy,
/// or words that engines look for. A line of [`LINE`] characters keeps a remedy as long as [`MESSAGE`].
pub fn bounded(text: &str, most: usize) -> String {
    const GAP: &str = " ... ";
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(GAP.len());
    let tail = kept * 2 / 5;
    let head: String = text.chars().take(kept - tail).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    format!("{head}{GAP}{tail}")
}

/// As many items as fit into this many characters, and the number of the others; "nothing" for an empty list.
pub fn few(items: impl IntoIterator<Item = impl fmt::Display>, most: usize) -> String {
    let mut items = items.into_iter();
    let Some(first) = items.next() else {
        return "nothing".to_owned();
    };
    let mut out = bounded(&first.to_string(), most);
    let mut more = 0;
    for item in items {
        let item = item.to_string();
        if more > 0 || out.chars().count() + item.chars().count() > most {
            more += 1;
        } else {
            out.push_str(", ");
            out.push_str(&item);
        }
    }
    match more {
        0 => out,
        _ => format!("{out} and {more} more"),
    }
}

/// A wrong word.
///
/// `value` is already rendered by [`shown`], so the whole error is safe to print.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{value} is not {allowed}{}", DidYouMean(suggestion.as_deref()))]
pub struct ValueError {
    /// The wrong word, escaped and bounded.
    pub value: String,
    /// The allowed values, as the end of the sentence "this is not ...".
    pub allowed: String,
    /// The nearest allowed word, if there is a near one.
    pub suggestion: Option<String>,
}

impl ValueError {
    /// For a value with a grammar.
    pub fn grammar(value: &str, allowed: &str) -> Self {
        Self {
            value: shown(value),
            allowed: allowed.to_owned(),
            suggestion: None,
        }
    }

    /// For a value that is one of a few words.
    pub fn one_of<'a>(value: &str, words: impl IntoIterator<Item = &'a str>) -> Self {
        let words: Vec<&str> = words.into_iter().collect();
        Self {
            value: shown(value),
            allowed: format!("one of {}", few(&words, 90)),
            suggestion: nearest(value, words).map(str::to_owned),
        }
    }
}

/// The end of a message: empty, or the word that was probably meant.
pub struct DidYouMean<'a>(pub Option<&'a str>);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(word) => write!(f, "; did you mean {word}?"),
            None => Ok(()),
        }
    }
}

/// The candidate closest to `word`, if it differs by at most a third.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > COMPARED {
        return None;
    }
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, remove, replace, swap two neighbours) between two words.
pub use strsim::osa_distance as distance;

/// Serde for a type that is serialized as a string: parsed on input, canonical on output.
macro_rules! string_form {
    ($name:ty) => {
        impl TryFrom<String> for $name {
            type Error = $crate::text::ValueError;

            fn try_from(value: String) -> Result<Self, Self::Error> {
                value.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    };
}
pub(crate) use string_form;

/// A newtype of a text, with its printer and serde. With the end of "this is not ..." and a test of the text, its
/// parser too; without, the type has a parser of its own, which may change the text.
macro_rules! text_type {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        $crate::text::string_form!($name);
    };
    ($(#[$meta:meta])* $name:ident, $allowed:expr, $fits:expr) => {
        $crate::text::text_type! { $(#[$meta])* $name }

        impl std::str::FromStr for $name {
            type Err = $crate::text::ValueError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let fits: fn(&str) -> bool = $fits;
                match fits(text) {
                    true => Ok(Self(text.to_owned())),
                    false => Err($crate::text::ValueError::grammar(text, $allowed)),
                }
            }
        }
    };
}
pub(crate) use text_type;

/// Escapes control characters, and characters that reorder or hide their neighbours: a message may contain text of a
/// hostile image or workload.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match is_treacherous(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    escaped
}

/// The same for JSON, with the same meaning. serde_json leaves DEL, C1 and all above unescaped; they occur only in
/// strings.
pub fn escape_json(json: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // An end of line is part of the layout: within a string, it is already escaped.
        if c == '\n' || !is_treacherous(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String never fails.
            let _always = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

/// Characters that a terminal obeys (C0, DEL, C1), line ends, changes of the writing direction (CVE-2021-42574), and
/// invisible characters.
pub(crate) fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Decodes percent-encoding. Invalid escapes stay unchanged.
pub fn percent_decoded(text: impl AsRef<[u8]>) -> Vec<u8> {
    percent_encoding::percent_decode(text.as_ref()).collect()
}

/// How often a server may decode an address: many do it twice.
const MOST_DECODED: usize = 5;

/// What servers may read: the text itself, then decoded once more each time until nothing changes. `None` for what would change
/// more often than that.
pub fn decodings(text: &str) -> Option<Vec<Vec<u8>>> {
    let mut all = vec![text.as_bytes().to_vec()];
    for _ in 0..MOST_DECODED {
        let next = percent_decoded(all.last()?);
        if all.last() == Some(&next) {
            return Some(all);
        }
        all.push(next);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_decoded_until_nothing_changes() {
        assert_eq!(decodings("a/b").unwrap(), [b"a/b"]);
        assert_eq!(decodings("%252e").unwrap(), [&b"%252e"[..], b"%2e", b"."]);
        // Bytes that are no text are decoded too, and a sequence that only decoding completes.
        assert_eq!(decodings("%%32%65").unwrap().last().unwrap(), b".");
        assert!(decodings("%2525252e").is_some());
        assert!(decodings("%252525252e").is_none());
    }

    #[test]
    fn shows_hostile_values_escaped_and_bounded() {
        assert_eq!(
            shown("a\n\u{1b}[2J\"\u{202e}"),
            r#""a\n\u{1b}[2J\"\u{202e}""#
        );
        let long = shown(&"x".repeat(100_000));
        assert!(long.len() < 110 && long.ends_with("...\" (100000 bytes)"));
    }

    #[test]
    fn a_list_in_a_message_is_bounded() {
        assert_eq!(few([""; 0], 20), "nothing");
        assert_eq!(few(["a", "b"], 20), "a, b");
        assert_eq!(
            few(["first", "second", "third", "x"], 12),
            "first, second and 2 more"
        );
        let long = few(["x".repeat(500), "y".to_owned()], 40);
        assert!(long.len() < 60 && long.ends_with("x and 1 more"), "{long}");
    }

    #[test]
    fn a_long_message_keeps_its_beginning_and_its_end() {
        assert_eq!(bounded("short", 300), "short");
        let path = "/p".repeat(300);
        let text = bounded(
            &format!("exec: {path:?}: executable file not found in $PATH"),
            300,
        );
        assert_eq!(text.chars().count(), 300);
        assert!(
            text.starts_with("exec: \"/p/p")
                && text.ends_with("executable file not found in $PATH")
        );
        assert_eq!(bounded(&"\u{e9}".repeat(301), 300).chars().count(), 300);
    }

    /// Former fault: the cure was cut in its middle.
    #[test]
    fn a_cut_line_has_its_whole_cure() {
        let cure = format!("; {}", "c".repeat(MESSAGE));
        for fault in [400, 500, 5_000, 100_000] {
            let line = bounded(&format!("{}{cure}", "f".repeat(fault)), LINE);
            assert!(line.ends_with(&cure) && line.starts_with("fff"), "{line}");
            assert!(line.chars().count() <= LINE, "{line}");
        }
    }

    #[test]
    fn measures_the_distance_between_words() {
        for (from, to, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("policy", "policy", 0),
            ("polciy", "policy", 1),
            ("polcy", "policy", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), edits, "{from} {to}");
            assert_eq!(distance(to, from), edits, "{to} {from}");
        }
    }

    #[test]
    fn suggests_only_near_words() {
        let words = ["none", "local"];
        assert_eq!(nearest("Local", words), Some("local"));
        assert_eq!(nearest("lcoal", words), Some("local"));
        assert_eq!(nearest("allowlist", words), None);
        assert_eq!(nearest(&"n".repeat(10_000), words), None);
    }
}
