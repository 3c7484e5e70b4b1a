//! The words for a network denial stand in one file, and every surface prints them.

use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use super::{has_word, is_test, sources};
use crate::fixtures;

/// The file of the words.
const WORDS: &str = "egress/words.rs";
/// Shorter texts are phrases that other sentences may have too, unless they name a field.
const FEWEST_WORDS: usize = 6;
const FIELDS: &str = "network.";

/// The texts in code, also in macros.
fn texts(tokens: TokenStream) -> Vec<String> {
    let of_token = |token| match token {
        TokenTree::Group(group) => texts(group.stream()),
        TokenTree::Literal(literal) => match syn::parse_str::<syn::LitStr>(&literal.to_string()) {
            Ok(text) => vec![text.value()],
            Err(_) => Vec::new(),
        },
        TokenTree::Ident(_) | TokenTree::Punct(_) => Vec::new(),
    };
    tokens.into_iter().flat_map(of_token).collect()
}

/// The parts of a text between the values of `format!`.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(['{', '}'])
        .step_by(2)
        .map(|part| part.trim_matches([' ', ',', ':', ';']))
        .filter(|part| {
            let words = part.split_whitespace().count();
            words >= FEWEST_WORDS || words > 1 && part.contains(FIELDS)
        })
}

/// The texts of a file, without its comments and tests.
fn texts_of(text: &str) -> Vec<String> {
    let (code, _) = text
        .split_once("#[cfg(test)]\nmod tests {")
        .unwrap_or((text, ""));
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let code: Vec<&str> = code.lines().filter(|line| !is_comment(line)).collect();
    texts(code.join("\n").parse().unwrap())
}

#[test]
fn the_words_for_a_network_denial_stand_in_one_file() {
    let files = sources();
    let is_words = |path: &Path| path.ends_with(WORDS);
    let words = files.iter().find(|(path, _)| is_words(path));
    let words = texts_of(&words.unwrap().1);
    let words: Vec<&str> = words.iter().flat_map(|text| parts(text)).collect();
    assert!(words.len() > 20, "{words:#?}");
    for part in &words {
        let times = words.iter().filter(|other| *other == part).count();
        assert_eq!(times, 1, "{part:?} is in {WORDS} twice");
    }
    let mut again = Vec::new();
    for (path, text) in files
        .iter()
        .filter(|(path, _)| !is_words(path) && !is_test(path))
    {
        for text in texts_of(text) {
            let found = words.iter().find(|part| text.contains(**part));
            again.extend(found.map(|part| format!("{}: {part}", path.display())));
        }
    }
    assert!(
        again.is_empty(),
        "print the words of src/{WORDS}, instead of writing them again: {again:#?}"
    );
}

#[test]
fn texts_are_seen_in_macros_and_without_their_values() {
    let code = "fn a() { write!(f, \"network.deny lists {shown}, so {}\", \"x\") }\n// \"b\"\n";
    assert_eq!(texts_of(code), ["network.deny lists {shown}, so {}", "x"]);
    let parts: Vec<&str> = parts("network.deny lists {shown}, so {}").collect();
    assert_eq!(parts, ["network.deny lists"]);
}

/// LANGUAGE.md: a sentence names the caller, the workload, an exec process or another user.
#[test]
fn texts_name_the_one_who_acts() {
    const OTHERS: [&str; 4] = ["whoever", "somebody", "anybody", "tenant"];
    let root = fixtures::path("..");
    let mut texts: Vec<(String, String)> = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_test(path)) {
        let code = text.split("#[cfg(test)]\nmod tests {").next();
        texts.push((path.display().to_string(), code.unwrap_or("").to_owned()));
    }
    for directory in ["docs", "policies", "policies/syscalls"] {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let text = std::fs::read_to_string(&path).unwrap();
                texts.push((path.display().to_string(), text));
            }
        }
    }
    for file in [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        texts.push((file.to_owned(), text));
    }
    for (file, text) in texts {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.to_lowercase();
            let found = OTHERS.iter().find(|word| has_word(&line, word));
            assert_eq!(found, None, "{file}:{number}: {line}");
        }
    }
}
