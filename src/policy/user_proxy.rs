//! PURE. The upstream proxy of the user of `wrap`: `HTTPS_PROXY` and `NO_PROXY` of the user's own environment.
//!
//! The proxy is the other end of every connection that it gets: a false one could be sent anything. So the shell refuses
//! a value that a sandbox may have put there (`src/wrap/proxy.rs`), and an operator's ceiling refuses all.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::upstream::ProxyUrl;
use super::{Upstream, UpstreamNames, UpstreamSource};
use crate::rules::connection::contains;
use crate::rules::{Host, HostName, NetworkPrefix, closed};
use crate::text::{ValueError, string_form};

/// The variables that name the proxy. As with curl, the first that is set counts.
pub const VARIABLES: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];
const EXCEPTIONS: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// The most exceptions, and the longest value of a variable. No real node has as many.
const MOST: usize = 1024;
const LONGEST: usize = 64 << 10;

/// A proxy that a variable names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserProxy {
    /// The proxy, with its credentials.
    pub url: ProxyUrl,
    /// The variable.
    pub variable: &'static str,
    /// Hosts that are dialled directly.
    pub direct: BTreeSet<DirectHost>,
}

/// Hosts that are reached without the proxy: one item of `NO_PROXY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DirectHost {
    /// All: there is no proxy.
    Any,
    /// A name, and all names below it.
    Name(HostName),
    /// Addresses.
    Network(NetworkPrefix),
}

string_form!(DirectHost);

impl fmt::Display for DirectHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Name(name) => name.fmt(f),
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl FromStr for DirectHost {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Ok(network) = text.trim_matches(['[', ']']).parse() {
            return Ok(Self::Network(network));
        }
        let name = text.strip_prefix('*').unwrap_or(text);
        name.strip_prefix('.')
            .unwrap_or(name)
            .parse()
            .map(Self::Name)
    }
}

impl DirectHost {
    /// Whether it covers this host.
    pub fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Name(name), Host::Name(host)) => {
                let above = host.as_str().strip_suffix(name.as_str());
                above.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Self::Network(network), Host::Address(address)) => {
                let (net, bits) = network.parts();
                contains(net, bits, *address)
            }
            (Self::Name(_), Host::Address(_)) | (Self::Network(_), Host::Name(_)) => false,
        }
    }
}

impl UserProxy {
    /// Reads the variables.
    ///
    /// # Errors
    /// A variable names something that cannot be used. The reason has nothing of its value, which may be a password.
    pub fn of(own: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let set = |names: [&'static str; 2]| {
            let mut names = names.into_iter();
            names.find_map(|name| Some((name, own(name).filter(|value| !value.is_empty())?)))
        };
        let Some((variable, value)) = set(VARIABLES) else {
            return Ok(None);
        };
        let exceptions = set(EXCEPTIONS).map(|(_, value)| value).unwrap_or_default();
        if value.len() + exceptions.len() > LONGEST {
            return Err(format!(
                "{variable} and NO_PROXY are longer than {LONGEST} bytes"
            ));
        }
        let direct = direct(&exceptions);
        if direct.contains(&DirectHost::Any) {
            return Ok(None);
        }
        // curl and others take a name without a scheme for a proxy that speaks HTTP.
        let url = match value.contains("://") {
            true => value.parse(),
            false => format!("http://{value}").parse(),
        };
        let url: ProxyUrl =
            url.map_err(|error: ValueError| format!("its value is not {}", error.allowed))?;
        match why_not(&url.host) {
            Some(why) => Err(why.to_owned()),
            None => Ok(Some(Self {
                url,
                variable,
                direct,
            })),
        }
    }

    /// The proxy without its credentials.
    pub fn upstream(&self) -> Upstream {
        let ProxyUrl {
            tls, host, port, ..
        } = &self.url;
        Upstream {
            tls: *tls,
            host: host.to_string(),
            port: *port,
            names: UpstreamNames::Vetted,
            source: UpstreamSource::User(self.variable.to_owned()),
            direct: self.direct.clone(),
        }
    }
}

/// The items that are understood. Programs disagree about others, such as those with a port, and connections to those
/// hosts go through the proxy.
fn direct(exceptions: &str) -> BTreeSet<DirectHost> {
    let items = exceptions
        .split([',', ' ', '\t'])
        .filter(|item| !item.is_empty());
    items
        .filter_map(|item| item.parse().ok())
        .take(MOST)
        .collect()
}

