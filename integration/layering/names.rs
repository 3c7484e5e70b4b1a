//! Rules for the names of types: grep finds a type by its name, and the name says what it is.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::{is_test, sources};

/// Single words that end like participles and are nouns.
const NOUNS: &[&str] = &[];

/// Participles, adjectives, adverbs and pronouns that do not say what a type is. Those that end in `-ed` or
/// `-en` need not be listed.
const NO_NAMES: &[&str] = &[
    "Afterwards",
    "Alone",
    "Anything",
    "Around",
    "Asking",
    "At",
    "Bare",
    "Base",
    "Before",
    "Below",
    "Beside",
    "Blank",
    "Busy",
    "By",
    "Caught",
    "Common",
    "Cut",
    "Dead",
    "Deep",
    "Due",
    "Elsewhere",
    "Ephemeral",
    "Everything",
    "First",
    "Found",
    "Free",
    "Full",
    "Global",
    "Heard",
    "Held",
    "Holds",
    "Incomplete",
    "Inner",
    "Inside",
    "Isolates",
    "Joining",
    "Keeps",
    "Kept",
    "Large",
    "Last",
    "Lasting",
    "Leaves",
    "Live",
    "Made",
    "Meant",
    "More",
    "Never",
    "New",
    "News",
    "Next",
    "Nothing",
    "OfNode",
    "One",
    "Opaque",
    "Open",
    "Others",
    "Otherwise",
    "Ours",
    "Outer",
    "Outside",
    "Own",
    "Place",
    "Places",
    "Plain",
    "Random",
    "Raw",
    "Reading",
    "Ready",
    "Recent",
    "Running",
    "Said",
    "Sent",
    "Serving",
    "Several",
    "Shown",
    "Shows",
    "Since",
    "Spelt",
    "Spent",
    "Standing",
    "Stuck",
    "Synthetic",
    "Temporary",
    "Theirs",
    "To",
    "Told",
    "Use",
    "Via",
    "Waiting",
    "Way",
    "Ways",
    "What",
    "WhereApprovable",
    "Which",
    "Whole",
    "Whose",
    "Writable",
];

/// Last words that make no noun of a longer name: `HoneyThen`, `NoLonger`.
const NO_LAST_WORDS: &[&str] = &["Aside", "Below", "Longer", "Then", "Why"];

/// The types that a file defines, and the types of other folders that it uses.
#[derive(Default)]
struct Names {
    /// Every type, of any visibility.
    types: Vec<String>,
    /// The types that other files can name.
    public: BTreeSet<String>,
    /// Paths below `crate::`, from imports and from code.
    paths: Vec<Vec<String>>,
    /// Module names in this file, with their paths below `crate::`.
    modules: BTreeMap<String, Vec<String>>,
}

impl Names {
    fn define(&mut self, name: &syn::Ident, visibility: &syn::Visibility) {
        if !matches!(visibility, syn::Visibility::Inherited) {
            self.public.insert(name.to_string());
        }
        self.types.push(name.to_string());
    }

