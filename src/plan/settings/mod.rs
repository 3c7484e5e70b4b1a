//! PURE. Files that may be settings or credentials (`.npmrc`), checked by their content.
//!
//! No list can describe all secrets. So a line is harmless only if it is known to be: by a key that holds no secret, or
//! a value that cannot be one.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::never::ends_with;

/// Which files, and what is known about their lines: `[settings]` of `policies/never.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesByContent {
    secret: Vec<String>,
    marks: Vec<String>,
    #[serde(default)]
    file: Vec<KnownSettings>,
}

/// A file, and its known keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownSettings {
    path: PathBuf,
    /// Lower case; a key that ends with `*` stands for all with that prefix.
    keys: Vec<String>,
}

impl FilesByContent {
    /// Whether a file of this name is checked by its content.
    pub fn is_one(&self, path: &Path) -> bool {
        self.known(path).is_some()
    }

    /// Whether every line is understood, and none can hold a secret.
    pub fn are_harmless(&self, path: &Path, content: &[u8]) -> bool {
        let (Some(known), Ok(text)) = (self.known(path), std::str::from_utf8(content)) else {
            return false;
        };
        let judge = Judge { all: self, known };
        !self.has_mark(text) && text.lines().all(|line| judge.line(line))
    }

    fn known(&self, path: &Path) -> Option<&KnownSettings> {
        self.file.iter().find(|file| ends_with(path, &file.path))
    }

    /// Whether a word starts with a known prefix of tokens and keys.
    fn has_mark(&self, text: &str) -> bool {
        self.marks.iter().any(|mark| {
            let mut found = text.match_indices(mark.as_str());
            found.any(|(at, _)| {
                let before = text.as_bytes().get(at.wrapping_sub(1));
                !before.is_some_and(u8::is_ascii_alphanumeric)
            })
        })
    }
}

/// Which keys a setting can have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyRule {
    Any,
    /// A key on the list.
    Known,
}

/// What the values of a key may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The list says that they contain no secret.
    NoSecret,
    Unknown,
}

/// The rules for the lines of one file.
#[derive(Clone, Copy)]
struct Judge<'a> {
    all: &'a FilesByContent,
    known: &'a KnownSettings,
}

impl Judge<'_> {
    /// A comment, a section, or a key with a value that is no secret.
    fn line(self, line: &str) -> bool {
        let trimmed = line.trim();
        if let Some(said) = trimmed.strip_prefix(['#', ';']) {
            return self.comment(said.trim_start_matches(['#', ';', ' ', '\t']));
        }
        if trimmed.is_empty() {
            return true;
        }
        if let Some(name) = trimmed.strip_prefix('[')
            && let Some(name) = name.strip_suffix(']')
        {
            return name.len() <= LONGEST && name.chars().all(is_of_section);
        }
        // A line that continues, or continues the line before: its start may look like a key.
        let goes_on = trimmed.ends_with('\\');
        let is_more = line.starts_with([' ', '\t']);
        !goes_on
            && self.setting(
                trimmed,
                match is_more {
                    true => KeyRule::Known,
                    false => KeyRule::Any,
                },
            )
    }

    /// Checks a comment. A commented-out setting is checked like others, since its token may still be valid. Other
    /// comments must be plain words.
    fn comment(self, said: &str) -> bool {
        let names = said.contains([':', '=']) && self.is_secret(&said.to_ascii_lowercase());
        let prose = !said.contains('=') && !names && said.split_whitespace().all(is_plain);
        prose || self.setting(said, KeyRule::Known)
    }

    fn setting(self, line: &str, rule: KeyRule) -> bool {
        // npm's keys that start with a registry or a scope contain colons: //registry.example/:_authToken
        let at = match line.starts_with("//") || line.starts_with('@') {
            true => line.find('='),
            false => line.find(['=', ':']),
        };
        let Some((key, value)) = at.and_then(|at| line.split_at_checked(at)) else {
            return false;
        };
        let key = key.rsplit(':').next().unwrap_or(key);
        let key = unquoted(key.trim()).trim_end_matches("[]");
        let value = unquoted(value.get(1..).unwrap_or("").trim());
        self.pair(&key.to_ascii_lowercase(), value, rule)
    }

    fn pair(self, key: &str, value: &str, rule: KeyRule) -> bool {
        let exactly = self.known.keys.iter().any(|own| own == key);
        let secret = !exactly && self.is_secret(key);
        let known = !secret && self.is_known(key);
        if rule == KeyRule::Known && !known {
            // Commented out, or in a later line: the name of a variable is harmless anywhere.
            return is_variable(value);
        }
        if value.is_empty() {
            // A text that ends with the separator may be the secret: the end of base64.
            return secret && is_key(key) || known;
        }
        if is_variable(value) {
            return is_key(key);
        }
        if secret || !is_key(key) {
            return false;
        }
        let content = match known {
            true => Content::NoSecret,
            false => Content::Unknown,
        };
        value
            .split([' ', '\t', ',', '|'])
            .filter(|word| !word.is_empty())
            .all(|word| self.is_harmless(unquoted(word), content))
    }

    /// Checks a word of a value. A key known to hold no secret may have any word that does not look like one.
    fn is_harmless(self, word: &str, content: Content) -> bool {
        let option = word.strip_prefix("-D").or_else(|| word.strip_prefix("--"));
        match option.and_then(|option| option.split_once('=')) {
            // A JVM's property, or an option of a program: with its own name and value.
            Some((name, value)) => {
                let name = name.to_ascii_lowercase();
                !self.is_secret(&name) && self.is_harmless(unquoted(value), content)
            }
            None if word.contains("://") => is_open_address(word),
            None if content == Content::NoSecret => is_plain_value(word) || is_jvm_option(word),
            None => is_boolean(word) || is_number(word) || is_jvm_option(word),
        }
    }

    fn is_known(self, key: &str) -> bool {
        self.known
            .keys
            .iter()
            .any(|own| match own.strip_suffix('*') {
                Some(beginning) => key.starts_with(beginning),
                None => key == own,
            })
    }

    fn is_secret(self, key: &str) -> bool {
        self.all
            .secret
            .iter()
            .any(|word| key.contains(word.as_str()))
    }
}