/// Why no proxy is dialled there; `None` if it may be.
pub fn why_not(host: &Host) -> Option<&'static str> {
    match host {
        Host::Name(name) if closed::is_metadata(name) => {
            Some("it names a metadata service, where a cloud gives its machine's credentials")
        }
        Host::Name(_) => None,
        Host::Address(address) => is_no_proxys(*address)
            .then_some("its address is link-local, a metadata service's or no host's"),
    }
}

fn is_no_proxys(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    is_local || address.is_unspecified() || address.is_multicast() || closed::is_closed(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<UserProxy>, String> {
        UserProxy::of(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_variables_are_read_as_curl_reads_them() {
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&[("HTTPS_PROXY", "")]).unwrap(), None);
        assert_eq!(of(&[("HTTP_PROXY", "http://a.test:1")]).unwrap(), None);
        let both = [
            ("HTTPS_PROXY", "http://upper.test:1"),
            ("https_proxy", "http://me:hunter2@lower.test:2/"),
            ("NO_PROXY", "upper.test"),
            ("no_proxy", "lower.test"),
        ];
        let proxy = of(&both).unwrap().unwrap();
        assert_eq!(proxy.variable, "https_proxy");
        let upstream = proxy.upstream();
        assert_eq!(upstream.to_string(), "http://lower.test:2");
        assert_eq!(upstream.direct, ["lower.test".parse().unwrap()].into());
        assert!(!format!("{proxy:?} {upstream:?}").contains("hunter2"));
        let plain = of(&[("HTTPS_PROXY", "proxy.test:3128")]).unwrap().unwrap();
        assert_eq!(plain.upstream().to_string(), "http://proxy.test:3128");
        let secured = of(&[("HTTPS_PROXY", "https://[fd00::1]:443")]).unwrap();
        assert!(secured.unwrap().upstream().tls);
        // `*` means that there is no proxy.
        assert_eq!(of(&[both[0], ("NO_PROXY", "a.test, *")]).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_used_is_said_without_its_password() {
        for value in [
            "socks5://me:hunter2@proxy.test:1080",
            "http://me:hunter2@proxy.test",
            "me:hunter2@proxy.test",
            "http://me:hunter2@169.254.169.254:80",
            "http://me:hunter2@metadata.google.internal:80",
            "http://me:hunter2@100.100.100.200:80",
            "http://me:hunter2@0.0.0.0:80",
            "http://me:hunter2@224.0.0.1:80",
            "http://me:hunter2@[fe80::1]:80",
            "http://me:hunter2@[::]:80",
            "http://me:hunter2@[fd00:ec2::254]:80",
        ] {
            let why = of(&[("HTTPS_PROXY", value)]).unwrap_err();
            assert!(!why.contains("hunter2"), "{value}: {why}");
        }
        let long = "x".repeat(LONGEST);
        assert!(of(&[("HTTPS_PROXY", "http://a.test:1"), ("NO_PROXY", &long)]).is_err());
        // The user's own machine and the company's network are where proxies are.
        for value in [
            "127.0.0.1:3128",
            "[::1]:3128",
            "10.0.0.1:3128",
            "localhost:3128",
        ] {
            assert!(of(&[("HTTPS_PROXY", value)]).unwrap().is_some(), "{value}");
        }
    }

    #[test]
    fn exceptions_cover_names_below_and_networks() {
        let list =
            direct("a.test,.b.test *.c.test, 10.0.0.0/8,192.0.2.1,[2001:db8::1],d.test:80,,-x-");
        let covered = |host: &str| list.iter().any(|one| one.covers(&host.parse().unwrap()));
        for host in [
            "a.test",
            "x.a.test",
            "b.test",
            "x.b.test",
            "y.x.c.test",
            "10.1.2.3",
            "192.0.2.1",
            "2001:db8::1",
        ] {
            assert!(covered(host), "{host}");
        }
        for host in [
            "xa.test",
            "test",
            "d.test",
            "11.0.0.1",
            "192.0.2.2",
            "2001:db8::2",
        ] {
            assert!(!covered(host), "{host}");
        }
        for text in ["a.test", "10.0.0.0/8", "*"] {
            assert_eq!(text.parse::<DirectHost>().unwrap().to_string(), text);
        }
    }
}
