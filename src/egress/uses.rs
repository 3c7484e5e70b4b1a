//! Counts a container's requests that get the node's secrets. The sidecar knows the secrets' names, never their values.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::policy::NodeSecret;
use crate::rules::request::{Request, RequestRule};

/// A secret, as the sidecar knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CountedSecret {
    /// Its name.
    pub name: String,
    /// The requests that get it.
    pub requests: BTreeSet<RequestRule>,
    /// The most requests that may get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

impl From<&NodeSecret> for CountedSecret {
    fn from(secret: &NodeSecret) -> Self {
        Self {
            name: secret.name.to_string(),
            requests: secret.requests.clone(),
            limit: secret.uses.map(|uses| uses.get()),
        }
    }
}

/// A secret's uses, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretUses {
    /// The secret.
    pub name: String,
    /// Requests that got it so far.
    pub used: u64,
    /// The most requests that may get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// All secrets of a container, with their counts.
#[derive(Debug, Default)]
pub struct Uses(Vec<(CountedSecret, Cell<u64>)>);

impl Uses {
    /// All unused.
    pub fn new(all: Vec<CountedSecret>) -> Self {
        let counted = all.into_iter().map(|secret| (secret, Cell::new(0)));
        Self(counted.collect())
    }

    /// Counts an allowed request. An error if one of its secrets is used up; then nothing is counted.
    pub fn count(&self, request: &Request) -> Result<(), String> {
        let gets = |secret: &CountedSecret| secret.requests.iter().any(|rule| rule.allows(request));
        let all: Vec<_> = self.0.iter().filter(|(secret, _)| gets(secret)).collect();
        let is_used_up = |(secret, used): &&&(CountedSecret, Cell<u64>)| {
            secret.limit.is_some_and(|limit| used.get() >= limit.into())
        };
        if let Some((secret, used)) = all.iter().find(is_used_up) {
            return Err(format!(
                "the secret {} that it would get is used up: {} requests had it, as many as the node lets one container make with it",
                secret.name,
                used.get()
            ));
        }
        for (_, used) in all {
            used.set(used.get() + 1);
        }
        Ok(())
    }

    /// All uses, for display.
    pub fn list(&self) -> Vec<SecretUses> {
        let shown = self.0.iter().map(|(secret, used)| SecretUses {
            name: secret.name.clone(),
            used: used.get(),
            limit: secret.limit,
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::request::typed;

    #[test]
    fn requests_that_get_a_secret_are_counted_up_to_its_limit() {
        let secret = |name: &str, request: &str, limit| CountedSecret {
            name: name.to_owned(),
            requests: [request.parse().unwrap()].into(),
            limit,
        };
        let all = vec![
            secret("one", "POST https://a.test/v1/**", Some(2)),
            secret("all", "* https://a.test/**", None),
        ];
        let uses = Uses::new(all);
        let count = |text: &str| uses.count(&typed(text).unwrap().request);
        for _ in 0..2 {
            assert_eq!(count("POST https://a.test/v1/x"), Ok(()));
        }
        let error = count("POST https://a.test/v1/x").unwrap_err();
        assert!(
            error.contains("the secret one") && error.contains("2 requests"),
            "{error}"
        );
        assert_eq!(count("GET https://a.test/v1/x"), Ok(()));
        assert_eq!(count("GET https://b.test/"), Ok(()));
        let shown: Vec<_> = uses
            .list()
            .into_iter()
            .map(|one| (one.name, one.used))
            .collect();
        assert_eq!(shown, [("one".to_owned(), 2), ("all".to_owned(), 3)]);
    }
}
