//! PURE. Where the values of a policy come from, as text.

use std::collections::BTreeMap;

use super::page::Page;
use crate::policy::Origin;
use crate::text::escape;

pub(super) fn explain(page: &mut Page, origins: &BTreeMap<String, String>) {
    let is_shown = |origin: &str| page.is_whole() || !Origin::is_builtins(origin);
    let shown: Vec<_> = origins.iter().filter(|(_, o)| is_shown(o)).collect();
    if shown.is_empty() {
        return;
    }
    page.line(match page.is_whole() {
        true => "origin of each value",
        false => "origins of values that are not the built-in policy's",
    });
    if page.is_whole() {
        for (field, origin) in shown {
            page.item(format_args!("{field}: {}", escape(origin)));
        }
        return;
    }
    for (fields, origin) in by_origin(&shown) {
        page.item(format_args!("{fields}: {}", escape(origin)));
    }
}

/// The most fields of a section that are named one by one for one origin.
const MOST_NAMED: usize = 3;

/// Fields with one origin in a line, in the order of their first field: `network.*` for all of many in a section.
fn by_origin<'a>(origins: &[(&'a String, &'a String)]) -> Vec<(String, &'a str)> {
    let mut lines: Vec<(Vec<&str>, &str)> = Vec::new();
    for (field, origin) in origins {
        match lines.iter_mut().find(|(_, known)| known == origin) {
            Some((fields, _)) => fields.push(field),
            None => lines.push((vec![field], origin)),
        }
    }
    let section = |field: &&str| field.split('.').next().unwrap_or_default().to_owned();
    let of_section = |name: &str| {
        let all = origins
            .iter()
            .filter(|(field, _)| section(&field.as_str()) == name);
        all.count()
    };
    let named = |fields: Vec<&str>| {
        let mut sections: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for field in fields {
            sections.entry(section(&field)).or_default().push(field);
        }
        let words = sections
            .into_iter()
            // Only where no field of the section has another origin.
            .map(|(name, fields)| match fields.len() {
                many if many > MOST_NAMED && many == of_section(&name) => format!("{name}.*"),
                _ => fields.join(", "),
            });
        words.collect::<Vec<_>>().join(", ")
    };
    lines
        .into_iter()
        .map(|(fields, origin)| (named(fields), origin))
        .collect()
}
