//! Lists in policies: complete, or additions to the base's list.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::rules::RuleItem;
use crate::rules::request::{Method, RequestRule};
use crate::text::{ValueError, shown};

/// The first item of a list that adds to the base's. No field has this as a value.
const ADDS: &str = "+";

/// A list of a policy file or of an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenList<T> {
    pub items: BTreeSet<T>,
    pub place: ListMode,
}

/// Whether the items replace the list below or are added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListMode {
    /// They replace the base's list.
    Instead,
    /// They are added to it.
    OnTop,
}

impl<T: Ord> WrittenList<T> {
    /// Puts a list over the base's. An addition without a base's list is dropped, so the policy stays incomplete.
    pub fn put(self, slot: &mut Option<Self>) {
        match (self.place, slot.as_mut()) {
            (ListMode::Instead, _) => *slot = Some(self),
            (ListMode::OnTop, Some(base)) => base.items.extend(self.items),
            (ListMode::OnTop, None) => {}
        }
    }
}

impl<T> From<BTreeSet<T>> for WrittenList<T> {
    fn from(items: BTreeSet<T>) -> Self {
        Self {
            items,
            place: ListMode::Instead,
        }
    }
}

/// An item of a list.
pub trait Item {
    /// Whether the comma between this word and this item is part of the item.
    fn begins_with(_word: &str, _item: &str) -> bool {
        false
    }
}

/// Commas separate the methods of a request rule, and also items. So words before the rule that can be methods belong
/// to it. (A host of one label is no public name, and host names are not written in capitals.)
impl Item for RuleItem {
    fn begins_with(word: &str, item: &str) -> bool {
        let is_mcp = RequestRule::is_mcp_meant(item);
        RequestRule::is_meant(item) && !is_mcp && word.parse::<Method>().is_ok()
    }
}

/// Items separated by commas; spaces around them are ignored, and commas within quotes are an item's own
/// (`"GET https://a.example/x,y", b.example`). An empty value is an empty list: nothing is allowed.
pub fn items<T: FromStr<Err = ValueError> + Ord + Item>(
    value: &str,
) -> Result<BTreeSet<T>, ValueError> {
    split::<T>(value).into_iter().map(str::parse).collect()
}

pub(super) fn split<T: Item>(value: &str) -> Vec<&str> {
    let spaces: &[char] = &[' '];
    if value.trim_matches(spaces).is_empty() {
        return Vec::new();
    }
    let mut begin = 0;
    // Start and end of each item.
    let mut all: Vec<(usize, usize)> = Vec::new();
    for end in ends(value) {
        let mut item = (begin, end);
        while let Some(word) = all.pop_if(|(from, to)| {
            T::begins_with(
                value[*from..*to].trim_matches(spaces),
                value[item.0..item.1].trim_matches(spaces),
            )
        }) {
            item.0 = word.0;
        }
        all.push(item);
        begin = end + 1;
    }
    let all = all.into_iter();
    all.map(|(from, to)| unquoted(value[from..to].trim_matches(spaces)))
        .collect()
}

/// The commas outside of quotes, and the end. A quote begins with an item; no rule has one in its text.
fn ends(value: &str) -> Vec<usize> {
    scan(value).0
}

/// Whether each quote that begins with an item has its end: a list that is joined with another one would swallow its items.
pub(super) fn closes_quotes(value: &str) -> bool {
    scan(value).1
}

fn scan(value: &str) -> (Vec<usize>, bool) {
    let (mut is_begun, mut is_quoted) = (false, false);
    let mut ends = Vec::new();
    for (at, character) in value.char_indices() {
        match character {
            ' ' => continue,
            QUOTE => is_quoted = !is_begun && !is_quoted,
            ',' if !is_quoted => ends.push(at),
            _ => {}
        }
        is_begun = character != ',' || is_quoted;
    }
    ends.push(value.len());
    (ends, !is_quoted)
}

/// What stands between the quotes. A text with other quotes stays as it is, and is no item.
fn unquoted(item: &str) -> &str {
    let inside = item
        .strip_prefix(QUOTE)
        .and_then(|rest| rest.strip_suffix(QUOTE));
    match inside {
        Some(inside) if !inside.contains(QUOTE) => inside,
        _ => item,
    }
}

/// The text of a list with these items, each in quotes that would be more than one without.
pub fn list_text<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let quoted = items.into_iter().map(|item| {
        let item = item.as_ref();
        match split::<RuleItem>(item).len() > 1 && !item.contains(QUOTE) {
            true => format!("{QUOTE}{item}{QUOTE}"),
            false => item.to_owned(),
        }
    });
    quoted.collect::<Vec<_>>().join(",")
}

