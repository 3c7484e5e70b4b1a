//! A namespace of a plan: a new one, or one to join by path.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use oci_spec::runtime::LinuxNamespaceType;
use serde::{Deserialize, Serialize};

/// The resource that a namespace isolates (namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamespaceType {
    /// The root of the cgroups.
    Cgroup,
    /// System V objects and POSIX queues.
    Ipc,
    /// Mounts.
    Mount,
    /// Interfaces, routes and sockets.
    Network,
    /// Processes.
    Pid,
    /// Clocks that start at boot.
    Time,
    /// Users and their capabilities.
    User,
    /// The host's name.
    Uts,
}

impl NamespaceType {
    const ALL: [Self; 8] = [
        Self::Cgroup,
        Self::Ipc,
        Self::Mount,
        Self::Network,
        Self::Pid,
        Self::Time,
        Self::User,
        Self::Uts,
    ];

    /// The specification's name (runtime-spec 1.2, config-linux.md "Namespaces").
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Ipc => "ipc",
            Self::Mount => "mount",
            Self::Network => "network",
            Self::Pid => "pid",
            Self::Time => "time",
            Self::User => "user",
            Self::Uts => "uts",
        }
    }
}

impl From<NamespaceType> for LinuxNamespaceType {
    fn from(isolates: NamespaceType) -> Self {
        match isolates {
            NamespaceType::Cgroup => Self::Cgroup,
            NamespaceType::Ipc => Self::Ipc,
            NamespaceType::Mount => Self::Mount,
            NamespaceType::Network => Self::Network,
            NamespaceType::Pid => Self::Pid,
            NamespaceType::Time => Self::Time,
            NamespaceType::User => Self::User,
            NamespaceType::Uts => Self::Uts,
        }
    }
}

/// A namespace of the container. In records it is `type`, or `type=path`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlannedNamespace {
    /// Its type.
    pub isolates: NamespaceType,
    /// The namespace to join; `None`: a new one.
    pub path: Option<PathBuf>,
}

impl PlannedNamespace {
    /// A new namespace.
    pub fn new(isolates: NamespaceType) -> Self {
        Self {
            isolates,
            path: None,
        }
    }

    /// The namespace at a path.
    pub fn at(isolates: NamespaceType, path: impl Into<PathBuf>) -> Self {
        Self {
            isolates,
            path: Some(path.into()),
        }
    }

    /// Whether it is a new namespace of this type.
    pub fn is_new(&self, isolates: NamespaceType) -> bool {
        self.isolates == isolates && self.path.is_none()
    }

    /// Whether it is the namespace of this type at this path.
    pub fn is_at(&self, isolates: NamespaceType, path: &Path) -> bool {
        self.isolates == isolates && self.path.as_deref() == Some(path)
    }
}

/// The text of a record is no namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no namespace: it is `type` or `type=path`")]
pub struct NamespaceError(String);

impl FromStr for PlannedNamespace {
    type Err = NamespaceError;

    fn from_str(text: &str) -> Result<Self, NamespaceError> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name, Some(PathBuf::from(path))),
            None => (text, None),
        };
        let found = NamespaceType::ALL
            .into_iter()
            .find(|kind| kind.name() == name);
        let isolates = found.ok_or_else(|| NamespaceError(text.to_owned()))?;
        Ok(Self { isolates, path })
    }
}

impl TryFrom<String> for PlannedNamespace {
    type Error = NamespaceError;

    fn try_from(text: String) -> Result<Self, NamespaceError> {
        text.parse()
    }
}

impl From<PlannedNamespace> for String {
    fn from(namespace: PlannedNamespace) -> Self {
        namespace.to_string()
    }
}

impl fmt::Display for PlannedNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.isolates.name())?;
        match &self.path {
            Some(path) => write!(f, "={}", path.display()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_only_the_type_and_the_path() {
        for text in ["pid", "network=/proc/self/ns/net", "user=/a=b"] {
            let namespace: PlannedNamespace = text.parse().unwrap();
            assert_eq!(namespace.to_string(), text);
        }
        for wrong in ["", "net", "Network", "=/x", "pid "] {
            let read: Result<PlannedNamespace, _> = wrong.parse();
            assert!(read.is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_type_is_read_by_its_own_name() {
        for kind in NamespaceType::ALL {
            let read = kind.name().parse();
            assert_eq!(read, Ok(PlannedNamespace::new(kind)));
        }
    }
}
