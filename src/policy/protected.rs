//! Names of files that the user's own tools run later.

use std::str::FromStr;

use serde::Deserialize;

use crate::data::table;
use crate::text::{ValueError, text_type};

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
}

impl FromStr for ProtectedName {
    type Err = ValueError;

    /// Only names of the list: another one would change nothing, and its author believes that it does.
    fn from_str(value: &str) -> Result<Self, ValueError> {
        let known = known();
        match value == ALL || known.iter().any(|name| name == value) {
            true => Ok(Self(value.to_owned())),
            false => Err(ValueError::one_of(value, known.iter().map(String::as_str))),
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
}
