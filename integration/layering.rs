//! Rules that the compiler cannot check within one crate: the pure core stays pure, `unsafe` stays in `src/sys`, every
//! file states its purpose, and no file or function grows beyond one reading.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::fixtures;

mod circles;
mod errors;
mod names;
mod sentences;
mod words;

/// Lines of a file that are built into the program.
const LONGEST_FILE: usize = 400;
/// Lines of a function, from `fn` to its last brace.
const LONGEST_FUNCTION: usize = 80;
/// Arguments of a function, `self` among them.
const MOST_ARGUMENTS: usize = 6;

/// Files that may be longer.
const LONG_FILES: &[(&str, &str)] = &[(
    "kernel/numbers.rs",
    "a table with a row for each system call",
)];
/// Functions that may be longer.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];
/// Functions that may take more.
const MANY_ARGUMENTS: &[(&str, &str)] = &[];
/// Values of a tuple that a function takes or returns: a struct names them.
const LONGEST_TUPLE: usize = 2;

/// Directories whose files only compute.
const PURE: [&str; 9] = [
    "audit", "devices", "egress", "engines", "policy", "plan", "render", "rules", "seccomp",
];

/// Things that pure code must not use: files, the environment, processes, system calls, a clock, a log.
const SHELL: [&str; 17] = [
    "std::fs",
    "std::env",
    "std::process",
    // Only addresses of std::net: no socket, and no name lookup.
    "std::net::*",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::thread",
    "crate::sys",
    "rustix::",
    "nix::",
    "libc::",
    "tokio::",
    "tracing::",
    "SystemTime",
    "Instant",
];

/// What each folder of `src/` may import: only earlier folders, so that there are no cycles. A new line here is a
/// decision; docs/design.md explains the folders.
const MAY_IMPORT: [(&str, &[&str]); 29] = [
    // Values in, values out.
    ("text", &[]),
    ("data", &[]),
    ("engines", &[]),
    ("kernel", &["text"]),
    ("rules", &["text", "data"]),
    ("policy", &["text", "data", "engines", "kernel", "rules"]),
    ("egress", &["text", "data", "rules", "policy"]),
    (
        "plan",
        &[
            "text", "data", "engines", "kernel", "rules", "policy", "egress",
        ],
    ),
    ("seccomp", &["kernel", "policy"]),
    ("devices", &[]),
    ("audit", &["text", "rules", "policy"]),
    // The program's messages for people.
    ("log", &["text"]),
    ("cli", &["engines", "policy", "log"]),
    // System calls, and code built on them.
    ("sys", &["kernel", "rules", "seccomp", "devices"]),
    // The disk that is thrown away. Its writer of ext4 is pure.
    ("scratch", &["sys"]),
    (
        "render",
        &[
            "text", "engines", "kernel", "rules", "policy", "egress", "plan", "seccomp", "devices",
            "scratch",
        ],
    ),
    // It runs the node's package managers.
    ("indexes", &["rules", "plan", "sys"]),
    // It writes files of engines.
    ("install", &["text", "engines", "log", "sys"]),
    ("cgroup", &["kernel", "devices", "log", "sys"]),
    (
        "probe",
        &[
            "engines", "kernel", "policy", "plan", "log", "sys", "scratch", "cgroup",
        ],
    ),
    ("network", &["egress", "sys"]),
    (
        "sidecar",
        &[
            "text", "rules", "policy", "egress", "plan", "seccomp", "audit", "sys", "cgroup",
            "network",
        ],
    ),
    (
        "enforce",
        &[
            "kernel", "policy", "plan", "seccomp", "log", "sys", "scratch", "network", "sidecar",
        ],
    ),
    // The life of a container, and the commands.
    (
        "runtime",
        &[
            "text", "engines", "kernel", "rules", "policy", "egress", "plan", "seccomp", "devices",
            "audit", "log", "cli", "sys", "scratch", "render", "cgroup", "probe", "network",
            "sidecar", "enforce",
        ],
    ),
    (
        "wrap",
        &[
            "text", "data", "kernel", "policy", "egress", "plan", "seccomp", "audit", "log", "cli",
            "sys", "render", "probe", "sidecar", "enforce", "runtime",
        ],
    ),
    // The attacks of docs/threats.md, and the sandboxes that they run in.
    (
        "verify",
        &[
            "text", "kernel", "rules", "policy", "egress", "plan", "audit", "log", "cli", "sys",
            "cgroup", "network", "enforce", "runtime", "wrap",
        ],
    ),
    // What the code above needs from a node.
    (
        "doctor",
        &[
            "text", "engines", "policy", "plan", "log", "cli", "sys", "install", "probe",
            "runtime", "wrap",
        ],
    ),
    (
        "cmd",
        &[
            "text", "rules", "policy", "egress", "plan", "seccomp", "audit", "log", "cli",
            "render", "indexes", "install", "cgroup", "sidecar", "runtime", "wrap", "verify",
            "doctor",
        ],
    ),
    ("main", &[]),
];

