//! The source of a secret's value: of the node a file, or a Secret of the container's own pod; of the user of `wrap` a
//! file, a command or a variable.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use std::collections::BTreeSet;

use super::number::Number;
use super::{HostPath, VariableName};
use crate::text::{ValueError, string_form};

/// Where to read a secret's value, from the first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A file of the node, readable by root only.
    File(HostPath),
    /// A key of a Secret that is mounted as a volume of the container's own pod.
    Volume(VolumeKey),
    /// Of the user of `wrap`.
    User(UserSource),
}

/// Where the value of a user's secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserSource {
    /// A file that only the user can read.
    File(HostPath),
    /// What a program prints.
    Command(SecretCommand),
    /// A variable of the caller.
    Variable(VariableName),
}

/// In words, for messages.
impl fmt::Display for UserSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "the file {file}"),
            Self::Command(command) => write!(f, "the command {}", command.program),
            Self::Variable(name) => write!(f, "your variable {name}"),
        }
    }
}

/// A program that prints a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretCommand {
    /// Its path: PATH is never searched.
    pub program: HostPath,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables of the caller that it gets besides HOME, USER and LOGNAME.
    pub variables: BTreeSet<VariableName>,
    /// Its time limit.
    pub seconds: CommandSeconds,
}

/// Seconds that a command may take: at most five minutes, since some ask the user in a window.
pub type CommandSeconds = Number<1, 300, true>;

/// `VOLUME/KEY`: a volume of the pod, by the name that the pod's author gives it, and a key of the Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeKey {
    volume: String,
    key: String,
}

impl VolumeKey {
    /// The volume's name.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// The key: the name of one file.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.volume, self.key)
    }
}

impl FromStr for VolumeKey {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // The syntax of Kubernetes: a DNS label, and the key of a Secret, which never begins with two dots.
        let label = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let plain = |b: u8| b.is_ascii_alphanumeric() || [b'-', b'_', b'.'].contains(&b);
        match text.split_once('/') {
            Some((volume, key))
                if (1..=63).contains(&volume.len())
                    && volume.bytes().all(label)
                    && (1..=253).contains(&key.len())
                    && key.bytes().all(plain)
                    && key != "."
                    && !key.starts_with("..") =>
            {
                Ok(Self {
                    volume: volume.to_owned(),
                    key: key.to_owned(),
                })
            }
            _ => Err(ValueError::grammar(
                text,
                "a key in a Secret volume of the pod, VOLUME/KEY, such as apikey/token",
            )),
        }
    }
}

string_form!(VolumeKey);
