//! An error is one line that a reader takes in at once: short, and no sentence with a full stop.

use std::collections::BTreeSet;

use proc_macro2::TokenTree;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

use super::{is_test, sources};

/// Characters of an error's text in the source, each value counted as its placeholder.
const LONGEST_ERROR: usize = 160;

/// The texts of `#[error("...")]` in a file, and those of `bail!`, `anyhow!`, `ensure!`, `context` and of reasons: what a
/// variable or field `why` or a call of `refused` gets.
#[derive(Default)]
struct Errors {
    texts: Vec<String>,
    /// How many expressions around are a reason.
    reasons: usize,
}

/// Macros whose text is an error.
const ERROR_MACROS: &[&str] = &["bail", "anyhow", "ensure"];

/// Functions and methods whose texts are an error.
const ERROR_CALLS: &[&str] = &["context", "with_context", "refused", "refuse"];

impl Errors {
    fn of(text: &str) -> Vec<String> {
        let mut errors = Self::default();
        errors.visit_file(&syn::parse_file(text).unwrap());
        errors.texts
    }

    fn add(&mut self, text: &str) {
        self.texts.push(text.replace("{{", "{").replace("}}", "}"));
    }

    /// The texts of an expression that does not live as long as the file: a macro's argument.
    fn add_all(&mut self, expression: &syn::Expr) {
        let mut errors = Self {
            texts: std::mem::take(&mut self.texts),
            reasons: self.reasons,
        };
        errors.visit_expr(expression);
        self.texts = errors.texts;
    }

    fn reason(&mut self, visit: impl FnOnce(&mut Self)) {
        self.reasons += 1;
        visit(self);
        self.reasons -= 1;
    }
}

/// Whether a function's or method's texts are an error.
fn is_error_call(name: Option<&syn::Ident>) -> bool {
    name.is_some_and(|name| ERROR_CALLS.iter().any(|call| name == call))
}

impl<'ast> Visit<'ast> for Errors {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta
            && list.path.is_ident("error")
            && let Some(TokenTree::Literal(text)) = list.tokens.clone().into_iter().next()
        {
            let text: syn::LitStr = syn::parse_str(&text.to_string()).unwrap();
            self.add(&text.value());
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        // Texts of unit tests are no errors.
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let is = |names: &[&str]| names.iter().any(|name| called.path.is_ident(name));
        let is_text = is(ERROR_MACROS) || (self.reasons > 0 && is(&["format"]));
        let arguments = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        let Ok(arguments) = called.parse_body_with(arguments) else {
            return;
        };
        let mut texts = arguments.iter().filter_map(|argument| match argument {
            syn::Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
        if is_text && let Some(text) = texts.next() {
            self.add(&text);
        }
        for argument in &arguments {
            match argument {
                // The text is seen above.
                syn::Expr::Lit(_) => {}
                _ => self.add_all(argument),
            }
        }
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        if self.reasons > 0 {
            self.add(&text.value());
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        match &local.pat {
            syn::Pat::Ident(name) if name.ident == "why" => {
                self.reason(|errors| visit::visit_local(errors, local));
            }
            _ => visit::visit_local(self, local),
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        match &field.member {
            syn::Member::Named(name) if name == "why" => {
                self.reason(|errors| visit::visit_field_value(errors, field));
            }
            _ => visit::visit_field_value(self, field),
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let name = match &*call.func {
            syn::Expr::Path(path) => path.path.segments.last().map(|part| &part.ident),
            _ => None,
        };
        match is_error_call(name) {
            true => self.reason(|errors| visit::visit_expr_call(errors, call)),
            false => visit::visit_expr_call(self, call),
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.visit_expr(&call.receiver);
        let arguments = |errors: &mut Self| {
            for argument in &call.args {
                errors.visit_expr(argument);
            }
        };
        match is_error_call(Some(&call.method)) {
            true => self.reason(arguments),
            false => arguments(self),
        }
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
    assert!(count > 700, "{count} errors seen");
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
        fn f() -> Result<()> {{
            let why = format!("{{}}: {0}", of(g.context("{0}")?));
            let other = format!("no error: {0}");
            ensure!(other.is_empty(), "{0}");
            read().with_context(|| format!("read {0}"))?;
            bail!(E::A {{ why: "{0}", words: "{0}" }})
        }}
        "#,
        "long ".repeat(40)
    );
    let errors = Errors::of(&text);
    let short: Vec<bool> = errors.iter().map(|text| is_short(text)).collect();
    let mut expected = vec![true];
    expected.extend([false; 7]);
    assert_eq!(short, expected);
}
