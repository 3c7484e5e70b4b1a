//! Circles of imports between files: whoever opens one of its files has to read them all.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{is_test, sources};

/// The most files of a folder that may import one another in a circle.
const LARGEST: usize = 4;

/// Folders with a larger one. A number here may only become smaller.
const LARGER: &[(&str, usize)] = &[
    ("policy", 34),
    ("probe", 12),
    ("runtime", 10),
    ("seccomp", 6),
    ("wrap", 28),
    ("wrap/settings", 6),
];

/// A module: its names below the crate.
type Module = Vec<String>;

/// A path in a file's code.
struct NamedPath {
    /// The module that names it: the file's, or an inline one.
    within: Module,
    path: Vec<String>,
    alias: Option<String>,
}

/// The paths that a file's code names.
#[derive(Default)]
struct NamedPaths {
    used: Vec<NamedPath>,
    plain: Vec<NamedPath>,
}

impl NamedPaths {
    /// Collects from `tokens`, the code of `module`.
    fn collect(&mut self, module: &Module, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(word) if word == "use" => {
                    let end = tokens[at..].iter().position(|one| is_punct(one, ';'));
                    let end = at + end.unwrap_or(tokens.len() - at);
                    self.collect_use(module, &[], &tokens[at + 1..end]);
                    at = end;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let [_, TokenTree::Ident(name), TokenTree::Group(body), ..] = &tokens[at..] {
                        let mut inner = module.clone();
                        inner.push(name.to_string());
                        self.collect(&inner, body.stream());
                        at += 2;
                    }
                }
                // `pub(in crate::x)` says who may name an item, and imports nothing.
                TokenTree::Ident(word) if word == "in" && at == 0 => return,
                TokenTree::Ident(_) => {
                    let (path, used) = path(&tokens[at..]);
                    if path.len() > 1 {
                        self.plain.push(NamedPath {
                            within: module.clone(),
                            path,
                            alias: None,
                        });
                    }
                    at += used - 1;
                }
                TokenTree::Group(group) => self.collect(module, group.stream()),
                _ => {}
            }
            at += 1;
        }
    }

    /// Collects from the tree of a `use`, below `before`.
    fn collect_use(&mut self, module: &Module, before: &[String], tree: &[TokenTree]) {
        for one in tree.split(|token| is_punct(token, ',')) {
            let (names, used) = path(one);
            let mut all = before.to_vec();
            all.extend(names);
            let rest = &one[used..];
            if let [.., TokenTree::Group(group)] = rest
                && group.delimiter() == Delimiter::Brace
            {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                self.collect_use(module, &all, &inner);
                continue;
            }
            let alias = match rest {
                [TokenTree::Ident(_), TokenTree::Ident(alias)] => Some(alias.to_string()),
                _ => None,
            };
            self.used.push(NamedPath {
                within: module.clone(),
                path: all,
                alias,
            });
        }
    }
}

fn is_punct(token: &TokenTree, which: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == which)
}

/// The path at the beginning of `tokens`, and how many of them it takes.
fn path(tokens: &[TokenTree]) -> (Vec<String>, usize) {
    let mut names = Vec::new();
    let mut at = 0;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        names.push(name.to_string());
        at += 1;
        match &tokens[at..] {
            [a, b, TokenTree::Ident(_), ..] if is_punct(a, ':') && is_punct(b, ':') => at += 2,
            _ => break,
        }
    }
    (names, at)
}

/// The files of `src/`, and what each imports.
struct Imports {
    files: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    fn read() -> Self {
        let mut texts = BTreeMap::new();
        for (path, text) in sources().iter().filter(|(path, _)| !is_test(path)) {
            let path = path.with_extension("");
            let names = path.iter().filter_map(|part| part.to_str());
            let module: Module = names
                .filter(|name| *name != "mod")
                .map(ToOwned::to_owned)
                .collect();
            let code = text.split("#[cfg(test)]\nmod tests {").next();
            texts.insert(module, code.unwrap_or_default().to_owned());
        }
        let known: BTreeSet<Module> = texts.keys().cloned().collect();
        let mut files = BTreeMap::new();
        for (module, code) in &texts {
            let mut paths = NamedPaths::default();
            let tokens = code.parse::<TokenStream>();
            paths.collect(module, tokens.unwrap_or_else(|e| panic!("{module:?}: {e}")));
            files.insert(module.clone(), imports(&known, module, &paths));
        }
        Self { files }
    }

