//! PURE. The variables that the network wall sets for a process: the sidecar's address, plain addresses of hosts with
//! request rules, the socket of the user's SSH agent, and placeholders of the node's secrets.

use oci_spec::runtime::Process;
use serde::Deserialize;

use super::network::NetworkPlan;
use super::signing::{SSH_SOCKET_AT, SSH_VARIABLE};
use super::trust::{self, TRUST_IN};
use crate::data::table;
use crate::egress::own::no_proxy;
use crate::rules::request::Scheme;
use crate::rules::{Decision, Denial, EgressRules, Host, HostName, RuleTarget};

/// The most hosts to configure for git.
const MOST_GIT: usize = 64;

/// Sets the variables. A second call changes nothing.
pub(super) fn set(process: &mut Process, network: &NetworkPlan) {
    let before = process.env().clone().unwrap_or_default();
    let mut env = Environment(before.clone());
    if network.proxy_env {
        // A proxy set by the image or the engine cannot be reached.
        for (name, value) in proxies(network) {
            env.replace(&name, &value);
        }
    }
    // Where the sidecar opens TLS, programs use https:// as always.
    match network.opens() {
        Some(_) => env.trust(TRUST_IN),
        None => network
            .plain_addresses()
            .iter()
            .for_each(|plain| env.take(plain)),
    }
    if network.signing.is_some() {
        env.replace(SSH_VARIABLE, SSH_SOCKET_AT);
    }
    for secret in &network.secrets {
        // Replaces a value of the engine or the image: a real key of theirs would be inside.
        if let Some(name) = &secret.env {
            env.replace(&name.to_string(), &secret.placeholder());
        }
    }
    for honey in &network.honey {
        if let Some(name) = &honey.env {
            env.replace(&name.to_string(), honey.value.as_str());
        }
    }
    if env.0 != before {
        process.set_env(Some(env.0));
    }
}

/// Whether programs look for a proxy in this variable. Under `network.proxy-env` it names the sidecar, whatever it was.
pub fn is_of_proxies(variable: &str) -> bool {
    let is_it = |name: &&str| *name == variable || name.to_lowercase() == variable;
    PROXY_VARIABLES.iter().any(is_it)
}

/// The last one lists what is reached without a proxy.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// The proxy variables, in both cases. ALL_PROXY is not SOCKS: Python's httpx, which the SDKs of model providers use,
/// does not start if that names SOCKS and a package for it is missing.
fn proxies(network: &NetworkPlan) -> Vec<(String, String)> {
    let proxy = format!("http://127.0.0.1:{}", network.proxy_port);
    let direct = no_proxy(&network.own_names);
    PROXY_VARIABLES
        .iter()
        .flat_map(|name| {
            let value = match *name {
                "NO_PROXY" => &direct,
                _ => &proxy,
            };
            [*name, &name.to_lowercase()].map(|name| (name.to_owned(), value.clone()))
        })
        .collect()
}

/// What makes programs use plain HTTP for a host with request rules only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainAddress {
    /// A variable with the base address that programs use.
    Base {
        /// Its name.
        variable: String,
        /// Its value.
        address: String,
    },
    /// git's `url.http://HOST/.insteadOf`, in GIT_CONFIG_COUNT and its companions (git-config(1), ENVIRONMENT).
    Git(HostName),
}

/// `policies/plain.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BaseUrlList {
    base: Vec<BaseUrl>,
}

/// A variable that sets the base URL of an SDK.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BaseUrl {
    host: HostName,
    variable: String,
    address: String,
    /// The program that reads it.
    #[serde(rename = "source")]
    _source: String,
}

impl NetworkPlan {
    /// All plain addresses: known bases first, then git. None if the sidecar opens TLS: then https:// works as always.
    pub fn plain_addresses(&self) -> Vec<PlainAddress> {
        match self.opens() {
            Some(_) => Vec::new(),
            None => plain_addresses(&self.rules),
        }
    }
}

fn plain_addresses(rules: &EgressRules) -> Vec<PlainAddress> {
    if !rules.have_requests() {
        return Vec::new();
    }
    let plain: BaseUrlList = table!("plain")
        .read()
        .expect("a test parses the built-in list");
    let known = plain.base.into_iter();
    let known = known.filter(|base| has_requests_alone(rules, &base.host));
    let known = known.map(|base| PlainAddress::Base {
        variable: base.variable,
        address: base.address,
    });
    let mut named: Vec<&HostName> = rules
        .requests()
        .filter(|rule| rule.scheme == Scheme::Https && rule.port.is_none())
        .filter_map(|rule| match &rule.target {
            RuleTarget::Name(host) => Some(host),
            RuleTarget::Below(_) | RuleTarget::Any | RuleTarget::Addresses(..) => None,
        })
        .filter(|host| has_requests_alone(rules, host))
        .collect();
    named.sort();
    named.dedup();
    let git = named.into_iter().take(MOST_GIT).cloned();
    known.chain(git.map(PlainAddress::Git)).collect()
}

