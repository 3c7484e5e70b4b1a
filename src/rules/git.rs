//! Rules for git over HTTPS: the requests of the smart protocol (gitprotocol-http(5)) as request rules.
//!
//! ```text
//! rule = "git:" ("read" | "push") " " host [":" port] "/" path
//! ```
//! The path names a repository, with `*` and `**` as in a request rule. Without a final `*` or `.git`, it also means
//! `PATH.git`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::item::EgressRule;
use super::request::RequestRule;
use crate::text::ValueError;

const GRAMMAR: &str = "a rule for git: git:read HOST/OWNER/REPOSITORY or git:push HOST/OWNER/REPOSITORY, in which * is a part of a name";

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Service {
    /// Clone and fetch: the server's `git-upload-pack`.
    Read,
    /// Push: its `git-receive-pack`.
    Push,
}

/// A rule for git.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GitRule {
    service: Service,
    /// The repository as it was written: host and path.
    repository: String,
    requests: Vec<RequestRule>,
}

impl GitRule {
    /// Whether a text is meant as a git rule, valid or not.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("git:")
    }

    /// The allowed requests: the list of references, which a reader gets too, and the service itself.
    pub fn rules(self) -> BTreeSet<EgressRule> {
        self.requests().map(EgressRule::Request).collect()
    }

    /// The same, as request rules.
    pub fn requests(self) -> impl Iterator<Item = RequestRule> {
        self.requests.into_iter()
    }
}

fn requests(service: Service, repository: &str) -> Result<Vec<RequestRule>, ValueError> {
    let both = [repository.to_owned(), format!("{repository}.git")];
    let names = match repository.ends_with('*') || repository.ends_with(".git") {
        true => &both[..1],
        false => &both[..],
    };
    let texts = names.iter().flat_map(|name| {
        let service = service.on_the_server();
        [
            format!("GET https://{name}/info/refs"),
            format!("POST https://{name}/{service}"),
        ]
    });
    texts.map(|text| text.parse()).collect()
}

impl Service {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Push => "push",
        }
    }

    fn on_the_server(self) -> &'static str {
        match self {
            Self::Read => "git-upload-pack",
            Self::Push => "git-receive-pack",
        }
    }
}

impl fmt::Display for GitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "git:{} {}", self.service.word(), self.repository)
    }
}

impl FromStr for GitRule {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bad = || ValueError::grammar(text, GRAMMAR);
        let (service, repository) = text
            .strip_prefix("git:")
            .and_then(|rest| rest.split_once(' '))
            .ok_or_else(bad)?;
        let all = [Service::Read, Service::Push];
        let service = all.into_iter().find(|known| known.word() == service);
        let (host, path) = repository.split_once('/').ok_or_else(bad)?;
        // For a whole host, rules with `GET` and `POST` show more clearly what is open.
        if host.is_empty() || path.is_empty() || path.ends_with('/') || path == "**" {
            return Err(bad());
        }
        let service = service.ok_or_else(bad)?;
        Ok(Self {
            service,
            repository: repository.to_owned(),
            requests: requests(service, repository).map_err(|_| bad())?,
        })
    }
}

/// An item of a list of requests: a request rule, or a git rule, which expands to several.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct RequestItem(BTreeSet<RequestRule>);

impl TryFrom<String> for RequestItem {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        match GitRule::is_meant(&text) {
            true => Ok(Self(text.parse::<GitRule>()?.requests().collect())),
            false => Ok(Self([text.parse()?].into())),
        }
    }
}

