//! Secrets of the node, or of the user of `wrap`, added to requests on the way out, so that no container holds them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::written_secret::WrittenSecret;
use super::{Count, Network, PolicyName, SecretSource, UserSource, VariableName};
use crate::rules::request::{RequestRule, Scheme};
use crate::rules::{EgressRules, EndDate, Host, RuleTarget};
use crate::text::{ValueError, string_form, text_type};

/// The longest name, in bytes.
const LONGEST_NAME: usize = 40;

/// `[[secret]]` of the node's file, or of the settings of the user of `wrap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenSecret", into = "WrittenSecret")]
pub struct NodeSecret {
    /// Its name.
    pub name: SecretName,
    /// The source of its value.
    pub source: SecretSource,
    /// The policies whose containers use it. None for the user's own: each of their runs does.
    pub policies: BTreeSet<PolicyName>,
    /// The requests that get it.
    pub requests: BTreeSet<RequestRule>,
    /// The place in the request.
    pub place: SecretPlace,
    /// The variable in which programs look for it; inside, it holds the placeholder.
    pub env: Option<VariableName>,
    /// How many requests of a container may get it.
    pub uses: Option<Count>,
    /// When it expires.
    pub until: Option<EndDate>,
}

/// The place of a secret in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// In a header field.
    Header(SecretHeader),
    /// As the password of this user (RFC 7617).
    Basic(BasicUser),
    /// As this parameter of the query.
    Query(QueryName),
}

impl SecretPlace {
    /// Whether two secrets have the same place.
    pub fn is_also(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Query(one), Self::Query(other)) => one == other,
            _ => self.field().is_some() && self.field() == other.field(),
        }
    }

    /// The header field that contains it.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Header(header) => Some(header.name()),
            Self::Basic(_) => Some("authorization"),
            Self::Query(_) => None,
        }
    }
}

/// In words: the header field, or the parameter.
impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(header) => f.write_str(header.name()),
            Self::Basic(user) => write!(f, "authorization (as the password of {user})"),
            Self::Query(name) => write!(f, "the parameter {name} of the query"),
        }
    }
}

text_type! {
    /// The user whose password is the secret: visible ASCII without colon (RFC 7617, section 2), at most 100
    /// characters.
    BasicUser,
    "a user's name: visible ASCII without ':', at most 100 characters, such as x-access-token",
    |text| {
        let plain = |b: u8| b.is_ascii_graphic() && b != b':';
        (1..=100).contains(&text.len()) && text.bytes().all(plain)
    }
}

text_type! {
    /// The query parameter that is the secret: letters, digits, hyphens, underscores and dots, at most 100.
    QueryName,
    "the name of a parameter of a query: letters, digits, '-', '_' and '.', at most 100",
    |text| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        (1..=100).contains(&text.len()) && text.bytes().all(plain)
    }
}

impl NodeSecret {
    /// Its source, if it is of the user of `wrap`.
    pub fn of_user(&self) -> Option<&UserSource> {
        match &self.source {
            SecretSource::User(source) => Some(source),
            SecretSource::File(_) | SecretSource::Volume(_) => None,
        }
    }

    /// Whether a policy allows a request to one of its hosts.
    pub fn is_for(&self, network: &Network) -> bool {
        let rules = EgressRules {
            allow: network.allowed_at_first().cloned().collect(),
            ..EgressRules::default()
        };
        let mut places = self.places().into_iter().flatten();
        places.any(|(host, port)| rules.allow_requests(&host, Scheme::Https, port))
    }

    /// Whether requests to this host are to get it; at any port, if none is given.
    pub fn is_used_at(&self, host: &str, port: Option<u16>) -> bool {
        let mut places = self.places().into_iter().flatten();
        places.any(|(its, at)| its.to_string() == host && port.is_none_or(|port| port == at))
    }

    /// The placeholder inside.
    pub fn placeholder(&self) -> String {
        format!("agentbox-secret-{}", self.name)
    }