/// The longest word in bytes that counts as a name or a word of a language.
const LONGEST: usize = 64;

fn unquoted(text: &str) -> &str {
    let quoted = ['"', '\''].into_iter().find_map(|quote| {
        let text = text.strip_prefix(quote)?;
        text.strip_suffix(quote)
    });
    quoted.unwrap_or(text)
}

fn is_key(key: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    !key.is_empty() && key.len() <= LONGEST && key.chars().all(name)
}

fn is_of_section(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | ':' | '/')
}

/// Exactly `${NAME}` of the environment, which names a secret without being one.
fn is_variable(value: &str) -> bool {
    let name = value.strip_prefix("${").and_then(|v| v.strip_suffix('}'));
    name.is_some_and(|name| {
        let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty() && name.chars().all(of_name)
    })
}

fn is_boolean(word: &str) -> bool {
    const WORDS: [&str; 10] = [
        "true", "false", "yes", "no", "on", "off", "null", "none", "always", "never",
    ];
    WORDS.iter().any(|own| word.eq_ignore_ascii_case(own))
}

/// A number, a size, a time or a version: digits with dots, at most eight in a row, and few letters after them.
fn is_number(word: &str) -> bool {
    let word = word.trim_start_matches(['-', '+', '^', '~', 'v', '<', '>', '=']);
    let digits = word.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, rest) = word.split_at(digits.unwrap_or(word.len()));
    let parts = number.split('.').count() <= 4 && number.split('.').all(|part| part.len() <= 8);
    let unit = |rest: &str| {
        const WORDS: [&str; 6] = ["alpha", "beta", "rc", "snapshot", "release", "final"];
        let rest = rest.to_ascii_lowercase();
        let word = rest.trim_matches(|c: char| c == '-' || c == '.' || c.is_ascii_digit());
        let digits = rest.chars().filter(char::is_ascii_digit).count();
        rest.len() <= 16 && digits <= 4 && (word.len() <= 2 || WORDS.contains(&word))
    };
    number.starts_with(|c: char| c.is_ascii_digit()) && parts && unit(rest)
}

/// `-Xmx2g`, `-XX:+UseParallelGC`, `-ea`.
fn is_jvm_option(word: &str) -> bool {
    let Some(name) = word.strip_prefix('-') else {
        return false;
    };
    let (name, value) = name.split_once('=').unwrap_or((name, "0"));
    let size = name
        .strip_prefix('X')
        .map(|n| n.trim_start_matches(|c: char| c.is_ascii_lowercase()));
    let is_size = size.is_some_and(|s| s.is_empty() || is_number(s));
    let of_name = |c: char| c.is_ascii_alphabetic() || matches!(c, ':' | '+' | '-');
    let named = name.len() <= LONGEST && name.chars().all(of_name);
    (is_size || named) && (is_boolean(value) || is_number(value))
}

/// An address without a user, a query or a part that looks like a token.
fn is_open_address(word: &str) -> bool {
    let Some((scheme, rest)) = word.split_once("://") else {
        return false;
    };
    let scheme = scheme.chars().all(|c| c.is_ascii_alphabetic() || c == '+');
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let of_authority =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']' | '_');
    let named = is_variable(authority) || authority.chars().all(of_authority);
    let parts = authority.split(['.', ':']).chain(path.split('/'));
    scheme
        && named
        && parts
            .into_iter()
            .all(|part| is_variable(part) || is_plain_value(part))
}

/// A word of a language, with its punctuation: letters, a number, or an address.
fn is_plain(word: &str) -> bool {
    if word.contains("://") {
        return is_open_address(word.trim_matches(['(', ')', ',', '.', ';', '<', '>']));
    }
    let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
    let of_word = |c: char| c.is_alphabetic() || matches!(c, '-' | '/' | '\'' | '.' | '_' | '@');
    let letters = word.len() <= 32 && word.chars().all(of_word);
    letters || is_number(word)
}

/// A value that does not look like a token: its parts are letters, short, or numbers.
fn is_plain_value(word: &str) -> bool {
    const SHORT: usize = 12;
    let of_value = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '&' | '=' | '$' | '`');
    let part = |part: &str| {
        let letters = part.len() <= 32 && part.chars().all(|c| c.is_ascii_alphabetic());
        letters || part.len() <= SHORT
    };
    let separators = [
        '/', '.', '-', '_', ':', '@', '*', ',', '~', '(', ')', '%', '+',
    ];
    // A user and a password before a host, with or without a scheme.
    let login = |(before, _): (&str, &str)| before.contains(':');
    word.len() <= 256
        && word.chars().all(of_value)
        && !word.rsplit_once('@').is_some_and(login)
        && word.split(separators).all(part)
}

#[cfg(test)]
mod tests;