const QUOTE: char = '"';

/// The syntax of annotations.
impl<T: FromStr<Err = ValueError> + Ord + Item> FromStr for WrittenList<T> {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        let mut words = split::<T>(value).into_iter().peekable();
        let place = match words.next_if_eq(&ADDS) {
            Some(_) => ListMode::OnTop,
            None => ListMode::Instead,
        };
        let items: BTreeSet<T> = words.map(str::parse).collect::<Result<_, _>>()?;
        match (place, items.is_empty()) {
            (ListMode::OnTop, true) => Err(ValueError::grammar(value, NOTHING_ADDED)),
            _ => Ok(Self { items, place }),
        }
    }
}

const NOTHING_ADDED: &str = "a list: after `+` come the values to add";

/// The syntax of files.
impl<'de, T: Deserialize<'de> + Ord> Deserialize<'de> for WrittenList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(WrittenListVisitor(PhantomData))
    }
}

struct WrittenListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Ord> Visitor<'de> for WrittenListVisitor<T> {
    type Value = WrittenList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<WrittenList<T>, E> {
        Err(no_list(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<WrittenList<T>, A::Error> {
        let mut list = WrittenList::from(BTreeSet::new());
        match seq.next_element_seed(FirstItem(PhantomData))? {
            None => return Ok(list),
            Some(None) => list.place = ListMode::OnTop,
            Some(Some(item)) => drop(list.items.insert(item)),
        }
        while let Some(item) = seq.next_element()? {
            list.items.insert(item);
        }
        match list.items.is_empty() {
            true => Err(A::Error::custom(format!("\"+\" is not {NOTHING_ADDED}"))),
            false => Ok(list),
        }
    }
}

/// A list of a settings file.
///
/// # Errors
/// It is none, or an item is wrong.
pub fn items_of_file<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_any(ItemsVisitor(PhantomData))
}

struct ItemsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ItemsVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        Err(no_list(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(items)
    }
}

/// The error for a text in place of a list, with the list of this one item.
fn no_list<E: Error>(text: &str) -> E {
    let text = shown(text);
    E::custom(format!("{text} is not a list; did you mean [{text}]?"))
}

/// The first item, or `None` for [`ADDS`].
struct FirstItem<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for FirstItem<T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for FirstItem<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<T>, E> {
        match text {
            ADDS => Ok(None),
            _ => {
                let item: StrDeserializer<'_, E> = text.into_deserializer();
                T::deserialize(item).map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::SyscallName;
    use crate::policy::InboundPort;

    fn list(value: &str) -> Result<WrittenList<SyscallName>, ValueError> {
        value.parse()
    }

    fn names(items: &[&str]) -> BTreeSet<SyscallName> {
        items.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[derive(Deserialize)]
    struct File {
        list: WrittenList<SyscallName>,
    }

    #[test]
    fn a_plus_in_front_adds_and_anywhere_else_is_no_value() {
        for (value, items, place) in [
            ("", &[][..], ListMode::Instead),
            ("bpf, read", &["bpf", "read"], ListMode::Instead),
            ("+,bpf", &["bpf"], ListMode::OnTop),
            (" + , bpf,read ", &["bpf", "read"], ListMode::OnTop),
        ] {
            let items = names(items);
            assert_eq!(
                list(value).unwrap(),
                WrittenList { items, place },
                "{value:?}"
            );
        }
        for bad in ["+", "bpf,+", "+,+", "+bpf", "+,", ",", "+ bpf"] {
            assert!(list(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            list("+").unwrap_err().to_string(),
            "\"+\" is not a list: after `+` come the values to add"
        );
    }

    #[test]
    fn a_file_and_an_annotation_give_the_same_list() {
        for (file, annotation) in [
            ("[]", ""),
            ("['bpf', 'read']", "bpf,read"),
            ("['+', 'bpf']", "+,bpf"),
            ("['+']", "+"),
            ("['bpf', '+']", "bpf,+"),
            ("['+', '+']", "+,+"),
            ("['Bpf']", "Bpf"),
        ] {
            let file: Result<File, _> = toml::from_str(&format!("list = {file}"));
            assert_eq!(
                file.map(|f| f.list).ok(),
                list(annotation).ok(),
                "{annotation}"
            );
        }
    }

    #[test]
    fn an_error_in_the_first_item_reads_like_one_in_any_other() {
        for bad in ["[7, 'bpf']", "['bpf', 7]"] {
            let error = toml::from_str::<File>(&format!("list = {bad}"));
            let error = error.map(|file| file.list).unwrap_err();
            assert_eq!(
                error.message(),
                "invalid type: integer `7`, expected a string"
            );
            assert!(error.span().is_some(), "{bad}");
        }
        let error = toml::from_str::<File>("list = ['Bpf']").map(|file| file.list);
        let error = error.unwrap_err();
        assert!(
            error.message().contains("is not a system call's name"),
            "{error}"
        );
    }

    #[test]
    fn a_text_in_place_of_a_list_is_refused_with_the_list() {
        #[derive(Debug, Deserialize)]
        struct Settings {
            #[serde(deserialize_with = "items_of_file")]
            list: Vec<String>,
        }
        let said = "\"bpf\" is not a list; did you mean [\"bpf\"]?";
        let error = toml::from_str::<File>("list = 'bpf'").map(|file| file.list);
        assert_eq!(error.unwrap_err().message(), said);
        let of = |text: &str| toml::from_str::<Settings>(text).map(|settings| settings.list);
        let error = of("list = 'bpf'").unwrap_err();
        assert_eq!(error.message(), said);
        assert!(error.span().is_some());
        assert!(of("list = 7").is_err());
        assert_eq!(of("list = ['bpf']").unwrap(), ["bpf"]);
    }

    #[test]
    fn an_addition_without_a_base_is_dropped() {
        let mut slot: Option<WrittenList<InboundPort>> = None;
        "+,80".parse::<WrittenList<_>>().unwrap().put(&mut slot);
        assert_eq!(slot, None);
        "22".parse::<WrittenList<_>>().unwrap().put(&mut slot);
        "+,80".parse::<WrittenList<_>>().unwrap().put(&mut slot);
        assert_eq!(slot, Some("22,80".parse().unwrap()));
        "443".parse::<WrittenList<_>>().unwrap().put(&mut slot);
        assert_eq!(slot, Some("443".parse().unwrap()));
    }

    /// An annotation has all rules in one text.
    #[test]
    fn methods_before_a_rule_are_its_own() {
        let items = |text: &str| {
            let items = super::items::<RuleItem>(text).unwrap();
            items.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for (text, expected) in [
            (
                "a.test, GET,HEAD https://b.test/x, @github",
                &["GET,HEAD https://b.test/x", "a.test", "@github"][..],
            ),
            (
                "GET https://a.test/x,POST,PUT https://a.test/y",
                &["GET https://a.test/x", "POST,PUT https://a.test/y"],
            ),
            (
                "A.TEST,GET,HEAD,POST https://b.test",
                &["GET,HEAD,POST https://b.test/**", "a.test"],
            ),
        ] {
            let mut expected = expected.to_vec();
            let mut found = items(text);
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "{text}");
        }
        for text in [
            "GET, HEAD https://a.test/",
            "GET https://a.test/a,b c",
            "GET,, HEAD https://a.test/",
        ] {
            assert!(super::items::<RuleItem>(text).is_err(), "{text}");
        }
    }

    /// Rules are written as an annotation and read again by `update`: each is the same rule, and no part of one becomes another.
    #[test]
    fn a_comma_within_quotes_is_the_items_own() {
        for rules in [
            &["GET https://a.test/x,y.example.com"][..],
            &["GET,HEAD https://a.test/x,GET,https:/b.test/y", "c.test"],
            &[
                "a.test",
                "GET https://a.test/x,y",
                "POST,PUT https://b.test/,",
                "z.test:22",
            ],
        ] {
            let text = super::list_text(rules);
            let mut found: Vec<String> = super::items::<RuleItem>(&text)
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect();
            let mut rules = rules.to_vec();
            found.sort_unstable();
            rules.sort_unstable();
            assert_eq!(found, rules, "{text}");
        }
        for text in [
            "\"a.test",
            "a.test\"",
            "\"a.test\" \"b.test\"",
            "\"a.test\"b.test",
            "\"a.test, b.test\"",
            "\"\"",
            "\"\"a.test\"\"",
            "GET,\"HEAD https://a.test/\"",
            "\"GET\", https://a.test/",
            "a.test\", \"b.test",
        ] {
            assert!(super::items::<RuleItem>(text).is_err(), "{text}");
        }
        // A quote within an item begins none: the comma after it parts.
        assert_eq!(super::split::<RuleItem>("a\"b, c\""), ["a\"b", "c\""]);
        assert_eq!(super::split::<RuleItem>(" \"a, b\" , c"), ["a, b", "c"]);
    }
}
