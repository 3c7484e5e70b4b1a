//! docs/policy.md: its tables of fields and of ceilings match the table of fields.
//!
//! `AGENTBOX_BLESS=1 cargo test --lib the_reference` writes them.

use std::fmt::Write as _;

use super::*;
use crate::policy::ceiling_rule::{
    ApprovalCeiling, AtLeast, AtMost, CeilingRule, NoCeiling, PartOf, WithinBound,
};
use crate::policy::rows::Row;

/// For a field that grants the workload nothing.
const ANYTHING: &str = <NoCeiling as CeilingRule<()>>::WITHIN;

/// Values with a name on the page.
fn named(field: Field, policy: &Policy) -> Option<&'static str> {
    let nine: BTreeSet<Capability> = Capability::ORDINARY.into();
    let three: BTreeSet<SyscallName> = DEBUGGERS.map(|name| name.parse().unwrap()).into();
    let name = match field {
        Field::FilesystemWorkspaceAt if policy.filesystem.workspace_at.is_empty() => "anywhere",
        Field::NetworkAllow if policy.network.allow == services() => "four services",
        Field::SyscallsLimit if policy.syscalls.limit == three => "the three",
        Field::PrivilegesCapabilities if policy.privileges.capabilities == nine => "the nine",
        Field::AnnotationsLoosen if policy.annotations.loosen == LOOSEN.into() => "the fifteen",
        _ => return None,
    };
    Some(name)
}

/// A field's value on the page.
fn value(field: Field, policy: &Policy) -> String {
    // Two asterisks would be italics.
    let shown = || table::shown(policy, field).replace('*', r"\*");
    named(field, policy).map_or_else(shown, str::to_owned)
}

/// The possible values, from the text of an error about any other.
fn values(said: &str) -> String {
    // The error has the syntax; the page does not need it.
    const SPELLINGS: [&str; 2] = [" in KiB, MiB or GiB", " with at most three decimals"];
    let (list, item) = match said.strip_prefix("a list; an item is ") {
        Some(item) => ("list: ", item),
        None => ("", said),
    };
    let words = match item.strip_prefix("one of ") {
        // The field's meaning gives the list.
        Some(words) if words.ends_with(" more") => "names".to_owned(),
        Some(words) => format!("`{}`", words.replace(", ", "`, `")),
        None => {
            let cut = [":", " of at most ", ", such as "];
            let item = cut
                .iter()
                .fold(item, |item, from| item.split(from).next().unwrap_or(item));
            let range = item.split_once(" from ").map_or(item, |(_, range)| range);
            SPELLINGS
                .iter()
                .fold(range.to_owned(), |range, how| range.replace(how, ""))
        }
    };
    format!("{list}{words}")
}

/// How annotations can change a field under `standard` and `permissive`, without a named ceiling.
fn annotation(row: &Row) -> &'static str {
    match row.field {
        field if !field.has_annotation() => "none",
        field if LOOSEN.contains(&field) => "loosen",
        _ if row.within == ANYTHING => "any",
        _ => "tighten",
    }
}

/// The built-in policies with a column. The page's text has what `ci` changes in `standard`.
const COLUMNS: [&str; 3] = ["strict", "standard", "permissive"];

/// A field's values in the built-in policies: one where they are the same.
fn defaults(field: Field) -> String {
    let [strict, standard, permissive] = COLUMNS.map(|name| value(field, &builtin(name)));
    match strict == standard && standard == permissive {
        true => strict,
        false => [strict, standard, permissive].join("; "),
    }
}

/// Each field with its values, those of the built-in policies, its annotation and its meaning.
fn fields() -> String {
    let names = COLUMNS.join("; ");
    let mut table = format!(
        "| Field | Values, tightest first | {names} | Annotation | Meaning |\n|---|---|---|---|---|\n"
    );
    for row in table::rows() {
        let cells = [
            format!("`{}`", row.field),
            values(&row.values),
            defaults(row.field),
            annotation(&row).to_owned(),
            row.meaning,
        ];
        writeln!(table, "| {} |", cells.join(" | ")).unwrap();
    }
    table
}

/// Each rule of ceilings with its fields, except for those that a sentence of the page covers.
fn ceilings() -> String {
    let usual = [
        <AtMost as CeilingRule<u8>>::WITHIN,
        <AtLeast as CeilingRule<u8>>::WITHIN,
        <PartOf as CeilingRule<BTreeSet<u8>>>::WITHIN,
        <ApprovalCeiling as CeilingRule<OnUnknown>>::WITHIN,
        <WithinBound as CeilingRule<ProcessLimit>>::WITHIN,
        ANYTHING,
    ];
    let mut rules: Vec<(&str, Vec<String>)> = Vec::new();
    for Row { field, within, .. } in table::rows() {
        let field = format!("`{field}`");
        match rules.iter_mut().find(|(rule, _)| *rule == within) {
            Some((_, fields)) => fields.push(field),
            None => rules.push((within, vec![field])),
        }
    }
    rules.retain(|(rule, _)| !usual.contains(rule));
    let mut table = "| Field | Within the ceiling |\n|---|---|\n".to_owned();
    for (rule, fields) in rules {
        writeln!(table, "| {} | {rule} |", fields.join(", ")).unwrap();
    }
    table
}

/// The page with this table between its markers.
fn with(page: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- {name}: the table of src/policy/table.rs -->\n");
    let end = format!("<!-- end of {name} -->\n");
    let (before, rest) = page.split_once(&begin).expect(&begin);
    let (_, after) = rest.split_once(&end).expect(&end);
    format!("{before}{begin}\n{table}\n{end}{after}")
}

#[test]
fn the_reference_matches_the_table_of_fields() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/policy.md");
    let page = std::fs::read_to_string(path).unwrap();
    let tables = [("fields", fields()), ("ceilings", ceilings())];
    let right = (tables.iter()).fold(page.clone(), |page, (name, table)| with(&page, name, table));
    if std::env::var_os("AGENTBOX_BLESS").is_some() {
        std::fs::write(path, right).unwrap();
        return;
    }
    assert!(
        page == right,
        "docs/policy.md is stale: AGENTBOX_BLESS=1 cargo test --lib the_reference"
    );
}

#[test]
fn the_documentation_lists_every_field_with_its_built_in_values() {
    let documentation = include_str!("../../../docs/policy.md");
    for field in Field::ALL {
        let (begin, values) = (format!("| `{field}` | "), defaults(*field));
        let is_row =
            |line: &str| line.starts_with(&begin) && line.contains(&format!(" | {values} | "));
        assert!(documentation.lines().any(is_row), "{begin}... | {values} |");
    }
}
