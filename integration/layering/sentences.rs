//! No sentence is data: code decides by enums, never by words for people. Only parsers search text, and each is listed
//! here with its text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use syn::visit::{self, Visit};

use super::{is_for_tests, is_test, only_these, sources};

/// Parsers of text that other programs write, which search for two or more words.
const PARSERS: &[(&str, &str)] = &[
    (
        "enforce/error.rs: words",
        "Rust's words for an errno: io::Error has no others without its number",
    ),
    (
        "enforce/trust.rs: read_list",
        "PEM: the line before a certificate (RFC 7468)",
    ),
    (
        "install/containerd.rs: without",
        "the comments around our own lines in containerd's file",
    ),
    (
        "plan/keys.rs: is_private",
        "PEM: the line before a private key (RFC 7468)",
    ),
    (
        "plan/tokens.rs: is_beside",
        "PEM: the line before a private key (RFC 7468)",
    ),
    (
        "runtime/libcontainer_log.rs: chdir_fault",
        "libcontainer's log, whose errors do not name the step",
    ),
    (
        "runtime/network/upstream.rs: read_roots",
        "PEM: the line before a certificate (RFC 7468)",
    ),
];

/// Methods that search a text for another one.
const SEARCHES: [&str; 12] = [
    "contains",
    "ends_with",
    "eq_ignore_ascii_case",
    "find",
    "matches",
    "rfind",
    "rsplit_once",
    "split",
    "split_once",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
];

/// Whether a text has two or more words.
fn is_sentence(text: &str) -> bool {
    let words = text.split(char::is_whitespace);
    let words = words.filter(|word| word.contains(char::is_alphabetic));
    words.count() >= 2
}

/// The functions of a file that search a text for a sentence.
#[derive(Default)]
struct Searches {
    /// The functions around the visited code.
    functions: Vec<String>,
    /// Constants of the file, with their text if they are one.
    constants: BTreeMap<String, Option<String>>,
    /// Sentences that are constants of any file, by name.
    others: BTreeMap<String, String>,
    found: BTreeSet<String>,
}

impl Searches {
    /// The functions of a file, without those of its tests. `others` are constants that it may import.
    fn of(file: &syn::File, others: &BTreeMap<String, String>) -> BTreeSet<String> {
        let mut searches = Self {
            constants: Constants::of(file).own,
            others: others.clone(),
            ..Self::default()
        };
        searches.visit_file(file);
        searches.found
    }

    /// The text of a literal or of a constant. One of the file hides one of the same name elsewhere.
    fn text(&self, value: &syn::Expr) -> Option<String> {
        match value {
            syn::Expr::Lit(literal) => literal_text(&literal.lit),
            syn::Expr::Reference(reference) => self.text(&reference.expr),
            syn::Expr::Paren(inner) => self.text(&inner.expr),
            syn::Expr::Path(path) => {
                let name = path.path.segments.last()?.ident.to_string();
                match self.constants.get(&name) {
                    Some(own) => own.clone(),
                    None => self.others.get(&name).cloned(),
                }
            }
            _ => None,
        }
    }

    fn look(&mut self, value: &syn::Expr) {
        self.judge(self.text(value));
    }

    fn judge(&mut self, text: Option<String>) {
        if text.is_some_and(|text| is_sentence(&text)) {
            let function = self.functions.last().cloned();
            self.found.insert(function.unwrap_or_default());
        }
    }

    fn within(&mut self, name: &syn::Ident, visit: impl FnOnce(&mut Self)) {
        self.functions.push(name.to_string());
        visit(self);
        self.functions.pop();
    }
}

fn literal_text(literal: &syn::Lit) -> Option<String> {
    match literal {
        syn::Lit::Str(text) => Some(text.value()),
        syn::Lit::ByteStr(bytes) => Some(String::from_utf8_lossy(&bytes.value()).into_owned()),
        _ => None,
    }
}

/// The constants of a file, by name.
#[derive(Default)]
struct Constants {
    /// All of the file. One that is no text hides one of the same name elsewhere too.
    own: BTreeMap<String, Option<String>>,
    /// Texts that other files can name.
    visible: BTreeMap<String, String>,
}

impl Constants {
    fn of(file: &syn::File) -> Self {
        let mut constants = Self::default();
        constants.visit_file(file);
        constants
    }

