//! PURE. Texts of a line: bounded, and harmless on a terminal, even when a JSON reader prints them unescaped.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize};

use crate::text::{escape, is_treacherous};

/// Most characters of one text in a line; the rest is cut.
pub const LONGEST: usize = 256;
/// Most texts of one list in a line; `...` stands for the rest.
pub const MOST_ITEMS: usize = 64;
/// Most bytes of one list in a line, with escapes. Such a line is far shorter than the part of a file that writers read
/// to find the last line.
pub const LONGEST_LIST: usize = MOST_ITEMS * LONGEST;

/// A text without characters that a terminal obeys or hides. One that is made here is cut; one that is read from a line
/// keeps its length. The fields of a line have this type and no `String`, so that no new field can be forgotten.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline, description = ""))]
pub struct PlainText(String);

impl From<&str> for PlainText {
    fn from(text: &str) -> Self {
        let cut: String = text.chars().take(LONGEST).collect();
        match text.len() > cut.len() {
            true => Self(escape(&cut) + "..."),
            false => Self(escape(&cut)),
        }
    }
}

impl From<String> for PlainText {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl<'de> Deserialize<'de> for PlainText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.contains(is_treacherous) {
            true => Ok(Self(escape(&text))),
            false => Ok(Self(text)),
        }
    }
}

impl PlainText {
    /// Most characters of one.
    pub const LONGEST: usize = LONGEST;

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for PlainText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for PlainText {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Debug for PlainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for PlainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl PartialEq<str> for PlainText {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for PlainText {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialEq<String> for PlainText {
    fn eq(&self, other: &String) -> bool {
        self.0 == *other
    }
}

/// A bounded list of such texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(inline, description = ""))]
pub struct PlainList(Vec<PlainText>);

impl From<Vec<String>> for PlainList {
    fn from(texts: Vec<String>) -> Self {
        let mut left = LONGEST_LIST;
        let all = texts.len();
        let mut list: Vec<PlainText> = texts
            .into_iter()
            .take(MOST_ITEMS)
            .map(PlainText::from)
            .take_while(|text| {
                let rest = left.checked_sub(text.len());
                left = rest.unwrap_or(0);
                rest.is_some()
            })
            .collect();
        if list.len() < all {
            list.push("...".into());
        }
        Self(list)
    }
}

impl FromIterator<String> for PlainList {
    fn from_iter<I: IntoIterator<Item = String>>(texts: I) -> Self {
        Self::from(Vec::from_iter(texts))
    }
}

impl PlainList {
    /// Whether it has no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the first texts alone.
    pub fn truncate(&mut self, most: usize) {
        self.0.truncate(most);
    }
}

impl Deref for PlainList {
    type Target = [PlainText];

    fn deref(&self) -> &[PlainText] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\n\u{1b}[2J\u{202e}\u{9b}b";

    #[test]
    fn no_text_holds_what_a_terminal_obeys_however_it_came_in() {
        let made = PlainText::from(HOSTILE);
        let json = serde_json::to_string(HOSTILE).unwrap();
        let read: PlainText = serde_json::from_str(&json).unwrap();
        for text in [&made, &read] {
            assert!(
                text.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{text}"
            );
        }
        assert_eq!(made, read);
    }

    #[test]
    fn a_text_that_is_read_again_is_the_same() {
        for text in [
            HOSTILE.repeat(500),
            "x".repeat(LONGEST + 1),
            "\u{e9}".repeat(300),
        ] {
            let made = PlainText::from(text);
            let json = serde_json::to_string(&made).unwrap();
            assert_eq!(serde_json::from_str::<PlainText>(&json).unwrap(), made);
        }
        let list = PlainList::from(vec![HOSTILE.repeat(99); 2 * MOST_ITEMS]);
        let json = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<PlainList>(&json).unwrap(), list);
    }

    #[test]
    fn the_types_of_a_line_have_no_other_texts() {
        // Of agentbox itself: the format's name, the time and the hash of the line before.
        let own = ["schema", "prev"];
        for source in [
            include_str!("event.rs"),
            include_str!("what.rs"),
            include_str!("command.rs"),
            include_str!("life.rs"),
        ] {
            let production = source.split("#[cfg(test)]\nmod").next().unwrap();
            let fields = production.lines().filter_map(|line| {
                let (name, kind) = line.trim().strip_suffix(',')?.split_once(": ")?;
                kind.contains("String")
                    .then(|| name.trim_start_matches("pub "))
            });
            let fields: Vec<&str> = fields.filter(|name| !own.contains(name)).collect();
            assert_eq!(fields, Vec::<&str>::new());
        }
    }
}
