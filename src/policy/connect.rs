//! Services of this machine that `wrap --connect` makes reachable inside.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::rules::Host;
use crate::text::{ValueError, string_form};

/// The most services of one run: the wall listens for each, and one message carries all listeners.
pub const MOST_SERVICES: usize = 32;

/// An item of `network.connect`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ConnectService {
    /// This port of the machine's loopback.
    Port(NonZeroU16),
    /// This port of another host, which rules must allow.
    Host(Host, NonZeroU16),
    /// This unix socket of a database.
    Socket(ServiceSocket),
    /// Connects to nothing by itself. In a ceiling, it lets a policy name any service.
    Any,
}

impl ConnectService {
    /// Parses a service that a user names: not `*`, which connects to nothing.
    ///
    /// # Errors
    /// As those of [`FromStr`], and for `*`.
    pub fn named(text: &str) -> Result<Self, ValueError> {
        if is_path(text) {
            return text.parse();
        }
        let allowed = match text.split_once(':') {
            None if text == "*" => {
                "one service, as PORT, HOST:PORT or a socket's path: `*` is for ceilings"
            }
            Some((outside, inside))
                if [outside, inside].map(port_of).iter().all(Option::is_some) =>
            {
                "one port, such as 5432: it is the same inside and outside"
            }
            _ => "a TCP port, HOST:PORT or a socket's path, such as 5432 or db.example.com:5432",
        };
        let service = parse(text).filter(Self::is_one);
        service.ok_or_else(|| ValueError::grammar(text, allowed))
    }

    /// The TCP port, which is the same inside.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Port(port) | Self::Host(_, port) => Some(port.get()),
            Self::Socket(_) | Self::Any => None,
        }
    }

    /// The unix socket.
    pub fn socket(&self) -> Option<&ServiceSocket> {
        match self {
            Self::Socket(socket) => Some(socket),
            Self::Port(_) | Self::Host(..) | Self::Any => None,
        }
    }

    /// Whether it names a service.
    pub fn is_one(&self) -> bool {
        *self != Self::Any
    }
}

/// The path of a unix socket, which is the same inside: absolute, of plain names, in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceSocket(String);

impl ServiceSocket {
    /// The path.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.path().parent().unwrap_or(Path::new("/"))
    }

    /// The socket's name in it.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Display for ServiceSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ServiceSocket {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        socket_path(text).ok_or_else(|| {
            ValueError::grammar(
                text,
                "a socket's whole path, such as /run/postgresql/.s.PGSQL.5432: plain names, each of letters, digits and `._+@-`",
            )
        })
    }
}

string_form!(ServiceSocket);

/// A path in its one spelling. The kernel's limit for a socket's path is 107 bytes (unix(7)).
fn socket_path(text: &str) -> Option<ServiceSocket> {
    const LONGEST: usize = 107;
    let is_plain = |name: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || "._+@-".contains(c);
        !matches!(name, "" | "." | "..") && name.chars().all(letters)
    };
    let names: Vec<&str> = text.strip_prefix('/')?.split('/').collect();
    if names.len() < 2 || text.len() > LONGEST || !names.iter().all(|name| is_plain(name)) {
        return None;
    }
    // /var/run is /run (FHS 3.0). Its link is never followed.
    let text = match names[..] {
        ["var", "run", _, ..] => &text["/var".len()..],
        _ => text,
    };
    Some(ServiceSocket(text.to_owned()))
}

impl fmt::Display for ConnectService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => port.fmt(f),
            Self::Host(Host::Address(IpAddr::V6(address)), port) => write!(f, "[{address}]:{port}"),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
            Self::Socket(socket) => socket.fmt(f),
            Self::Any => f.write_str("*"),
        }
    }
}

impl FromStr for ConnectService {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if is_path(text) {
            return text.parse().map(Self::Socket);
        }
        parse(text).ok_or_else(|| {
            ValueError::grammar(
                text,
                "a TCP port or service, such as 5432 or db.example.com:5432 (HOST:PORT), a socket's path, or `*`",
            )
        })
    }
}

string_form!(ConnectService);

/// Whether it is meant to be a path.
fn is_path(text: &str) -> bool {
    text.starts_with(['/', '~', '.'])
}

fn parse(text: &str) -> Option<ConnectService> {
    if text == "*" {
        return Some(ConnectService::Any);
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return port_of(text).map(ConnectService::Port);
    };
    let port = port_of(port)?;
    // An IPv6 address has brackets here, so that its last part is not taken for a port.
    if host.contains(':') && !host.starts_with('[') {
        return None;
    }
    let host: Host = host.parse().ok()?;
    Some(match is_loopback(&host) {
        true => ConnectService::Port(port),
        false => ConnectService::Host(host, port),
    })
}

/// Whether a host is this machine's loopback, in any spelling.
fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Name(name) => name.as_str() == "localhost",
        Host::Address(address) => address.is_loopback(),
    }
}

/// A port in its one spelling.
fn port_of(text: &str) -> Option<NonZeroU16> {
    let port: NonZeroU16 = text.parse().ok()?;
    (port.to_string() == text).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_one_meaning() {
        for (text, same) in [
            ("5432", "5432"),
            ("localhost:5432", "5432"),
            ("127.0.0.1:5432", "5432"),
            ("127.1.2.3:5432", "5432"),
            ("[::1]:5432", "5432"),
            ("DB.corp.example:5432", "db.corp.example:5432"),
            ("10.0.0.5:5432", "10.0.0.5:5432"),
            ("[2001:db8::1]:5432", "[2001:db8::1]:5432"),
            ("*", "*"),
            (
                "/run/postgresql/.s.PGSQL.5432",
                "/run/postgresql/.s.PGSQL.5432",
            ),
            ("/var/run/mysqld/mysqld.sock", "/run/mysqld/mysqld.sock"),
            ("/var/running/x/mysqld.sock", "/var/running/x/mysqld.sock"),
        ] {
            let parsed: ConnectService = text.parse().unwrap();
            assert_eq!(parsed.to_string(), same, "{text}");
            assert_eq!(parsed.to_string().parse(), Ok(parsed), "{text}");
        }
        for text in [
            "",
            "0",
            "05432",
            "+1",
            "65536",
            ":5432",
            "db:",
            "db:0",
            "db:*",
            "db.corp",
            "::1:5432",
            "[::1]5432",
            "5432/udp",
            "5432-5440",
            "*:5432",
            "*.corp:5432",
            "internal:db:5432",
            "127.1:5432",
            "a b:1",
            "fe80::1%1:5432",
            "/mysqld.sock",
            "/run/../run/x/mysqld.sock",
            "/run//x/mysqld.sock",
            "/run/x/mysqld.sock/",
            "/run/x/./mysqld.sock",
            "run/x/mysqld.sock",
            "~/x/mysqld.sock",
            "./mysqld.sock",
            "/run/a b/mysqld.sock",
            "/run/a,b/mysqld.sock",
            "/run/x/mysqld.sock\n",
        ] {
            assert!(text.parse::<ConnectService>().is_err(), "{text}");
        }
        for (text, words) in [
            ("redis", "such as 5432 or db"),
            ("5432:5433", "the same inside and outside"),
            ("~/x.sock", "whole path"),
        ] {
            let error = ConnectService::named(text).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("`*`"), "{error}");
        }
        let error = ConnectService::named("*").unwrap_err().to_string();
        assert!(error.contains("for ceilings"), "{error}");
        for text in ["5432", "db.corp.example:5432", "/run/x/mysqld.sock"] {
            assert_eq!(ConnectService::named(text), text.parse());
        }
    }
}
