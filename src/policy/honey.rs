//! Honeytokens: values that look like keys and are not. Any request that carries one shows that something went wrong.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::PolicyName;
use super::VariableName;
use super::secret::SecretName;
use super::value::words;
use crate::text::text_type;

/// Bytes of a value. A shorter one could appear in other data by chance; a longer one does not fit into a host name.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// `[[honey]]` of the node's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HoneyValue {
    /// What it is called.
    pub name: SecretName,
    /// What looks like a key.
    pub value: HoneyText,
    /// The policies whose containers have it.
    pub policies: BTreeSet<PolicyName>,
    /// The variable that holds it; without one, the operator places it elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<VariableName>,
    /// What happens to a container that sends it.
    #[serde(default)]
    pub then: HoneyAction,
}

words! {
    /// What happens to a container that sends a honeytoken. The connection or name is refused and logged in any case.
    #[derive(Default)]
    HoneyAction {
        /// It continues.
        #[default]
        Log = "log",
        /// Its init process is killed.
        End = "end",
    }
}

text_type! {
    /// A honey value itself: visible ASCII.
    HoneyText,
    "a value that looks like a key: 16 to 256 characters of visible ASCII, at least 16 of them letters and digits",
    |text| {
        let is_visible = text.bytes().all(|b| b.is_ascii_graphic());
        // Host names have few other characters; without enough of these no host name would be searched.
        let plain = text.bytes().filter(u8::is_ascii_alphanumeric).count();
        LENGTHS.contains(&text.len()) && is_visible && plain >= *LENGTHS.start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_honey_value_looks_like_a_key() {
        let read = |more: &str| {
            let text = format!("name = \"bait\"\npolicies = [\"agent\"]\n{more}");
            toml::from_str::<HoneyValue>(&text)
        };
        let bait = read("value = \"AKIAIOSFODNN7EXAMPLE\"").unwrap();
        assert_eq!((bait.then, bait.env), (HoneyAction::Log, None));
        let bait = read("value = \"AKIAIOSFODNN7EXAMPLE\"\nthen = \"end\"\nenv = \"KEY\"").unwrap();
        assert_eq!(bait.then, HoneyAction::End);
        for bad in [
            "",
            "value = \"short\"",
            "value = \"AKIA IOSFODNN7EXAMPLE\"",
            "value = \"AKIA------------\"",
            "value = \"AKIAIOSFODNN7EXAMPLE\"\nthen = \"freeze\"",
            "value = \"AKIAIOSFODNN7EXAMPLE\"\nfile = \"/k\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