    fn import(&mut self, tree: &syn::UseTree, mut path: Vec<String>) {
        match tree {
            syn::UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.import(&part.tree, path);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone());
                }
            }
            syn::UseTree::Name(part) if part.ident == "self" => {
                let name = path.last().cloned().unwrap_or_default();
                self.imported(name, path);
            }
            syn::UseTree::Name(part) => {
                path.push(part.ident.to_string());
                self.imported(part.ident.to_string(), path);
            }
            syn::UseTree::Rename(part) => {
                path.push(part.ident.to_string());
                self.imported(part.rename.to_string(), path);
            }
            syn::UseTree::Glob(_) => {}
        }
    }

    fn imported(&mut self, name: String, path: Vec<String>) {
        if path.first().is_some_and(|part| part == "crate") {
            self.modules.insert(name, path[1..].to_vec());
            self.paths.push(path[1..].to_vec());
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if super::attributes(item).iter().any(super::is_for_tests) {
            return;
        }
        match item {
            syn::Item::Enum(one) => self.define(&one.ident, &one.vis),
            syn::Item::Struct(one) => self.define(&one.ident, &one.vis),
            syn::Item::Trait(one) => self.define(&one.ident, &one.vis),
            syn::Item::Type(one) => self.define(&one.ident, &one.vis),
            syn::Item::Union(one) => self.define(&one.ident, &one.vis),
            // Fields of policies: an enum by its name and its words, with a doc comment (`#`, `[...]`) before both.
            syn::Item::Macro(one) if one.mac.path.is_ident("words") => {
                let mut tokens = one.mac.tokens.clone().into_iter();
                let name = tokens.find_map(|token| match token {
                    proc_macro2::TokenTree::Ident(name) => Some(name),
                    _ => None,
                });
                let name = name.expect("words! begins with a name");
                self.define(&name, &syn::Visibility::Public(Default::default()));
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if parts.len() > 1 {
            self.paths.push(parts);
        }
        visit::visit_path(self, path);
    }
}

/// A type's name within a path, after the modules.
fn type_in(path: &[String]) -> Option<&str> {
    let is_type = |part: &&String| part.starts_with(|c: char| c.is_ascii_uppercase());
    // A constant has no lower-case letter.
    let is_constant = |part: &str| part.len() > 1 && !part.contains(|c: char| c.is_lowercase());
    let name = path.iter().find(is_type)?;
    (!is_constant(name)).then_some(name.as_str())
}

/// Every file's folder, path and names.
fn names() -> Vec<(String, String, Names)> {
    let files = sources().into_iter();
    let production = files.filter(|(path, _)| !is_test(path));
    let all = production.map(|(path, text)| {
        let folder = path.iter().next().and_then(|part| part.to_str()).unwrap();
        let folder = folder.trim_end_matches(".rs").to_owned();
        let mut names = Names::default();
        names.visit_file(&syn::parse_file(&text).unwrap());
        (folder, path.display().to_string(), names)
    });
    all.collect()
}

#[test]
fn a_type_that_other_folders_import_has_a_name_of_its_own() {
    let files = names();
    // Name, then the folder where it is defined, then the files that define it.
    let mut defined: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for (folder, file, names) in &files {
        for name in &names.public {
            let folders = defined.entry(name).or_default();
            folders.entry(folder).or_default().push(file);
        }
    }
    let mut imported: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (folder, _, names) in &files {
        for path in &names.paths {
            let first = path.first().map(String::as_str);
            let whole = match first {
                Some("crate") => path[1..].to_vec(),
                Some(first) => match names.modules.get(first) {
                    Some(module) if path.len() > 1 => [module, &path[1..]].concat(),
                    _ => path.clone(),
                },
                None => continue,
            };
            let (Some(from), Some(name)) = (whole.first(), type_in(&whole)) else {
                continue;
            };
            let known = defined.get_key_value(name);
            let Some((name, folders)) = known.filter(|_| from != folder) else {
                continue;
            };
            if let Some((from, _)) = folders.get_key_value(from.as_str()) {
                imported.entry(name).or_default().insert(from);
            }
        }
    }
    assert!(imported.len() > 300, "{} imported types", imported.len());
    for (name, from) in imported {
        let files: Vec<_> = from
            .iter()
            .flat_map(|folder| &defined[name][folder])
            .collect();
        assert!(
            files.len() == 1,
            "several types that other folders can import are called {name}: {files:#?}"
        );
    }
}

#[test]
fn a_type_is_called_by_a_noun() {
    let mut nouns = BTreeSet::new();
    let mut found = BTreeSet::new();
    for (_, file, names) in names() {
        for name in names.types {
            let single = name.chars().filter(char::is_ascii_uppercase).count() == 1;
            let participle = single && (name.ends_with("ed") || name.ends_with("en"));
            let last = name.rfind(|c: char| c.is_ascii_uppercase());
            let is_no_name = NO_NAMES.contains(&name.as_str())
                || last.is_some_and(|at| NO_LAST_WORDS.contains(&&name[at..]));
            if participle && NOUNS.contains(&name.as_str()) {
                nouns.insert(name);
            } else if participle || is_no_name {
                found.insert(format!("src/{file}: {name}"));
            }
        }
    }
    assert!(
        found.is_empty(),
        "these names say nothing of what the type is: take a noun of the field {found:#?}"
    );
    let listed: BTreeSet<String> = NOUNS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(nouns, listed, "the list of nouns has one that no type has");
}