/// Every source file, by its path below `src/`.
fn sources() -> Vec<(PathBuf, String)> {
    let root = fixtures::path("../src");
    let mut found = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    assert!(found.len() > 80, "src/ has moved: {}", found.len());
    found
}

/// The lines that are built into the program, without comments. A test module comes last in its file.
fn production(text: &str) -> impl Iterator<Item = &str> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    text.lines()
        .map(|line| line.split("//").next().unwrap_or(""))
}

fn is_test(path: &Path) -> bool {
    path.iter()
        .any(|part| part == "tests" || part == "tests.rs")
}

/// Whether `line` has `word` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let mut parts = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.any(|part| part == word)
}

/// Whether a file only computes: by its folder, or because it says so itself in a folder of both kinds.
fn is_pure(path: &Path, text: &str) -> bool {
    PURE.iter().any(|folder| path.starts_with(folder)) || text.starts_with("//! PURE.")
}

#[test]
fn the_pure_core_names_nothing_of_the_shell() {
    let files = sources();
    let pure = files
        .iter()
        .filter(|(path, text)| is_pure(path, text) && !is_test(path));
    for (path, text) in pure {
        for line in production(text) {
            // The OS's own text type and its numbers of errors make no system call.
            let line = line
                .replace("std::os::unix::ffi", "")
                .replace("rustix::io::Errno", "");
            let named = SHELL.iter().find(|name| line.contains(**name));
            assert_eq!(named, None, "src/{}: {line}", path.display());
        }
    }
}

/// The folders (or files) of `src/` that a file's production code names.
fn imported(text: &str) -> BTreeSet<&str> {
    let code = production(text);
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter_map(|mut words| words.next())
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn a_folder_imports_what_the_table_lets_it_import_and_nothing_else() {
    let order: Vec<&str> = MAY_IMPORT.iter().map(|(folder, _)| *folder).collect();
    for (place, (folder, allowed)) in MAY_IMPORT.iter().enumerate() {
        for name in *allowed {
            let before = order[..place].contains(name);
            assert!(before, "{folder} may not import {name}, which stands later");
        }
    }
    let mut used = BTreeSet::new();
    let files = sources();
    for (path, text) in files.iter().filter(|(path, _)| !is_test(path)) {
        let folder = path.iter().next().and_then(|part| part.to_str()).unwrap();
        let folder = folder.trim_end_matches(".rs");
        if folder == "lib" {
            continue;
        }
        let row = MAY_IMPORT.iter().find(|(name, _)| *name == folder);
        let (_, allowed) = row.unwrap_or_else(|| panic!("src/{folder} is not in the table"));
        for name in imported(text).into_iter().filter(|name| *name != folder) {
            assert!(
                allowed.contains(&name),
                "src/{} imports {name}, which the table of integration/layering.rs does not let it",
                path.display()
            );
            used.insert((folder.to_owned(), name.to_owned()));
        }
    }
    for (folder, allowed) in MAY_IMPORT {
        for name in allowed {
            let needed = used.contains(&(folder.to_owned(), (*name).to_owned()));
            assert!(
                needed,
                "no file of src/{folder} imports {name}: take it out of the table"
            );
        }
    }
}

#[test]
fn only_sys_has_unsafe_code() {
    for (path, text) in sources()
        .iter()
        .filter(|(path, _)| !path.starts_with("sys"))
    {
        let mut lines = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or(""));
        let found = lines.find(|line| has_word(line, "unsafe"));
        assert_eq!(found, None, "src/{}", path.display());
    }
}

/// The files that execute programs, and why the caller's PATH cannot choose them.
const EXECUTES: &[(&str, &str)] = &[
    ("sys/program.rs", "an absolute path, of root's alone"),
    (
        "enforce/hooks.rs",
        "hooks of the specification: absolute paths that the policy allows",
    ),
    (
        "enforce/program.rs",
        "the container's program, behind its walls",
    ),
    ("runtime/seal.rs", "this program itself, by a descriptor"),
];

