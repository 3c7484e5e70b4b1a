//! PURE. Why a mount is there, and what the engine requested in vain: enums for the code, with their words beside them.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::text;

/// Why a mount is there. It reads as a phrase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountReason {
    /// The engine mounts it in every container.
    Engine,
    /// It is the workspace.
    Workspace,
    /// It is on `wrap`'s list of what programs need of the node.
    Programs,
    /// It is a home directory. The container can write only a workspace in it.
    Home,
    /// It is an agent's own, with its settings, history and login; what it is for.
    Agent(String),
    /// It is a named volume of the engine's, and may be written.
    Volume,
    /// The policy keeps mounts besides the workspace.
    Other,
    /// The same, but this one is always read-only, and why.
    OtherReadOnly(String),
    /// Words only; code never decides by them. `explain --json` has words for each reason.
    #[serde(untagged)]
    InWords(String),
}

impl MountReason {
    /// Whether the mount is one besides the workspace, and no file of the engine's.
    pub fn is_other(&self) -> bool {
        matches!(self, Self::Other | Self::OtherReadOnly(_) | Self::Volume)
    }
}

impl From<String> for MountReason {
    fn from(words: String) -> Self {
        Self::InWords(words)
    }
}

impl fmt::Display for MountReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const OTHER: &str = "the policy keeps other mounts";
        match self {
            Self::Engine => f.write_str("the engine's"),
            Self::Workspace => f.write_str("the workspace"),
            Self::Programs => f.write_str("the node's, for programs to run"),
            Self::Home => f.write_str(
                "a whole home directory: at most the working directory in it is written, where that is the workspace's and does not begin \
                 with a dot",
            ),
            Self::Volume => f.write_str("a named volume of the engine"),
            Self::Other => f.write_str(OTHER),
            Self::OtherReadOnly(why) => write!(f, "{OTHER}, but it is always read-only: {why}"),
            Self::Agent(words) | Self::InWords(words) => f.write_str(words),
        }
    }
}

/// An item, other than a mount, that the engine requested and the container does not get. It reads as a phrase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum OmittedItem {
    /// A setting of the spec.
    Setting {
        /// Its field in config.json, or its name.
        name: String,
    },
    /// Capabilities that the caller requested.
    Capabilities {
        /// Their names.
        names: Vec<String>,
    },
    /// Capabilities that every engine requests: the caller did not ask for them, so nothing was refused.
    EngineCapabilities {
        /// Their names.
        names: Vec<String>,
    },
    /// Device nodes, as `--privileged` lists them.
    Devices {
        /// How many.
        count: usize,
    },
    /// A cgroup rule that allows every device.
    EveryDevice,
    /// Options of a mount that is kept.
    MountOptions {
        /// The mount point.
        #[serde(with = "text::one")]
        destination: PathBuf,
        /// The options, `rw` for a mount that is read-only here.
        options: Vec<String>,
    },
    /// A whole home directory, which is read-only, without a workspace in it.
    WholeHome {
        /// The mount point.
        #[serde(with = "text::one")]
        destination: PathBuf,
    },
    /// The same of a file that an engine mounts in every container.
    EngineMountOptions {
        /// The mount point.
        #[serde(with = "text::one")]
        destination: PathBuf,
        /// The options.
        options: Vec<String>,
    },
    /// The host's network, as of `docker run --network host`.
    HostNetwork,
    /// A file that a report-only policy masks.
    HiddenFile {
        /// Its path in the container.
        #[serde(with = "text::one")]
        path: PathBuf,
    },
    /// Words only, as in `explain --json`.
    #[serde(untagged)]
    InWords(String),
}

impl OmittedItem {
    /// Whether every engine requests it for every container.
    pub fn is_of_every_engine(&self) -> bool {
        matches!(
            self,
            Self::EngineCapabilities { .. } | Self::EngineMountOptions { .. }
        )
    }
}

