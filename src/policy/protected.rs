//! Names of files that the user's own tools run later.

use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;

use crate::data::table;
use crate::text::{ValueError, few, text_type};

text_type! {
    /// A place as `policies/protected.toml` lists it: `.vscode`, `.git/hooks`; `*` for all of them.
    ProtectedName
}

/// Stands for the whole list.
const ALL: &str = "*";

impl ProtectedName {
    /// Whether it stands for the whole list.
    pub fn is_all(&self) -> bool {
        self.as_str() == ALL
    }

    /// A name as users type it: `./.vscode/` too. A path that only contains a listed name is an error with that name, which
    /// counts in every repository.
    pub fn typed(text: &str) -> Result<Self, ValueError> {
        let plain = text.strip_prefix("./").unwrap_or(text);
        let plain = match plain.trim_end_matches('/') {
            "" => text,
            plain => plain,
        };
        plain.parse().map_err(|error: ValueError| {
            let depth = |name: &str| name.matches('/').count();
            let nearest = error.suggestion.as_deref();
            if nearest.is_some_and(|nearest| depth(nearest) == depth(plain)) {
                return error;
            }
            let contains = |name: &str| {
                let names: Vec<&str> = name.split('/').collect();
                let parts: Vec<&str> = plain.split('/').collect();
                parts.windows(names.len()).any(|some| some == names)
            };
            let known = known().into_iter().filter(|name| contains(name));
            match known.max_by_key(String::len) {
                Some(name) => ValueError::grammar(
                    text,
                    &format!("a name of the list: {name}, which counts in every repository"),
                ),
                None => error,
            }
        })
    }
}

impl FromStr for ProtectedName {
    type Err = ValueError;

    /// Only names of the list: another one would change nothing, and its author believes that it does.
    fn from_str(value: &str) -> Result<Self, ValueError> {
        let known = known();
        match value == ALL || known.iter().any(|name| name == value) {
            true => Ok(Self(value.to_owned())),
            false => Err(not_listed(value, &known)),
        }
    }
}

/// The error for another name: a directory of names is told which ones it holds.
fn not_listed(value: &str, known: &[String]) -> ValueError {
    let is_below = |name: &&String| Path::new(name).starts_with(value);
    let below: Vec<&String> = known.iter().filter(is_below).collect();
    match below.is_empty() || value.is_empty() {
        true => ValueError::one_of(value, known.iter().map(String::as_str)),
        false => {
            let allowed = format!("on the list, which has {}: name each", few(below, 120));
            ValueError::grammar(value, &allowed)
        }
    }
}

/// The names that can be given, in the list's order.
fn known() -> Vec<String> {
    // The reasons are for those who search mounts.
    #[derive(Deserialize)]
    struct List {
        place: Vec<ListedName>,
    }
    #[derive(Deserialize)]
    struct ListedName {
        path: String,
    }
    let list: List = table!("protected")
        .read()
        .expect("a test parses the built-in list");
    list.place.into_iter().map(|place| place.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_the_list_can_be_named() {
        let name: ProtectedName = ".vscode".parse().unwrap();
        assert_eq!(name.to_string(), ".vscode");
        assert!(!name.is_all() && "*".parse::<ProtectedName>().unwrap().is_all());
        let error = ".vscod".parse::<ProtectedName>().unwrap_err();
        assert!(
            error.to_string().contains("did you mean .vscode?"),
            "{error}"
        );
    }

    #[test]
    fn a_directory_of_names_is_told_which_it_holds() {
        let error = ProtectedName::typed(".github/").unwrap_err().to_string();
        assert_eq!(
            error,
            "\".github\" is not on the list, which has .github/hooks, .github/extensions, .github/lsp.json, .github/mcp.json, .github/agents, .github/workflows, .github/actions: name each"
        );
        for other in ["", ".git-hub", "github"] {
            let error = ProtectedName::typed(other).unwrap_err().to_string();
            assert!(error.contains("is not one of"), "{error}");
        }
    }

    #[test]
    fn a_name_is_taken_as_users_type_it_and_a_path_is_told_its_name() {
        for text in [
            ".git/hooks",
            "./.git/hooks",
            ".git/hooks/",
            "./.git/hooks//",
        ] {
            let name = ProtectedName::typed(text).map(|name| name.to_string());
            assert_eq!(name, Ok(".git/hooks".to_owned()), "{text}");
        }
        assert!(ProtectedName::typed("*").unwrap().is_all());
        // An option that seems to free one repository would free all of them.
        for (text, said) in [
            ("sub/.git/hooks", "list: .git/hooks,"),
            ("/home/me/p/.vscode/tasks.json", "list: .vscode,"),
            (".git/hooks/pre-commit", "list: .git/hooks,"),
            (".githook", "did you mean .githooks?"),
            ("src", "one of "),
            ("/", "one of "),
            ("", "one of "),
            ("../.git/hooks/..", "list: .git/hooks,"),
        ] {
            let error = ProtectedName::typed(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
