//! An error is one line that a reader takes in at once: short, and no sentence with a full stop.

use std::collections::BTreeSet;

use proc_macro2::TokenTree;
use syn::visit::{self, Visit};

use super::{is_test, sources};

/// Characters of an error's text in the source, each value counted as its placeholder.
const LONGEST_ERROR: usize = 160;

/// The texts of `#[error("...")]` in a file.
#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn of(text: &str) -> Vec<String> {
        let mut errors = Self::default();
        errors.visit_file(&syn::parse_file(text).unwrap());
        errors.0
    }
}

impl<'ast> Visit<'ast> for Errors {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta
            && list.path.is_ident("error")
            && let Some(TokenTree::Literal(text)) = list.tokens.clone().into_iter().next()
        {
            let text: syn::LitStr = syn::parse_str(&text.to_string()).unwrap();
            self.0
                .push(text.value().replace("{{", "{").replace("}}", "}"));
        }
        visit::visit_attribute(self, attribute);
    }
}

fn is_short(text: &str) -> bool {
    text.chars().count() < LONGEST_ERROR && !text.ends_with('.')
}

#[test]
fn an_error_is_one_short_line() {
    let mut long = BTreeSet::new();
    let mut count = 0;
    for (path, text) in sources().iter().filter(|(path, _)| !is_test(path)) {
        let errors = Errors::of(text);
        count += errors.len();
        let too_long = errors.into_iter().filter(|text| !is_short(text));
        long.extend(too_long.map(|text| format!("{}: {text}", path.display())));
    }
    assert!(count > 300, "{count} errors seen");
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn a_long_error_is_found() {
    let text = format!(
        r#"
        enum E {{
            #[error("it is short: {{why}}")]
            A,
            #[error("{}: {{}}", of(*tool))]
            B,
            #[error("it ends.")]
            C,
            #[error(transparent)]
            D(Other),
        }}
        "#,
        "long ".repeat(40)
    );
    let errors = Errors::of(&text);
    let short: Vec<bool> = errors.iter().map(|text| is_short(text)).collect();
    assert_eq!(short, [true, false, false]);
}