    /// The host and port of each of its requests. An error if a request has no single host, or is sent in the clear.
    pub fn places(&self) -> Result<BTreeSet<(Host, u16)>, String> {
        let Self { name, requests, .. } = self;
        if requests.is_empty() || (self.policies.is_empty() && self.of_user().is_none()) {
            return Err(format!(
                "secret {name} has no requests, or no policies: name those that get it"
            ));
        }
        let place = |rule: &RequestRule| match (&rule.target, rule.scheme) {
            _ if rule.mcp().is_some() => Err(format!(
                "secret {name}: {rule} names calls, and a secret is put into requests: name the endpoint as GET,POST,DELETE https://HOST/PATH"
            )),
            (_, Scheme::Http) => Err(format!(
                "secret {name} would be sent in the clear by {rule}: use https://"
            )),
            (RuleTarget::Name(host), Scheme::Https) => {
                Ok((Host::Name(host.clone()), rule.allowed_port()))
            }
            (_, Scheme::Https) => Err(format!(
                "secret {name}: {rule} does not name one host, and each that it means would get the secret"
            )),
        };
        requests.iter().map(place).collect()
    }
}

text_type! {
    /// The name of a secret: lower-case letters, digits and hyphens, at most 40.
    SecretName,
    "the name of a secret: a-z, 0-9 and '-', a letter first, at most 40",
    |text| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
        starts && text.len() <= LONGEST_NAME && text.bytes().all(plain)
    }
}

/// The header field of a secret: `NAME: TEXT{}TEXT`, where `{}` is the secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretHeader {
    name: String,
    before: String,
    after: String,
}

/// Fields that frame or describe a request, or that a server may accept instead of the secret's own field.
const NEVER: [&str; 15] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "content-length",
    "content-type",
    "transfer-encoding",
    "accept-encoding",
    "range",
    "expect",
    "cookie",
];

impl SecretHeader {
    /// The field's name, in lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The field's value with this secret in it.
    pub fn value(&self, secret: &str) -> String {
        format!("{}{secret}{}", self.before, self.after)
    }
}

impl fmt::Display for SecretHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            before,
            after,
        } = self;
        write!(f, "{name}: {before}{{}}{after}")
    }
}

impl FromStr for SecretHeader {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bad = || {
            ValueError::grammar(
                text,
                "a field of a request with {} where the secret goes, such as \"authorization: Bearer {}\"; not one that says what the \
                 request is",
            )
        };
        let (name, value) = text.split_once(": ").ok_or_else(bad)?;
        let (before, after) = value.split_once("{}").ok_or_else(bad)?;
        let name = name.to_ascii_lowercase();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let visible = |part: &str| part.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        let good = !name.is_empty()
            && name.bytes().all(plain)
            && !NEVER.contains(&&*name)
            && visible(before)
            && visible(after)
            && !after.contains("{}")
            && !before.starts_with(' ')
            && !after.ends_with(' ');
        match good {
            true => Ok(Self {
                name,
                before: before.to_owned(),
                after: after.to_owned(),
            }),
            false => Err(bad()),
        }
    }
}