/// Whether HTTPS requests are allowed, but no connection. With a connection rule, programs reach it as always.
fn has_requests_alone(rules: &EgressRules, host: &HostName) -> bool {
    let host = Host::Name(host.clone());
    let port = Scheme::Https.port();
    rules.allow_requests(&host, Scheme::Https, port)
        && rules.decide(&host, port) == Decision::Deny(Denial::OnlyRequests)
}

/// Entries `NAME=VALUE`.
struct Environment(Vec<String>);

impl Environment {
    fn get(&self, name: &str) -> Option<&str> {
        // Most programs use the last of several entries.
        self.0.iter().rev().find_map(|entry| {
            let (found, value) = entry.split_once('=')?;
            (found == name).then_some(value)
        })
    }

    fn replace(&mut self, name: &str, value: &str) {
        self.0.retain(|entry| entry.split('=').next() != Some(name));
        self.0.push(format!("{name}={value}"));
    }

    /// Certificate files with the container's own authority. A file that a variable already names has it too.
    fn trust(&mut self, directory: &str) {
        for (name, file) in trust::variables(directory) {
            if self.get(name).is_none_or(str::is_empty) {
                self.replace(name, &file);
            }
        }
    }

    fn take(&mut self, plain: &PlainAddress) {
        match plain {
            // A value that is already set is deliberate.
            PlainAddress::Base { variable, address } => {
                if self.get(variable).is_none() {
                    self.replace(variable, address);
                }
            }
            PlainAddress::Git(host) => self.take_git(host),
        }
    }

    /// Adds an entry after the existing ones; adds none if they cannot be counted.
    fn take_git(&mut self, host: &HostName) {
        const COUNT: &str = "GIT_CONFIG_COUNT";
        let count = match self.get(COUNT) {
            None | Some("") => Some(0),
            Some(text) => text.parse::<u32>().ok(),
        };
        let key = format!("url.http://{host}/.insteadOf");
        let is_there = |number| self.get(&format!("GIT_CONFIG_KEY_{number}")) == Some(&key);
        if let Some(count) = count.filter(|count| *count < 1000 && !(0..*count).any(is_there)) {
            self.replace(&format!("GIT_CONFIG_KEY_{count}"), &key);
            let value = format!("https://{host}/");
            self.replace(&format!("GIT_CONFIG_VALUE_{count}"), &value);
            self.replace(COUNT, &(count + 1).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::rules;

    fn with(allow: &[&str], env: &[&str]) -> Vec<String> {
        let mut env = Environment(env.iter().map(|entry| (*entry).to_owned()).collect());
        for _ in 0..2 {
            for plain in plain_addresses(&rules(allow, &[])) {
                env.take(&plain);
            }
        }
        env.0
    }

    #[test]
    fn a_host_with_request_rules_only_gets_a_plain_http_address() {
        let messages = "POST https://api.anthropic.com/v1/messages";
        let env = with(&[messages], &["PATH=/bin"]);
        assert!(env.contains(&"ANTHROPIC_BASE_URL=http://api.anthropic.com".to_owned()));
        assert!(env.contains(&"GIT_CONFIG_COUNT=1".to_owned()));
        assert_eq!(env.len(), 5, "{env:?}");
        // Reached as always, or not at all.
        assert_eq!(with(&[messages, "api.anthropic.com"], &[]), [""; 0]);
        assert_eq!(with(&["api.anthropic.com"], &[]), [""; 0]);
        assert_eq!(with(&["GET https://*.test/**"], &[]), [""; 0]);
        assert_eq!(with(&["GET https://a.test:8443/**"], &[]), [""; 0]);
        // An explicit setting.
        let own = "ANTHROPIC_BASE_URL=http://elsewhere.test";
        assert!(with(&[messages], &[own]).contains(&own.to_owned()));
    }

    #[test]
    fn git_keeps_its_earlier_settings() {
        let own = [
            "GIT_CONFIG_COUNT=1",
            "GIT_CONFIG_KEY_0=user.name",
            "GIT_CONFIG_VALUE_0=A",
        ];
        let env = with(&["GET https://git.test/**", "GET https://a.test/**"], &own);
        for entry in [
            "GIT_CONFIG_COUNT=3",
            "GIT_CONFIG_KEY_0=user.name",
            "GIT_CONFIG_KEY_1=url.http://a.test/.insteadOf",
            "GIT_CONFIG_VALUE_1=https://a.test/",
            "GIT_CONFIG_KEY_2=url.http://git.test/.insteadOf",
        ] {
            assert!(env.contains(&entry.to_owned()), "{entry}: {env:?}");
        }
        let odd = ["GIT_CONFIG_COUNT=many"];
        assert_eq!(with(&["GET https://git.test/**"], &odd), odd);
    }
}