/// An agent may have made a directory of PATH, and programs that agentbox runs on the node have no walls.
#[test]
fn programs_are_executed_in_four_places_and_never_by_a_search() {
    let mut seen = BTreeSet::new();
    for (path, text) in sources().iter().filter(|(path, _)| !is_test(path)) {
        // Also among other names: `use nix::unistd::{execve, fork}`.
        let all: Vec<&str> = production(text).collect();
        let all = all.join(" ");
        let imports = all
            .split("use ")
            .skip(1)
            .filter_map(|rest| rest.split(';').next());
        let mut imports =
            imports.filter(|import| import.contains("unistd") || import.contains("libc"));
        let runs = |import: &str| import.contains("exec") || import.contains("posix_spawn");
        assert!(
            !imports.any(runs),
            "src/{}: call it by its path",
            path.display()
        );
        for line in production(text) {
            let line = line.replace("clap::Command::new(", "");
            let calls = [
                "Command::new(",
                "unistd::exec",
                "unistd::fexec",
                "libc::exec",
                "libc::fexec",
                "libc::posix_spawn",
                "libc::system",
            ];
            let Some(call) = calls.iter().find(|call| line.contains(**call)) else {
                continue;
            };
            let searches = line.contains("execvp") || line.contains("posix_spawnp");
            assert!(!searches, "src/{}: {line}", path.display());
            let (file, _) = EXECUTES
                .iter()
                .find(|(file, _)| path == Path::new(file))
                .unwrap_or_else(|| {
                    panic!("src/{}: {call}: use sys::program instead", path.display())
                });
            seen.insert(*file);
        }
    }
    let listed: BTreeSet<&str> = EXECUTES.iter().map(|(file, _)| *file).collect();
    assert_eq!(seen, listed, "the list names a file that executes nothing");
}

#[test]
fn every_file_says_what_it_is_for() {
    for (path, text) in sources() {
        let documented = text.lines().any(|line| line.starts_with("//! "));
        assert!(documented, "src/{} has no //! text", path.display());
    }
}

/// `#[cfg(test)]`.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    }
}

/// The sizes counted in a source file.
#[derive(Default)]
struct Sizes {
    file: String,
    /// Lines that are built for tests alone.
    test_lines: usize,
    /// Functions, as `file: name`, with their lines.
    lines: Vec<(String, usize)>,
    /// The same, with their arguments.
    arguments: Vec<(String, usize)>,
    /// The same, those that take a `bool`: a caller's `true` tells a reader nothing.
    bools: Vec<String>,
    /// The same, those that take or return a longer tuple, also within another type.
    tuples: Vec<String>,
}

impl Sizes {
    fn of(path: &Path, text: &str) -> Self {
        let file = path.display().to_string();
        let parsed = syn::parse_file(text).unwrap_or_else(|e| panic!("src/{file}: {e}"));
        let mut sizes = Self {
            file,
            ..Self::default()
        };
        sizes.visit_file(&parsed);
        sizes
    }

    fn count(&mut self, signature: &syn::Signature, whole: proc_macro2::Span) {
        let name = format!("{}: {}", self.file, signature.ident);
        let lines = whole.end().line + 1 - signature.span().start().line;
        self.lines.push((name.clone(), lines));
        let arguments = signature.inputs.len();
        self.arguments.push((name.clone(), arguments));
        let takes_bool = |argument: &syn::FnArg| match argument {
            syn::FnArg::Typed(typed) => is_bool(&typed.ty),
            syn::FnArg::Receiver(_) => false,
        };
        if signature.inputs.iter().any(takes_bool) {
            self.bools.push(name.clone());
        }
        let mut tuples = LongTuples(false);
        tuples.visit_signature(signature);
        if tuples.0 {
            self.tuples.push(name);
        }
    }

    /// Whether an item is built for tests alone. Its lines do not count then.
    fn is_for_tests(&mut self, attributes: &[syn::Attribute], whole: proc_macro2::Span) -> bool {
        let for_tests = attributes.iter().any(is_for_tests);
        if for_tests {
            self.test_lines += whole.end().line + 1 - whole.start().line;
        }
        for_tests
    }
}

/// `bool`, also within `Option`.
fn is_bool(argument: &syn::Type) -> bool {
    let syn::Type::Path(path) = argument else {
        return false;
    };
    let Some(last) = path.path.segments.last() else {
        return false;
    };
    match &last.arguments {
        syn::PathArguments::AngleBracketed(within) if last.ident == "Option" => {
            let mut all = within.args.iter();
            all.any(|one| matches!(one, syn::GenericArgument::Type(inner) if is_bool(inner)))
        }
        _ => path.path.is_ident("bool"),
    }
}

