//! PURE. What in a plan is weaker than a reader may expect, and why.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::report::{DENIED, DENIED_IN};
use super::text;
use crate::policy::{Field, WORKSPACE_KEY, annotation_key};

/// One thing that a reader of the plan should know. It reads as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Warning {
    /// The network that it joins allows less than it requests.
    LessThanAsked {
        /// The field.
        field: Field,
        /// The requested value.
        asked: String,
        /// The effective value.
        there: String,
        /// The container that owns the network.
        container: String,
    },
    /// It has its own loopback instead of another network.
    NotShared {
        /// A container, or a path.
        whose: String,
        /// Why not.
        why: String,
    },
    /// The container's file lacks the network's denials: another container's sidecar serves the network.
    RefusalsOfAnother {
        /// The container that owns the network.
        container: String,
    },
    /// The end of a rule has no effect, because rules without an end allow the same.
    LastsAnyway {
        /// The rule of `network.temporary`, with its end.
        rule: String,
    },
    /// A secret is not added to requests to a host: connections to it are allowed, so no request is read.
    SecretNotSeen {
        /// The secret's name.
        secret: String,
        /// The host.
        host: String,
    },
    /// A `net.*` setting is left out because the network is another container's.
    SettingOfAnother {
        /// The setting.
        sysctl: String,
        /// The container that owns the network.
        container: String,
    },
    /// A setting of interfaces is left out because the container has none.
    SettingWithoutInterface {
        /// The setting.
        sysctl: String,
    },
    /// A pod's `filesystem.write` names a path that is no mount of this container.
    NothingToWrite {
        /// The path.
        path: PathBuf,
    },
    /// A pod's workspace annotation names a path that is no mount of this container.
    NoWorkspace {
        /// The path.
        path: PathBuf,
    },
    /// A pod's `filesystem.workspace-at` names paths at which this container has no mount.
    NoWorkspaceAt {
        /// The paths.
        places: String,
    },
    /// Several mounts could be the workspace.
    GuessedWorkspace {
        /// The chosen one.
        place: PathBuf,
        /// The others.
        rivals: String,
    },
    /// A mount is where programs look for credentials.
    AtCredentials {
        /// The mount point.
        place: PathBuf,
        /// The source.
        #[serde(with = "text::one")]
        source: PathBuf,
    },
    /// A mount is too large to search.
    NotSearched {
        /// The mount point.
        place: PathBuf,
        /// What stopped the search.
        why: String,
    },
    /// Files that root makes in a mount are root's on the node.
    RootsFiles {
        /// The mount point.
        place: PathBuf,
        /// Why its ids are not mapped.
        why: String,
    },
    /// Scratch data is in memory because the node has no disk for it.
    InMemory {
        /// What is missing.
        why: String,
    },
    /// Writes to the root file system are thrown away because it is no layer of the engine's.
    NoLayer {
        /// The root file system.
        #[serde(with = "text::one")]
        root: PathBuf,
        /// What it is.
        why: String,
    },
    /// Limits of a built-in policy that are not enforced, because the caller can make no cgroup.
    NotLimited {
        /// The fields.
        fields: String,
        /// What is missing.
        why: String,
    },
    /// The sidecar of a caller without root's rights.
    SidecarOfPerson {
        /// Whether the sidecar has its own cgroup.
        bounded: bool,
    },
    /// Supplementary groups that cannot be dropped.
    GroupsStay {
        /// How many.
        count: usize,
    },
    /// A hosts or resolv.conf file that is not the engine's is not read.
    NamesNotTaken {
        /// The source of the mount.
        #[serde(with = "text::one")]
        source: PathBuf,
        /// The mount point.
        place: PathBuf,
    },
    /// A pod's own volume counts as an ordinary mount, because it has a name outside the kubelet's directory.
    StrangeVolume {
        /// The mount point.
        place: PathBuf,
        /// The other name.
        #[serde(with = "text::one")]
        name: PathBuf,
    },
    /// CRI-O calls in a way that does not identify pods.
    UnknownCrio {
        /// Its `--root`.
        root: PathBuf,
    },
    /// Words only, as in `explain --json`.
    #[serde(untagged)]
    InWords(String),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LessThanAsked {
                field,
                asked,
                there,
                container,
            } => write!(
                f,
                "{field} requests {asked}: the network of container {container} has {there}, by that container's policy"
            ),
            Self::NotShared { whose, why } => write!(
                f,
                "the network of {whose} is not shared ({why}): the container has its own loopback"
            ),
            Self::RefusalsOfAnother { container } => f.write_str(&calls_alone(container)),
            Self::LastsAnyway { rule } => write!(
                f,
                "{rule} does not end: network.allow allows the same without an end"
            ),
            Self::SecretNotSeen { secret, host } => f.write_str(&not_seen(secret, host)),
            Self::SettingOfAnother { sysctl, container } => write!(
                f,
                "sysctl {sysctl} is not applied: the network is that of container {container}"
            ),
            Self::SettingWithoutInterface { sysctl } => write!(
                f,
                "sysctl {sysctl} is not applied: the container has no interface but lo"
            ),
            Self::NothingToWrite { .. }
            | Self::NoWorkspace { .. }
            | Self::NoWorkspaceAt { .. }
            | Self::GuessedWorkspace { .. }
            | Self::AtCredentials { .. }
            | Self::NotSearched { .. }
            | Self::RootsFiles { .. }
            | Self::InMemory { .. }
            | Self::NoLayer { .. }
            | Self::StrangeVolume { .. } => self.of_files(f),
            Self::NotLimited { .. } | Self::SidecarOfPerson { .. } | Self::GroupsStay { .. } => {
                self.without_root(f)
            }
            Self::NamesNotTaken { source, place } => write!(
                f,
                "no names are taken from {}, which is mounted at {}: it is not the engine's own file for this container",
                source.display(),
                place.display()
            ),
            Self::UnknownCrio { root } => write!(
                f,
                "CRI-O's --root {root:?} names no pod: volumes are ordinary mounts, Secrets stay out, sandboxes outlive their \
                 sidecar; set its runtime_root = \"/run/cri-o\""
            ),
            Self::InWords(text) => f.write_str(text),
        }
    }
}

