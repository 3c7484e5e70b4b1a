//! Counts a container's requests that get the node's secrets. The sidecar knows the secrets' names, never their values.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::policy::NodeSecret;
use crate::rules::request::{Request, RequestRule};
use crate::rules::{ClockReading, EndDate, Expiry};

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
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<EndDate>,
}

impl From<&NodeSecret> for CountedSecret {
    fn from(secret: &NodeSecret) -> Self {
        Self {
            name: secret.name.to_string(),
            requests: secret.requests.clone(),
            limit: secret.uses.map(|uses| uses.get()),
            until: secret.until,
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
    /// When it expires, or did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Expiry>,
}

/// A secret that no further request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldSecret {
    /// The secret.
    pub name: String,
    /// Why.
    pub why: WithholdReason,
}

/// Why no further request gets a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithholdReason {
    /// As many requests as may get it got it.
    UsedUp(u64),
    /// It has expired.
    Expired(Expiry),
}

/// All secrets of a container, with their counts.
#[derive(Debug, Default)]
pub struct Uses(Vec<SecretState>);

#[derive(Debug)]
struct SecretState {
    secret: CountedSecret,
    used: Cell<u64>,
    end: Option<Expiry>,
    /// Whether its end was told.
    is_told: Cell<bool>,
}

impl SecretState {
    fn expired(&self, now: ClockReading) -> Option<Expiry> {
        self.end.filter(|end| end.is_over(now))
    }
}

impl Uses {
    /// All unused.
    pub fn new(all: Vec<CountedSecret>, now: ClockReading) -> Self {
        let states = all.into_iter().map(|secret| SecretState {
            end: secret.until.map(|date| Expiry::at(date).pinned(now)),
            secret,
            used: Cell::new(0),
            is_told: Cell::new(false),
        });
        Self(states.collect())
    }

    /// The secrets that this request gets.
    fn of(&self, request: &Request) -> impl Iterator<Item = &SecretState> {
        let gets = |one: &&SecretState| one.secret.requests.iter().any(|rule| rule.allows(request));
        self.0.iter().filter(gets)
    }

    /// Counts an allowed request. An error if one of its secrets has expired or is used up; then nothing is counted.
    pub fn count(&self, request: &Request, now: ClockReading) -> Result<(), WithheldSecret> {
        if let Some(withheld) = self.expired_for(request, now) {
            return Err(withheld);
        }
        let is_used_up = |one: &&SecretState| {
            let limit = one.secret.limit;
            limit.is_some_and(|limit| one.used.get() >= limit.into())
        };
        if let Some(one) = self.of(request).find(is_used_up) {
            return Err(WithheldSecret {
                name: one.secret.name.clone(),
                why: WithholdReason::UsedUp(one.used.get()),
            });
        }
        for one in self.of(request) {
            one.used.set(one.used.get() + 1);
        }
        Ok(())
    }

    /// The expired secret that this request would get.
    pub fn expired_for(&self, request: &Request, now: ClockReading) -> Option<WithheldSecret> {
        self.of(request).find_map(|one| {
            Some(WithheldSecret {
                name: one.secret.name.clone(),
                why: WithholdReason::Expired(one.expired(now)?),
            })
        })
    }

    /// The secrets that have expired since the last call.
    pub fn expire(&self, now: ClockReading) -> Vec<(String, Expiry)> {
        let over = self.0.iter().filter_map(|one| {
            let end = one.expired(now)?;
            (!one.is_told.replace(true)).then(|| (one.secret.name.clone(), end))
        });
        over.collect()
    }

    /// The ends that were not told yet.
    pub fn ends(&self) -> impl Iterator<Item = Expiry> {
        let coming = self.0.iter().filter(|one| !one.is_told.get());
        coming.filter_map(|one| one.end)
    }

    /// All uses, for display.
    pub fn list(&self) -> Vec<SecretUses> {
        let shown = self.0.iter().map(|one| SecretUses {
            name: one.secret.name.clone(),
            used: one.used.get(),
            limit: one.secret.limit,
            end: one.end,
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
            until: None,
        };
        let now = ClockReading::default();
        let all = vec![
            secret("one", "POST https://a.test/v1/**", Some(2)),
            secret("all", "* https://a.test/**", None),
        ];
        let uses = Uses::new(all, now);
        let count = |text: &str| uses.count(&typed(text).unwrap().request, now);
        for _ in 0..2 {
            assert_eq!(count("POST https://a.test/v1/x"), Ok(()));
        }
        let error = count("POST https://a.test/v1/x").unwrap_err();
        assert_eq!(
            (error.name.as_str(), error.why),
            ("one", WithholdReason::UsedUp(2))
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

    #[test]
    fn an_expired_secret_is_put_into_no_request() {
        let secret = |name: &str, request: &str, until| CountedSecret {
            name: name.to_owned(),
            requests: [request.parse().unwrap()].into(),
            limit: None,
            until,
        };
        let at = |seconds: i64| ClockReading {
            boot_ms: seconds.unsigned_abs() * 1000,
            unix: 10_000 + seconds,
        };
        let all = vec![
            secret("short", "* https://a.test/v1/**", EndDate::of(10_600)),
            secret("long", "* https://a.test/**", None),
        ];
        let uses = Uses::new(all, at(0));
        let count = |text: &str, now| uses.count(&typed(text).unwrap().request, now);
        assert_eq!(count("GET https://a.test/v1/x", at(599)), Ok(()));
        assert_eq!(uses.expire(at(599)), []);
        let why = count("GET https://a.test/v1/x", at(600)).unwrap_err();
        let words = why.to_string();
        assert!(words.contains("the secret short"), "{words}");
        assert!(words.contains("expired at 1970-01-01T02:56:40Z"), "{words}");
        // A clock that is set back gives it no time.
        let back = ClockReading { unix: 0, ..at(600) };
        assert_eq!(count("GET https://a.test/v1/x", back), Err(why));
        assert_eq!(count("GET https://a.test/x", at(600)), Ok(()));
        assert_eq!(uses.ends().count(), 1);
        assert_eq!(uses.expire(at(600)).len(), 1);
        assert_eq!((uses.expire(at(600)), uses.ends().count()), (vec![], 0));
        let used: Vec<_> = uses.list().into_iter().map(|one| one.used).collect();
        assert_eq!(used, [1, 2], "a refused request is not counted");
    }
}
