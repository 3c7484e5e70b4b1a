//! The source of a secret's value: a file of the node, or a Secret of the container's own pod.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::HostPath;
use crate::text::{ValueError, string_form};

/// Where to read a secret's value, from the first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A file of the node, readable by root only.
    File(HostPath),
    /// A key of a Secret that is mounted as a volume of the container's own pod.
    Volume(VolumeKey),
}

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