fn not_seen(secret: &str, host: &str) -> String {
    format!(
        "secret {secret} is not used: network.allow opens {host} as a whole, so its requests are not read; allow the \
         requests of the secret alone, with their methods"
    )
}

/// Why a container in another one's network finds no denied hosts in its file.
fn calls_alone(container: &str) -> String {
    format!(
        "{DENIED_IN}/{DENIED} has denied system calls alone: the network is that of container {container}, whose own {} shows \
         refused hosts at /denied of the proxy",
        Field::ReportDenied
    )
}

impl Warning {
    /// Warnings about the container's files.
    fn of_files(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToWrite { path } => write!(
                f,
                "{} names {}, which is no mount of this container",
                annotation_key(Field::FilesystemWrite),
                path.display()
            ),
            Self::NoWorkspace { path } => write!(
                f,
                "{WORKSPACE_KEY} names {}, which is no mount of this container",
                path.display()
            ),
            Self::NoWorkspaceAt { places } => write!(
                f,
                "{} names {places}, where this container has no mount",
                annotation_key(Field::FilesystemWorkspaceAt)
            ),
            Self::GuessedWorkspace { place, rivals } => write!(
                f,
                "the workspace is {}, which holds the working directory, the caller's or the image's; {WORKSPACE_KEY} can name {rivals} instead",
                place.display()
            ),
            Self::AtCredentials { place, source } => write!(
                f,
                "{} is where programs look for credentials: what {} has is seen there, since its name on the node is not that of one",
                place.display(),
                source.display()
            ),
            Self::NotSearched { place, why } => write!(
                f,
                "{}: not all of it was searched for sockets and credentials ({why}); those found are masked",
                place.display()
            ),
            Self::RootsFiles { place, why } => write!(
                f,
                "{}: files that root makes there are root's on the node, not the directory's owner's (filesystem.idmap): {why}",
                place.display()
            ),
            Self::InMemory { why } => write!(
                f,
                "scratch files count as memory, for want of a disk: {why}"
            ),
            Self::NoLayer { root, why } => write!(
                f,
                "writes to the root file system are discarded: {} is {why}",
                root.display()
            ),
            Self::StrangeVolume { place, name } => write!(
                f,
                "{}: it lies among the pod's own volumes and does not count as one, since the node has it as {} too: unmount that",
                place.display(),
                name.display()
            ),
            _ => Ok(()),
        }
    }

    /// Whether it is about a wall that only root's rights make.
    pub fn lacks_roots_rights(&self) -> bool {
        matches!(
            self,
            Self::NotLimited { .. } | Self::SidecarOfPerson { .. } | Self::GroupsStay { .. }
        )
    }

    /// Warnings for a caller without root's rights.
    fn without_root(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLimited { fields, why } => write!(
                f,
                "{fields}: nothing holds these limits, since {why}: run it with sudo where they matter"
            ),
            Self::SidecarOfPerson { bounded: true } => f.write_str(
                "the sidecar is the caller's user: other processes of that user can end it",
            ),
            Self::SidecarOfPerson { bounded: false } => f.write_str(
                "the sidecar is the caller's user: other processes of that user can end it, and nothing bounds its memory and time",
            ),
            Self::GroupsStay { count } => write!(
                f,
                "the command keeps the caller's {count} supplementary groups: what they may read or write, it may too"
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_survives_a_record_and_words_stay_words() {
        for warning in [
            Warning::NotSearched {
                place: "/data".into(),
                why: "too many files".to_owned(),
            },
            Warning::InWords("in-memory".to_owned()),
            Warning::LessThanAsked {
                field: Field::NetworkAllow,
                asked: "a.test".to_owned(),
                there: "nothing".to_owned(),
                container: "first".to_owned(),
            },
        ] {
            let text = serde_json::to_string(&warning).unwrap();
            let read: Warning = serde_json::from_str(&text).unwrap();
            assert_eq!(read, warning, "{text}");
        }
        let unknown: Result<Warning, _> = serde_json::from_str(r#"{"unheard-of": {}}"#);
        assert!(unknown.is_err());
    }
}