    fn take(&mut self, vis: &syn::Visibility, name: &syn::Ident, value: &syn::Expr) {
        let text = match value {
            syn::Expr::Lit(literal) => literal_text(&literal.lit),
            _ => None,
        };
        if let (Some(text), true) = (&text, !matches!(vis, syn::Visibility::Inherited)) {
            self.visible.insert(name.to_string(), text.clone());
        }
        self.own.insert(name.to_string(), text);
    }
}

impl<'ast> Visit<'ast> for Constants {
    fn visit_item_const(&mut self, one: &'ast syn::ItemConst) {
        self.take(&one.vis, &one.ident, &one.expr);
    }

    fn visit_impl_item_const(&mut self, one: &'ast syn::ImplItemConst) {
        self.take(&one.vis, &one.ident, &one.expr);
    }

    fn visit_item_static(&mut self, one: &'ast syn::ItemStatic) {
        self.take(&one.vis, &one.ident, &one.expr);
    }
}

impl<'ast> Visit<'ast> for Searches {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !module.attrs.iter().any(is_for_tests) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !function.attrs.iter().any(is_for_tests) {
            self.within(&function.sig.ident, |searches| {
                visit::visit_item_fn(searches, function);
            });
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !function.attrs.iter().any(is_for_tests) {
            self.within(&function.sig.ident, |searches| {
                visit::visit_impl_item_fn(searches, function);
            });
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if SEARCHES.iter().any(|name| call.method == name)
            && let Some(argument) = call.args.first()
        {
            self.look(argument);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if matches!(binary.op, syn::BinOp::Eq(_) | syn::BinOp::Ne(_)) {
            self.look(&binary.left);
            self.look(&binary.right);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_pat(&mut self, pattern: &'ast syn::Pat) {
        if let syn::Pat::Lit(literal) = pattern {
            self.judge(literal_text(&literal.lit));
        }
        visit::visit_pat(self, pattern);
    }
}

#[test]
fn no_sentence_is_looked_into_but_by_parsers() {
    let parsed = |(path, text): (PathBuf, String)| (path, syn::parse_file(&text).unwrap());
    let sources: Vec<_> = sources().into_iter().map(parsed).collect();
    let constants = sources
        .iter()
        .flat_map(|(_, file)| Constants::of(file).visible);
    let others = constants.filter(|(_, text)| is_sentence(text)).collect();
    let mut found = BTreeSet::new();
    for (path, file) in sources.iter().filter(|(path, _)| !is_test(path)) {
        let functions = Searches::of(file, &others).into_iter();
        found.extend(functions.map(|name| format!("{}: {name}", path.display())));
    }
    only_these(
        "a text of two or more words that is looked for in another: make the reason an enum",
        &found,
        PARSERS,
    );
}

#[test]
fn a_search_for_a_sentence_is_found() {
    let text = r#"
        const WHY: &str = "no rule matches";
        fn a(text: &str) -> bool { text.starts_with(WHY) }
        fn b(text: &str) -> bool { text == "not given" }
        fn c(text: &str) -> bool { matches!(text, "one") || text.contains("one") || text.starts_with("GET ") }
        fn d(text: &str) -> u8 { match text { "it is gone" => 1, _ => 2 } }
        struct E;
        impl E { fn e(text: &str) -> Option<(&str, &str)> { text.split_once(" of the mount at ") } }
        #[cfg(test)]
        mod tests { fn f(text: &str) -> bool { text.contains("no rule") } }
    "#;
    let searches = |text: &str, others: &BTreeMap<String, String>| {
        let found = Searches::of(&syn::parse_file(text).unwrap(), others);
        found.into_iter().collect::<Vec<String>>()
    };
    let names = searches(text, &BTreeMap::new());
    assert_eq!(names, ["a", "b", "d", "e"]);
    // A constant of another file, imported or by its path.
    let text = r#"
        const OWN: &str = "GET ";
        fn a(text: &str) -> bool { text.starts_with(WHY) }
        fn b(text: &str) -> bool { text == words::WHY }
        fn c(text: &str) -> bool { text.starts_with(OWN) || text.contains(OTHER) }
        const COUNT: u8 = 1;
        fn d(count: u8) -> bool { count == COUNT }
    "#;
    let others = [
        ("WHY", "no rule matches"),
        ("OWN", "not this one"),
        ("COUNT", "not this"),
    ];
    let others = others.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let names = searches(text, &others.into());
    assert_eq!(names, ["a", "b"]);
}