/// Parses a list of these items.
pub fn several<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<RequestRule>, D::Error> {
    let items: Vec<RequestItem> = Vec::deserialize(from)?;
    Ok(items.into_iter().flat_map(|item| item.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<String> {
        let rule = text.parse::<GitRule>().unwrap();
        rule.requests.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_rule_expands_to_the_requests_of_the_protocol() {
        assert_eq!(
            rules("git:read github.com/acme/*"),
            [
                "GET https://github.com/acme/*/info/refs",
                "POST https://github.com/acme/*/git-upload-pack"
            ]
        );
        assert_eq!(
            rules("git:push git.example.com:8443/acme/app"),
            [
                "GET https://git.example.com:8443/acme/app/info/refs",
                "POST https://git.example.com:8443/acme/app/git-receive-pack",
                "GET https://git.example.com:8443/acme/app.git/info/refs",
                "POST https://git.example.com:8443/acme/app.git/git-receive-pack"
            ]
        );
        assert_eq!(rules("git:read a.test.example/x.git").len(), 2);
        let text = "git:push github.com/acme/app";
        assert_eq!(text.parse::<GitRule>().unwrap().to_string(), text);
    }

    /// A rule to read does not allow a push, and the reverse.
    #[test]
    fn neither_service_opens_the_other_or_another_repository() {
        use crate::egress::request::typed;
        use crate::rules::{EgressRules, RequestDecision};
        let of = |text: &str| EgressRules {
            allow: text.parse::<GitRule>().unwrap().rules(),
            ..EgressRules::default()
        };
        let (read, push) = (
            of("git:read a.test.example/acme/app"),
            of("git:push a.test.example/acme/app"),
        );
        for (rules, request, expected) in [
            (
                &read,
                "GET https://a.test.example/acme/app.git/info/refs?service=git-upload-pack",
                true,
            ),
            (
                &read,
                "POST https://a.test.example/acme/app/git-upload-pack",
                true,
            ),
            // Former fault: a push failed late and without a reason.
            (
                &read,
                "GET https://a.test.example/acme/app/info/refs?service=git-receive-pack",
                false,
            ),
            (
                &read,
                "GET https://a.test.example/acme/app/info/refs?x=y&service=git%2Dreceive-pack",
                false,
            ),
            (
                &push,
                "GET https://a.test.example/acme/app/info/refs?service=git-receive-pack",
                true,
            ),
            (&read, "GET https://a.test.example/acme/app/info/refs", true),
            (
                &read,
                "POST https://a.test.example/acme/app/git-receive-pack",
                false,
            ),
            (
                &read,
                "POST https://a.test.example/acme/app/../other/git-upload-pack",
                false,
            ),
            (
                &read,
                "POST https://a.test.example/acme/apps/git-upload-pack",
                false,
            ),
            (
                &read,
                "POST https://a.test.example/acme/app/x/git-upload-pack",
                false,
            ),
            (
                &read,
                "POST https://a.test.example/acme/app/info/lfs/objects/batch",
                false,
            ),
            (
                &push,
                "POST https://a.test.example/acme/app.git/git-receive-pack",
                true,
            ),
            (
                &push,
                "POST https://a.test.example/acme/app/git-upload-pack",
                false,
            ),
            (
                &push,
                "POST https://a.test.example/acme/app%2fgit-receive-pack",
                false,
            ),
        ] {
            let asked = typed(request).unwrap();
            let allowed = asked.alone().all(|one| {
                let decided = rules.decide_request(&one.request);
                matches!(decided, RequestDecision::Allow(_))
            });
            assert_eq!(allowed, expected, "{request}");
        }
    }

    #[test]
    fn a_rule_without_a_repository_is_refused() {
        for text in [
            "git:",
            "git:read",
            "git:read github.com",
            "git:read github.com/",
            "git:read github.com/**",
            "git:read /acme/app",
            "git:clone github.com/acme/app",
            "git:read https://github.com/acme/app",
            "git:read github.com/acme/app/",
            "git:read github.com/acme/../app",
            "git:read  github.com/acme/app",
            "git:read me@github.com/acme/app",
            "git:read github.com/acme/app?x",
        ] {
            assert!(text.parse::<GitRule>().is_err(), "{text}");
        }
    }
}