string_form!(SecretHeader);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_one_place_for_the_secret() {
        let bearer: SecretHeader = "Authorization: Bearer {}".parse().unwrap();
        assert_eq!(
            (bearer.name(), &*bearer.value("x")),
            ("authorization", "Bearer x")
        );
        assert_eq!(bearer.to_string(), "authorization: Bearer {}");
        for bad in [
            "x-api-key",
            "x-api-key: secret",
            "x-api-key: {}{}",
            "Host: {}",
            "content-length: {}",
            "connection: {}",
            "a b: {}",
            ": {}",
            "x: \n{}",
        ] {
            assert!(bad.parse::<SecretHeader>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_secret_has_one_place() {
        let read = |place: &str| {
            let text = format!(
                "name = \"n\"\nfile = \"/k\"\npolicies = [\"p\"]\nrequests = [\"GET https://a.test/x\"]\n{place}"
            );
            toml::from_str::<NodeSecret>(&text).map_err(|error| error.to_string())
        };
        let header = read("header = \"Authorization: Bearer {}\"").unwrap();
        let basic = read("basic = \"x-access-token\"").unwrap();
        let query = read("query = \"key\"").unwrap();
        assert!(header.place.is_also(&basic.place) && !header.place.is_also(&query.place));
        assert!(query.place.is_also(&query.place));
        for secret in [header, basic, query] {
            let text = serde_json::to_string(&secret).unwrap();
            assert_eq!(serde_json::from_str::<NodeSecret>(&text).unwrap(), secret);
        }
        for bad in [
            "",
            "basic = \"a\"\nquery = \"key\"",
            "basic = \"a:b\"",
            "basic = \"\"",
            "query = \"a=b\"",
            "query = \"\"",
            "body = \"a\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(
            read("")
                .unwrap_err()
                .contains("needs one of header, basic and query")
        );
    }

    #[test]
    fn requests_are_named_as_in_network_allow_for_git_too() {
        let read = |requests: &str| {
            let text = format!(
                "name = \"n\"\nfile = \"/k\"\npolicies = [\"p\"]\nbasic = \"x-access-token\"\nrequests = [{requests}]"
            );
            toml::from_str::<NodeSecret>(&text).map_err(|error| error.to_string())
        };
        let secret =
            read("\"git:push a.test.example/acme/app\", \"GET https://a.test.example/x\"").unwrap();
        let all: Vec<String> = secret.requests.iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 5, "{all:?}");
        assert!(
            all.iter()
                .any(|rule| rule.ends_with("app.git/git-receive-pack"))
        );
        assert_eq!(secret.places().unwrap().len(), 1);
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<NodeSecret>(&text).unwrap(), secret);
        let error = read("\"GET https://a.test.example/x\", \"git:pull a.test.example/acme/app\"")
            .unwrap_err();
        assert!(error.contains("git:read HOST/OWNER/REPOSITORY"), "{error}");
    }

    #[test]
    fn a_secret_has_one_source() {
        let read = |source: &str| {
            let text = format!(
                "name = \"n\"\n{source}\npolicies = [\"p\"]\nrequests = [\"GET https://a.test/x\"]\nquery = \"key\""
            );
            toml::from_str::<NodeSecret>(&text).map_err(|error| error.to_string())
        };
        for good in ["file = \"/k\"", "volume = \"api-key/.npmrc\""] {
            let secret = read(good).unwrap();
            let text = serde_json::to_string(&secret).unwrap();
            assert_eq!(serde_json::from_str::<NodeSecret>(&text).unwrap(), secret);
        }
        for bad in ["", "file = \"/k\"\nvolume = \"a/b\""] {
            let said = read(bad).unwrap_err();
            assert!(said.contains("one of file and volume"), "{said}");
        }
        for bad in [
            "a", "a/", "/b", "a/b/c", "a/..", "a/.", "a/..data", "../b", "A/b", "a/b c", "a/../b",
        ] {
            assert!(read(&format!("volume = {bad:?}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_secret_goes_only_to_single_hosts_by_tls() {
        let secret = |request: &str| NodeSecret {
            name: "model".parse().unwrap(),
            source: SecretSource::File("/etc/agentbox/model".parse().unwrap()),
            policies: ["agent".parse().unwrap()].into(),
            requests: [request.parse().unwrap()].into(),
            place: SecretPlace::Header("x-api-key: {}".parse().unwrap()),
            env: None,
            uses: None,
            until: None,
        };
        let places = secret("POST https://a.test/v1/**").places().unwrap();
        assert_eq!(places, [("a.test".parse().unwrap(), 443)].into());
        for bad in [
            "POST http://a.test/v1/**",
            "POST https://*.a.test/v1/**",
            "POST https://*/v1",
        ] {
            assert!(secret(bad).places().is_err(), "{bad}");
        }
        for bad in ["", "A", "a b", "-a", "1a"] {
            assert!(bad.parse::<SecretName>().is_err(), "{bad:?}");
            assert!(
                bad == "A" || bad.parse::<VariableName>().is_err(),
                "{bad:?}"
            );
        }
    }
}