#[test]
fn a_bool_is_found_within_an_option_too() {
    let text = "fn a(x: bool) {} fn b(x: Option<bool>) {} fn c(x: Option<u8>) -> bool { true } \
                fn d(x: std::option::Option<Option<bool>>) {} fn e(x: &Vec<bool>) {}";
    let sizes = Sizes::of(Path::new("x.rs"), text);
    assert_eq!(sizes.bools, ["x.rs: a", "x.rs: b", "x.rs: d"]);
}

/// Whether a type contains a tuple longer than [`LONGEST_TUPLE`].
struct LongTuples(bool);

impl<'ast> Visit<'ast> for LongTuples {
    fn visit_type_tuple(&mut self, tuple: &'ast syn::TypeTuple) {
        self.0 |= tuple.elems.len() > LONGEST_TUPLE;
        visit::visit_type_tuple(self, tuple);
    }
}

/// The attributes of an item that can be built for tests alone.
fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(one) => &one.attrs,
        syn::Item::Enum(one) => &one.attrs,
        syn::Item::Fn(one) => &one.attrs,
        syn::Item::Impl(one) => &one.attrs,
        syn::Item::Mod(one) => &one.attrs,
        syn::Item::Struct(one) => &one.attrs,
        syn::Item::Use(one) => &one.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Sizes {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !self.is_for_tests(attributes(item), item.span()) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_type(&mut self, alias: &'ast syn::ItemType) {
        let mut long = LongTuples(false);
        long.visit_type(&alias.ty);
        if long.0 {
            self.tuples.push(format!("{}: {}", self.file, alias.ident));
        }
        visit::visit_item_type(self, alias);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.count(&function.sig, function.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !self.is_for_tests(&function.attrs, function.span()) {
            self.count(&function.sig, function.span());
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.count(&function.sig, function.span());
        visit::visit_trait_item_fn(self, function);
    }
}

/// Checks that only listed names exceed a limit, and that every listed name does.
fn only_these(what: &str, found: &BTreeSet<String>, may: &[(&str, &str)]) {
    let may: BTreeSet<String> = may.iter().map(|(name, _)| (*name).to_owned()).collect();
    let new: Vec<_> = found.difference(&may).collect();
    assert!(new.is_empty(), "src/ {what}: {new:#?}");
    let needless: Vec<_> = may.difference(found).collect();
    assert!(
        needless.is_empty(),
        "take these out of the list, none is any more {what}: {needless:#?}"
    );
}

#[test]
fn a_file_and_a_function_are_read_at_once() {
    let files = sources();
    let production = files.iter().filter(|(path, _)| !is_test(path));
    let (mut long_files, mut long_functions) = (BTreeSet::new(), BTreeSet::new());
    let (mut many_arguments, mut bools) = (BTreeSet::new(), BTreeSet::new());
    let mut tuples = BTreeSet::new();
    for (path, text) in production {
        let sizes = Sizes::of(path, text);
        if text.lines().count() - sizes.test_lines > LONGEST_FILE {
            long_files.insert(sizes.file);
        }
        let over = |all: Vec<(String, usize)>, most: usize| {
            let over = all.into_iter().filter(move |(_, count)| *count > most);
            over.map(|(name, _)| name)
        };
        long_functions.extend(over(sizes.lines, LONGEST_FUNCTION));
        many_arguments.extend(over(sizes.arguments, MOST_ARGUMENTS));
        bools.extend(sizes.bools);
        tuples.extend(sizes.tuples);
    }
    only_these("longer than 400 lines", &long_files, LONG_FILES);
    only_these(
        "a function of more than 80 lines",
        &long_functions,
        LONG_FUNCTIONS,
    );
    only_these(
        "a function of more than six arguments",
        &many_arguments,
        MANY_ARGUMENTS,
    );
    only_these(
        "a function that takes a bool",
        &bools,
        &[
            (
                "egress/mcp/copy.rs: visit_bool",
                "a function of serde's own trait",
            ),
            (
                "probe/annotations.rs: visit_bool",
                "a function of serde's own trait",
            ),
        ],
    );
    only_these(
        "a function that takes or returns a tuple of three values, or an alias of one: make a struct",
        &tuples,
        &[],
    );
}