    /// The circles in a folder: sets of its files that reach one another within it.
    fn circles(&self, folder: &Module) -> Vec<Vec<String>> {
        let inside = |module: &&Module| module.starts_with(folder);
        let mut reached = BTreeMap::new();
        for module in self.files.keys().filter(inside) {
            let mut seen: BTreeSet<&Module> = BTreeSet::new();
            let mut open = vec![module];
            while let Some(next) = open.pop() {
                let to = self.files[next].iter().filter(inside);
                open.extend(to.filter(|to| seen.insert(to)));
            }
            reached.insert(module, seen);
        }
        let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
        for (module, seen) in &reached {
            let back = seen.iter().filter(|to| reached[*to].contains(module));
            let circle: Vec<String> = back.map(|to| to.join("/")).collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }
}

/// Where a path leads.
struct PathTarget {
    file: Module,
    /// It is the file's module itself, not an item in it.
    whole: bool,
}

impl PathTarget {
    /// The longest beginning of a path that is a file.
    fn of(known: &BTreeSet<Module>, mut full: Module) -> Option<Self> {
        let whole = known.contains(&full);
        while !full.is_empty() && !known.contains(&full) {
            full.pop();
        }
        (!full.is_empty()).then_some(Self { file: full, whole })
    }

    /// A path as `module` names it.
    fn named(known: &BTreeSet<Module>, module: &Module, path: &[String]) -> Option<Self> {
        let ups = path.iter().take_while(|name| *name == "super").count();
        let mut full = module[..module.len().checked_sub(ups)?].to_vec();
        let rest = match path.first()?.as_str() {
            "crate" => {
                full.clear();
                &path[1..]
            }
            "self" => &path[1..],
            "super" => &path[ups..],
            first => {
                // Only a module below is named without one of these.
                full.push(first.to_owned());
                if !known.contains(&full) {
                    return None;
                }
                &path[1..]
            }
        };
        full.extend(rest.iter().cloned());
        Self::of(known, full)
    }
}

fn imports(known: &BTreeSet<Module>, module: &Module, paths: &NamedPaths) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    // Modules that a `use` brings in, by the name that they have here: only what is taken from them counts.
    let mut modules: BTreeMap<&str, Module> = BTreeMap::new();
    for used in &paths.used {
        let path = match used.path.split_last() {
            Some((last, path)) if last == "self" => path,
            _ => &used.path,
        };
        let Some(target) = PathTarget::named(known, &used.within, path) else {
            continue;
        };
        match (target.whole, used.alias.as_ref().or(path.last())) {
            (true, Some(name)) => {
                modules.insert(name, target.file);
            }
            _ => {
                found.insert(target.file);
            }
        }
    }
    for named in &paths.plain {
        let target = match modules.get(named.path[0].as_str()) {
            Some(file) => PathTarget::of(known, [file, &named.path[1..]].concat()),
            None => PathTarget::named(known, &named.within, &named.path),
        };
        found.extend(target.map(|target| target.file));
    }
    found.remove(module);
    found
}

#[test]
fn few_files_import_one_another_in_a_circle() {
    let imports = Imports::read();
    let mut folders: BTreeSet<Module> = BTreeSet::new();
    for module in imports.files.keys() {
        folders.extend((1..module.len()).map(|depth| module[..depth].to_vec()));
    }
    let mut larger: Vec<(String, usize)> = Vec::new();
    for folder in folders {
        let circles = imports.circles(&folder);
        let Some(largest) = circles.iter().max_by_key(|circle| circle.len()) else {
            continue;
        };
        if largest.len() > LARGEST {
            println!("src/{}: {largest:#?}", folder.join("/"));
            larger.push((folder.join("/"), largest.len()));
        }
    }
    let allowed: Vec<(String, usize)> = LARGER
        .iter()
        .map(|(folder, size)| ((*folder).to_owned(), *size))
        .collect();
    assert_eq!(
        larger, allowed,
        "files that import one another in a circle: move what they share into a leaf, or write the smaller number"
    );
}

/// The test's own reading of imports.
#[test]
fn imports_are_read_from_trees_of_use_and_from_paths() {
    let known: BTreeSet<Module> = ["a", "a/b", "a/c", "a/d", "a/e", "f"]
        .iter()
        .map(|path| path.split('/').map(ToOwned::to_owned).collect())
        .collect();
    let module = vec!["a".to_owned(), "b".to_owned()];
    let read = |code: &str| {
        let mut paths = NamedPaths::default();
        paths.collect(&module, code.parse().unwrap());
        let found = imports(&known, &module, &paths);
        found.iter().map(|file| file.join("/")).collect::<Vec<_>>()
    };
    assert_eq!(
        read("use super::{c::{X, self}, d as e}; fn f() {}"),
        ["a/c"]
    );
    assert_eq!(read("use super::d; fn f() { d::g() }"), ["a/d"]);
    assert_eq!(
        read("use super::d as h; fn f() { print!(\"{}\", h::g()) }"),
        ["a/d"]
    );
    assert_eq!(read("use super::Shared;"), ["a"]);
    assert_eq!(
        read("fn f(x: crate::f::X, y: super::e::Y) {}"),
        ["a/e", "f"]
    );
    assert_eq!(
        read("pub(in crate::f) fn f() { for x in crate::a::e::Y {} }"),
        ["a/e"]
    );
    assert_eq!(read("mod one { fn f() { super::g() } }"), [] as [&str; 0]);
    assert_eq!(read("// use super::c::X;\nuse std::fmt;"), [] as [&str; 0]);
}
