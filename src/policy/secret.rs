//! Secrets of the node that are put into requests on their way out, so that no container holds them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::request::{RequestRule, Scheme};
use super::rule::Target;
use super::text::{ValueError, string_form};
use super::{Host, HostPath, PolicyName};

/// The longest name, in bytes.
const LONGEST_NAME: usize = 40;

/// `[[secret]]` of the node's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NodeSecret {
    /// What it is called.
    pub name: SecretName,
    /// The file that has it in its first line; root's alone.
    pub file: HostPath,
    /// Whose containers use it.
    pub policies: BTreeSet<PolicyName>,
    /// The requests that get it.
    pub requests: BTreeSet<RequestRule>,
    /// The field of a request that it is put into.
    pub header: SecretHeader,
    /// The variable in which programs look for it: they get what stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<VariableName>,
}

impl NodeSecret {
    /// What stands for it inside.
    pub fn placeholder(&self) -> String {
        format!("agentbox-secret-{}", self.name)
    }

    /// The host and port of each of its requests; an error where one names no single host, or is sent in the clear.
    pub fn places(&self) -> Result<BTreeSet<(Host, u16)>, String> {
        let Self { name, requests, .. } = self;
        if requests.is_empty() || self.policies.is_empty() {
            return Err(format!(
                "secret {name} has no requests, or no policies: name those that get it"
            ));
        }
        let place = |rule: &RequestRule| match (&rule.target, rule.scheme) {
            (_, Scheme::Http) => Err(format!(
                "secret {name} would be sent in the clear by {rule}: use https://"
            )),
            (Target::Name(host), Scheme::Https) => {
                Ok((Host::Name(host.clone()), rule.allowed_port()))
            }
            (_, Scheme::Https) => Err(format!(
                "secret {name}: {rule} does not name one host, and each that it means would get the secret"
            )),
        };
        requests.iter().map(place).collect()
    }
}

/// The name of a secret: lower-case letters, digits and hyphens, at most 40.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SecretName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
        match starts && text.len() <= LONGEST_NAME && text.bytes().all(plain) {
            true => Ok(Self(text.to_owned())),
            false => Err(ValueError::grammar(
                text,
                "the name of a secret: a-z, 0-9 and '-', a letter first, at most 40",
            )),
        }
    }
}

string_form!(SecretName);

/// The name of an environment variable (environ(7)): letters, digits and underscores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VariableName(String);

impl fmt::Display for VariableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for VariableName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        match starts && text.bytes().all(plain) {
            true => Ok(Self(text.to_owned())),
            false => Err(ValueError::grammar(
                text,
                "the name of a variable: letters, digits and '_', no digit first",
            )),
        }
    }
}

string_form!(VariableName);

/// The field that a secret is put into: `NAME: TEXT{}TEXT`, in which `{}` is the secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretHeader {
    name: String,
    before: String,
    after: String,
}

/// Fields that say what a request is, or that a server may take instead of it.
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

    /// The field's value with this secret.
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
    fn a_secret_goes_to_single_hosts_by_tls() {
        let secret = |request: &str| NodeSecret {
            name: "model".parse().unwrap(),
            file: "/etc/agentbox/model".parse().unwrap(),
            policies: ["agent".parse().unwrap()].into(),
            requests: [request.parse().unwrap()].into(),
            header: "x-api-key: {}".parse().unwrap(),
            env: None,
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