impl OmittedItem {
    /// The item in words, with at most this many names of capabilities.
    pub fn words(&self, most_names: usize) -> String {
        let named = |names: &[String]| {
            let more = match names.len().saturating_sub(most_names) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named: Vec<&str> = names.iter().take(most_names).map(String::as_str).collect();
            format!("{}{more}", named.join(", "))
        };
        match self {
            Self::Setting { name } => {
                format!("{name}, which favours the container over others or has no wall")
            }
            Self::Capabilities { names } => format!("capabilities {}", named(names)),
            Self::EngineCapabilities { names } => {
                format!("capabilities that engines always request: {}", named(names))
            }
            Self::Devices { count } => format!("{count} devices of the node (--privileged)"),
            Self::EveryDevice => "access to every device of the node".to_owned(),
            Self::MountOptions {
                destination,
                options,
            }
            | Self::EngineMountOptions {
                destination,
                options,
            } => {
                let at = text::of(destination);
                let others = options.iter().filter(|option| *option != "rw");
                let others: Vec<&str> = others.map(String::as_str).collect();
                let others = others.join(", ");
                match (options.iter().any(|option| option == "rw"), others.as_str()) {
                    (true, "") => format!("{at} is read-only"),
                    (true, others) => format!("{at} is read-only and lacks the options {others}"),
                    (false, others) => format!("{at} lacks the options {others}"),
                }
            }
            Self::WholeHome { destination } => {
                let at = text::of(destination);
                format!(
                    "{at} is read-only: a whole home directory (a working directory in it is writable)"
                )
            }
            Self::HostNetwork => {
                "the host's network: it has its own, in which network.allow opens hosts".to_owned()
            }
            Self::HiddenFile { path } => format!("the file {}", text::of(path)),
            Self::InWords(words) => words.clone(),
        }
    }
}

impl fmt::Display for OmittedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_items_survive_a_record() {
        for reason in [
            MountReason::Engine,
            MountReason::Workspace,
            MountReason::Home,
            MountReason::Volume,
            MountReason::Other,
            MountReason::OtherReadOnly("it is /usr".to_owned()),
            MountReason::InWords("a package cache".to_owned()),
        ] {
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<MountReason>(&text).unwrap(), reason);
        }
        for item in [
            OmittedItem::Setting {
                name: "ioPriority".to_owned(),
            },
            OmittedItem::EngineCapabilities {
                names: vec!["MKNOD".to_owned()],
            },
            OmittedItem::Devices { count: 3 },
            OmittedItem::EveryDevice,
            OmittedItem::HostNetwork,
            OmittedItem::WholeHome {
                destination: "/home/a".into(),
            },
            OmittedItem::MountOptions {
                destination: "/data".into(),
                options: vec!["rw".to_owned()],
            },
            OmittedItem::EngineMountOptions {
                destination: "/etc/hostname".into(),
                options: vec!["rw".to_owned()],
            },
            OmittedItem::InWords("it was recorded in words".to_owned()),
        ] {
            let text = serde_json::to_string(&item).unwrap();
            assert_eq!(serde_json::from_str::<OmittedItem>(&text).unwrap(), item);
        }
    }

    /// The notice, logs, `explain` and their readers have the same words.
    #[test]
    fn items_keep_their_words() {
        let options = |options: &[&str]| OmittedItem::MountOptions {
            destination: "/data".into(),
            options: options.iter().map(|o| (*o).to_owned()).collect(),
        };
        assert_eq!(
            options(&["rw", "exec"]).to_string(),
            "/data is read-only and lacks the options exec"
        );
        let names = || vec!["MKNOD".to_owned(), "NET_RAW".to_owned()];
        assert_eq!(
            OmittedItem::EngineCapabilities { names: names() }.to_string(),
            "capabilities that engines always request: MKNOD, NET_RAW"
        );
        assert_eq!(
            OmittedItem::Capabilities { names: names() }.to_string(),
            "capabilities MKNOD, NET_RAW"
        );
        let some = OmittedItem::Capabilities { names: names() };
        assert_eq!(some.words(1), "capabilities MKNOD and 1 more");
        let engines = OmittedItem::EngineMountOptions {
            destination: "/etc/hosts".into(),
            options: vec!["suid".to_owned(), "dev".to_owned()],
        };
        assert_eq!(
            engines.to_string(),
            "/etc/hosts lacks the options suid, dev"
        );
    }
}
