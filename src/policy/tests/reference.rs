//! docs/policy.md: its tables of fields, values and ceilings are what the table of fields says.
//!
//! `AGENTBOX_BLESS=1 cargo test --lib the_reference` writes them.

use std::fmt::Write as _;

use super::*;
use crate::policy::rows::Row;

/// Values that have a name in the page.
fn named(field: Field, policy: &Policy) -> Option<&'static str> {
    let nine: BTreeSet<Capability> = Capability::ORDINARY.into();
    let three: BTreeSet<SyscallName> = DEBUGGERS.map(|name| name.parse().unwrap()).into();
    let name = match field {
        Field::FilesystemWorkspaceAt if policy.filesystem.workspace_at.is_empty() => "anywhere",
        Field::NetworkAllow if policy.network.allow == services() => "four services",
        Field::SyscallsLimit if policy.syscalls.limit == three => "the three",
        Field::PrivilegesCapabilities if policy.privileges.capabilities == nine => "the nine",
        Field::AnnotationsLoosen if policy.annotations.loosen == LOOSEN.into() => "the thirteen",
        _ => return None,
    };
    Some(name)
}

/// Each field with its values in the built-in policies.
fn built_in() -> String {
    let policies = BUILTIN.map(|(name, _)| (name, builtin(name)));
    let names = policies.each_ref().map(|(name, _)| *name);
    let mut table = format!("| Field | {} |\n|---|---|---|---|\n", names.join(" | "));
    for field in Field::ALL {
        let values = policies.each_ref().map(|(_, policy)| {
            named(*field, policy).map_or_else(|| table::shown(policy, *field), str::to_owned)
        });
        writeln!(table, "| `{field}` | {} |", values.join(" | ")).unwrap();
    }
    table
}

/// Which values there are, from what an error says of any other.
fn values(said: &str) -> String {
    const LIST: &str = "a list; an item is ";
    let (list, item) = match said.strip_prefix(LIST) {
        Some(item) => (true, item),
        None => (false, said),
    };
    let words = match item.strip_prefix("one of ") {
        // What it means says where they stand.
        Some(words) if words.ends_with(" more") => "names".to_owned(),
        Some(words) => format!("`{}`", words.replace(", ", "`, `")),
        // How an item is spelled has a section of its own.
        None if list => return format!("{LIST}{}", item.split(':').next().unwrap_or(item)),
        None => item.to_owned(),
    };
    match list {
        true => format!("a list of {words}"),
        false => words,
    }
}

/// Each field with its values and its meaning.
fn fields() -> String {
    let mut table = "| Field | Values, least first | Meaning |\n|---|---|---|\n".to_owned();
    for Row {
        field,
        values: said,
        meaning,
        ..
    } in table::rows()
    {
        let alone = match field.has_annotation() {
            true => "",
            false => " No annotation sets it.",
        };
        writeln!(
            table,
            "| `{field}` | {} | {meaning}{alone} |",
            values(&said)
        )
        .unwrap();
    }
    table
}

/// Each rule of ceilings with its fields.
fn ceilings() -> String {
    let mut rules: Vec<(&str, Vec<String>)> = Vec::new();
    for Row { field, within, .. } in table::rows() {
        let field = format!("`{field}`");
        match rules.iter_mut().find(|(rule, _)| *rule == within) {
            Some((_, fields)) => fields.push(field),
            None => rules.push((within, vec![field])),
        }
    }
    let mut table = "| Field | Within the ceiling if it is |\n|---|---|\n".to_owned();
    for (rule, fields) in rules {
        writeln!(table, "| {} | {rule} |", fields.join(", ")).unwrap();
    }
    table
}

/// The page with this table between its two markers.
fn with(page: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- {name}: the table of src/policy/table.rs -->\n");
    let end = format!("<!-- end of {name} -->\n");
    let (before, rest) = page.split_once(&begin).expect(&begin);
    let (_, after) = rest.split_once(&end).expect(&end);
    format!("{before}{begin}\n{table}\n{end}{after}")
}

#[test]
fn the_reference_is_what_the_table_of_fields_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/policy.md");
    let page = std::fs::read_to_string(path).unwrap();
    let tables = [
        ("built-in values", built_in()),
        ("fields", fields()),
        ("ceilings", ceilings()),
    ];
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
    let policies = ["strict", "standard", "permissive"].map(builtin);
    for field in Field::ALL {
        let values = policies.each_ref().map(|policy| {
            named(*field, policy).map_or_else(|| table::shown(policy, *field), str::to_owned)
        });
        let row = format!("| `{field}` | {} |", values.join(" | "));
        assert!(documentation.lines().any(|line| line == row), "{row}");
    }
}
