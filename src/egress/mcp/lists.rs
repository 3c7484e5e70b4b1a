//! What a server lists, without what may not be named.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::LONGEST;
use super::copy::{ValueCopy, is_plain, object, unlike};
use crate::policy::request::NameGlob;

/// Patterns of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamePatterns {
    /// Those that are shown,
    pub allow: Vec<NameGlob>,
    /// unless one of these means them.
    pub deny: Vec<NameGlob>,
}

impl NamePatterns {
    fn shows(&self, name: &str) -> bool {
        is_plain(name)
            && self.allow.iter().any(|glob| glob.matches(name))
            && !self.deny.iter().any(|glob| glob.denies(name))
    }
}

/// Which names an MCP server's lists may show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpLists {
    /// Tools by their names,
    pub tools: NamePatterns,
    /// prompts by theirs,
    pub prompts: NamePatterns,
    /// and resources by their addresses.
    pub resources: NamePatterns,
}

impl McpLists {
    /// A message of a server with what may be shown of its lists alone.
    pub fn filtered(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut reader = serde_json::Deserializer::from_slice(message);
        let place = ListPosition::Answers;
        let read = Filter(self, place, &mut bytes).deserialize(&mut reader);
        let read = read.and_then(|()| reader.end());
        read.map_err(|error| error.to_string())?;
        match bytes.len() <= LONGEST {
            true => Ok(bytes),
            false => Err(format!(
                "it is longer than {LONGEST} bytes with its numbers written out"
            )),
        }
    }

    fn of(&self, list: &str) -> Option<(&NamePatterns, &'static str)> {
        match list {
            "tools" => Some((&self.tools, "name")),
            "prompts" => Some((&self.prompts, "name")),
            "resources" => Some((&self.resources, "uri")),
            _ => None,
        }
    }
}

/// The position of a value in a server's message.
#[derive(Clone, Copy)]
enum ListPosition<'a> {
    /// One message, or a list of them.
    Answers,
    Answer,
    Result,
    List(&'a NamePatterns, &'static str),
    /// One thing of a list.
    Entry(&'static str),
}

/// Copies a server's message without what is not to be shown.
struct Filter<'a>(&'a McpLists, ListPosition<'a>, &'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Filter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        match self.1 {
            ListPosition::Answers => from.deserialize_any(self),
            ListPosition::List(..) => from.deserialize_seq(self),
            ListPosition::Answer | ListPosition::Result | ListPosition::Entry(_) => {
                from.deserialize_map(self)
            }
        }
    }
}

impl<'de> Visitor<'de> for Filter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.1 {
            ListPosition::Answers => "a message of JSON-RPC or a list of them",
            ListPosition::Answer => "a message of JSON-RPC",
            ListPosition::Result => "a result that is an object",
            ListPosition::List(..) => "a list",
            ListPosition::Entry(_) => "an object in a list",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Self(lists, place, out) = self;
        object(map, out, |key, map, out| match place {
            ListPosition::Answers | ListPosition::Answer => {
                unlike(key, &["result"])?;
                match key {
                    "result" => map.next_value_seed(Filter(lists, ListPosition::Result, out)),
                    _ => map.next_value_seed(ValueCopy(out)).map(drop),
                }
            }
            ListPosition::Result => {
                unlike(key, &["tools", "prompts", "resources"])?;
                match lists.of(key) {
                    Some((shown, field)) => {
                        map.next_value_seed(Filter(lists, ListPosition::List(shown, field), out))
                    }
                    None => map.next_value_seed(ValueCopy(out)).map(drop),
                }
            }
            ListPosition::Entry(field) => {
                unlike(key, &[field])?;
                map.next_value_seed(ValueCopy(out)).map(drop)
            }
            ListPosition::List(..) => Err(A::Error::custom("a list is no object")),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let Self(lists, place, out) = self;
        out.push(b'[');
        let begin = out.len();
        loop {
            let before = out.len();
            if before > begin {
                out.push(b',');
            }
            let at = out.len();
            let read = match place {
                ListPosition::List(_, field) => {
                    all.next_element_seed(Filter(lists, ListPosition::Entry(field), out))?
                }
                _ => all.next_element_seed(Filter(lists, ListPosition::Answer, out))?,
            };
            let is_shown = read.is_some()
                && match place {
                    ListPosition::List(shown, field) => {
                        named(&out[at..], field).is_some_and(|name| shown.shows(&name))
                    }
                    _ => true,
                };
            if !is_shown {
                out.truncate(before);
            }
            if read.is_none() {
                out.push(b']');
                return Ok(());
            }
        }
    }
}

/// The name of a thing, which was written here a moment ago.
fn named(entry: &[u8], field: &str) -> Option<String> {
    /// A list's item with its name.
    struct NamedItem<'a>(&'a str);
    impl<'de> Visitor<'de> for NamedItem<'_> {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut name = None;
            while let Some(key) = map.next_key::<String>()? {
                let mut scratch = Vec::new();
                let text = map.next_value_seed(ValueCopy(&mut scratch))?;
                if key == self.0 {
                    name = text;
                }
            }
            Ok(name)
        }
    }
    let mut reader = serde_json::Deserializer::from_slice(entry);
    reader.deserialize_map(NamedItem(field)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_show_what_may_be_named() {
        let globs = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let lists = McpLists {
            tools: NamePatterns {
                allow: globs(&["search_*"]),
                deny: globs(&["*secret*"]),
            },
            resources: NamePatterns {
                allow: globs(&["file:///a"]),
                deny: Vec::new(),
            },
            prompts: NamePatterns::default(),
        };
        let filtered = |text: &str| {
            lists
                .filtered(text.as_bytes())
                .map(|b| String::from_utf8(b).unwrap())
        };
        let answer = r#"{"id":1,"result":{"tools":[{"name":"delete"},{"name":"search_a","x":{"name":"delete"}},{"x":"search_b"},{"name":"search_c\u0000"},{"name":"search_Secret"},{"name":"search_b"}],"next":"c"}}"#;
        assert_eq!(
            filtered(answer).unwrap(),
            r#"{"id":1,"result":{"tools":[{"name":"search_a","x":{"name":"delete"}},{"name":"search_b"}],"next":"c"}}"#
        );
        assert_eq!(
            filtered(r#"[{"result":{"prompts":[{"name":"x"}],"resources":[{"uri":"file:///a"},{"uri":"b"}]}},{"error":[]}]"#).unwrap(),
            r#"[{"result":{"prompts":[],"resources":[{"uri":"file:///a"}]}},{"error":[]}]"#
        );
        for text in [
            r#"{"result":{"tools":[]},"result":{}}"#,
            r#"{"result":{"Tools":[{"name":"delete"}]}}"#,
            r#"{"Result":{"tools":[{"name":"delete"}]}}"#,
            r#"{"result":{"tools\u0000":[{"name":"delete"}]}}"#,
            r#"{"result":{"tools ":[{"name":"delete"}]}}"#,
            r#"{"result":{"tools":[{"name":"search_a","Name":"delete"}]}}"#,
            r#"{"result":{"tools":{"name":"delete"}}}"#,
            r#"{"result":[]}"#,
            "x",
        ] {
            assert!(filtered(text).is_err(), "{text}");
        }
    }
}
