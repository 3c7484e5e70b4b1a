//! A server's lists, without the items that may not be used.

use serde_json::value::RawValue;

use super::copy::{copied, is_plain, members, messages, text};
use crate::rules::request::calls::{McpLists, NamePatterns};

impl NamePatterns {
    /// The list with only its shown items.
    fn of(&self, list: &RawValue, field: &str) -> Result<String, String> {
        let entries: Vec<&RawValue> =
            serde_json::from_str(list.get()).map_err(|error| error.to_string())?;
        let mut out = String::from("[");
        for entry in entries {
            let name = members(entry, &[field])?
                .get(field)
                .and_then(|name| text(name));
            if name.is_some_and(|name| self.shows(&name)) {
                if out.len() > 1 {
                    out.push(',');
                }
                out.push_str(entry.get());
            }
        }
        out.push(']');
        Ok(out)
    }

    fn shows(&self, name: &str) -> bool {
        is_plain(name)
            && self.allow.iter().any(|glob| glob.matches(name))
            && !self.deny.iter().any(|glob| glob.denies(name))
    }
}

impl McpLists {
    /// A server's message, with only the shown items in its lists.
    pub fn filtered(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let bytes = copied(message)?;
        let mut lists = Vec::new();
        for answer in messages(&bytes)?.0 {
            if let Some(result) = members(answer, &["result"])?.get("result") {
                let result = members(result, &["tools", "prompts", "resources"])?;
                for (list, shown, field) in [
                    ("tools", &self.tools, "name"),
                    ("prompts", &self.prompts, "name"),
                    ("resources", &self.resources, "uri"),
                ] {
                    if let Some(list) = result.get(list) {
                        lists.push((list.get(), shown.of(list, field)?));
                    }
                }
            }
        }
        // Each list is a slice of these bytes, and is replaced in place.
        lists.sort_by_key(|(list, _)| list.as_ptr().addr());
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for (list, filtered) in lists {
            let begin = list.as_ptr().addr() - bytes.as_ptr().addr();
            out.extend_from_slice(&bytes[at..begin]);
            out.extend_from_slice(filtered.as_bytes());
            at = begin + list.len();
        }
        out.extend_from_slice(&bytes[at..]);
        Ok(out)
    }
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
