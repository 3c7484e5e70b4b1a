//! `net.*` sysctls: parsed here, written by the child that makes the inner namespace.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, openat};

use super::error::NetworkError;
use super::inner::FIXED;

const MAX_KEY: usize = 256;
/// proc_sys_write takes at most this many bytes at once.
const MAX_VALUE: usize = 4096;

/// One setting of the inner network namespace, such as `net.ipv4.ip_unprivileged_port_start=0`.
///
/// Its key is always below `net`, and its path has no empty, `.` or `..` part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl {
    key: String,
    path: String,
    value: String,
}

impl Sysctl {
    /// Parses a key as sysctl(8) reads it: `net.ipv4.conf.eth0/1.rp_filter`, or with the
    /// separators the other way round if the first one is a slash.
    pub fn parse(key: &str, value: &str) -> Result<Self, NetworkError> {
        let refuse = |reason| NetworkError::BadSysctl {
            key: key.to_owned(),
            reason,
        };
        if key.len() > MAX_KEY {
            return Err(refuse("the key is longer than 256 bytes"));
        }
        if value.len() > MAX_VALUE || value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
            return Err(refuse(
                "the value is longer than 4096 bytes or has control characters",
            ));
        }
        let path = match key.find(['.', '/']) {
            Some(at) if key.as_bytes()[at] == b'.' => swap_separators(key),
            Some(_) => key.to_owned(),
            None => return Err(refuse("it is not below net")),
        };
        let mut parts = path.split('/');
        if parts.next() != Some("net") || !path.contains('/') {
            return Err(refuse("it is not below net"));
        }
        for part in parts {
            if part.is_empty() || part == "." || part == ".." {
                return Err(refuse("it has an empty or relative part"));
            }
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:@".contains(&byte);
            if !part.bytes().all(known) {
                return Err(refuse("it has a character that no sysctl's name has"));
            }
        }
        Ok(Self {
            key: key.to_owned(),
            path,
            value: value.to_owned(),
        })
    }

    /// Whether the wall itself decides this setting, so that the spec's value is not applied.
    pub fn is_fixed(&self) -> bool {
        FIXED.iter().any(|key| swap_separators(key) == self.path)
    }

    /// Writes it through a procfs of the caller's own; /proc/sys/net always shows the reader's network namespace.
    pub(super) fn apply(&self, procfs: BorrowedFd<'_>) -> Result<(), NetworkError> {
        self.write(procfs).map_err(|source| NetworkError::Sysctl {
            key: self.key.clone(),
            value: self.value.clone(),
            source,
        })
    }

    fn write(&self, procfs: BorrowedFd<'_>) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = format!("sys/{}", self.path);
        let file = openat(procfs, path, flags, Mode::empty())?;
        // One write: the kernel parses each write separately.
        let written = std::fs::File::from(file).write(self.value.as_bytes())?;
        if written == self.value.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }
}

fn swap_separators(key: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    key.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_forms_of_a_key() {
        for (key, path) in [
            ("net.ipv4.ip_forward", "net/ipv4/ip_forward"),
            ("net/ipv4/ip_forward", "net/ipv4/ip_forward"),
            (
                "net.ipv4.conf.eth0/1.rp_filter",
                "net/ipv4/conf/eth0.1/rp_filter",
            ),
            (
                "net/ipv4/conf/eth0.1/rp_filter",
                "net/ipv4/conf/eth0.1/rp_filter",
            ),
        ] {
            assert_eq!(Sysctl::parse(key, "1").unwrap().path, path);
        }
    }

    #[test]
    fn refuses_keys_outside_of_net() {
        let long = format!("net.{}", "a".repeat(MAX_KEY));
        for key in [
            "",
            "net",
            "net.",
            "net/",
            ".net.a",
            "/net/a",
            "kernel.hostname",
            "netx.a",
            "net..a",
            "net/../kernel/core_pattern",
            "net.//.kernel",
            "net/./a",
            "net.a b",
            "net.a\0",
            "net.a\n",
            "net.ipv4.ä",
            "/proc/sys/net/a",
            &long,
        ] {
            assert!(Sysctl::parse(key, "1").is_err(), "{key:?}");
        }
    }

    #[test]
    fn knows_the_settings_of_the_wall_in_both_forms() {
        let fixed = |key| Sysctl::parse(key, "0 1").unwrap().is_fixed();
        assert!(fixed("net.ipv4.ping_group_range"));
        assert!(fixed("net/ipv6/icmp/echo_ignore_all"));
        assert!(!fixed("net.ipv4.ip_forward"));
    }

    #[test]
    fn refuses_values_that_are_more_than_one_line() {
        assert!(Sysctl::parse("net.ipv4.a", "1\n2").is_err());
        assert!(Sysctl::parse("net.ipv4.a", "1\0").is_err());
        assert!(Sysctl::parse("net.ipv4.a", &"1".repeat(MAX_VALUE + 1)).is_err());
        assert!(Sysctl::parse("net.ipv4.a", "0\t1").is_ok());
        assert!(Sysctl::parse("net.ipv4.a", "").is_ok());
    }
}
