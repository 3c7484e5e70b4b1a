//! Names of credentials.

use std::str::FromStr;

use serde::Deserialize;

use crate::data::table;
use crate::text::{ValueError, text_type};

text_type! {
    /// A credential that `policies/never.toml` lists: `.npmrc`, `.codex/auth.json`.
    CredentialName
}

impl FromStr for CredentialName {
    type Err = ValueError;

    /// Only listed names. Any other would have no effect, and its author would not notice.
    fn from_str(value: &str) -> Result<Self, ValueError> {
        let known = known();
        match known.iter().any(|name| name == value) {
            true => Ok(Self(value.to_owned())),
            false => Err(ValueError::one_of(value, known.iter().map(String::as_str))),
        }
    }
}

/// The accepted names, in the list's order.
fn known() -> Vec<String> {
    // The rest of the file is for the search of mounts.
    #[derive(Deserialize)]
    struct List {
        credentials: Credentials,
        keys: Keys,
    }
    #[derive(Deserialize)]
    struct Keys {
        names: Vec<String>,
        private: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Credentials {
        paths: Vec<String>,
    }
    let list: List = table!("never")
        .read()
        .expect("a test parses the built-in list");
    let keys = list.keys.names.into_iter().chain(list.keys.private);
    list.credentials.paths.into_iter().chain(keys).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_credentials_can_be_named() {
        let name: CredentialName = ".codex/auth.json".parse().unwrap();
        assert_eq!(name.to_string(), ".codex/auth.json");
        let error = ".codex/auth.jsn".parse::<CredentialName>().unwrap_err();
        assert!(
            error.to_string().contains("did you mean .codex/auth.json?"),
            "{error}"
        );
    }
}
