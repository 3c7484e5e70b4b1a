//! The decision in a record, which is written once where `create` saves the record six times.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::plan::DecidedPlan;

/// A decision, and its JSON since it was last written. A caller that may change it (`&mut`) removes the JSON.
#[derive(Debug, Clone)]
pub struct SavedDecision {
    decided: DecidedPlan,
    text: OnceLock<Box<RawValue>>,
}

impl SavedDecision {
    /// The decision alone.
    pub fn into_inner(self) -> DecidedPlan {
        self.decided
    }
}

impl From<DecidedPlan> for SavedDecision {
    fn from(decided: DecidedPlan) -> Self {
        Self {
            decided,
            text: OnceLock::new(),
        }
    }
}

impl Deref for SavedDecision {
    type Target = DecidedPlan;

    fn deref(&self) -> &DecidedPlan {
        &self.decided
    }
}

impl DerefMut for SavedDecision {
    fn deref_mut(&mut self) -> &mut DecidedPlan {
        self.text.take();
        &mut self.decided
    }
}

impl PartialEq for SavedDecision {
    fn eq(&self, other: &Self) -> bool {
        self.decided == other.decided
    }
}

impl Serialize for SavedDecision {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.text.get() {
            return text.serialize(to);
        }
        let text = to_raw_value(&self.decided).map_err(S::Error::custom)?;
        self.text.get_or_init(|| text).serialize(to)
    }
}

impl<'de> Deserialize<'de> for SavedDecision {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        DecidedPlan::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{sample, sample_policy};

    #[test]
    fn what_is_written_is_the_decision_as_it_is_also_after_a_change() {
        let decided = DecidedPlan {
            plan: sample(),
            resolved: sample_policy(),
            origins: Default::default(),
        };
        let plain = |decided: &DecidedPlan| serde_json::to_vec(decided).unwrap();
        let mut saved = SavedDecision::from(decided.clone());
        for _ in 0..2 {
            assert_eq!(serde_json::to_vec(&saved).unwrap(), plain(&decided));
        }
        saved.plan.ceilings.push("another".to_owned());
        assert_ne!(saved, SavedDecision::from(decided.clone()));
        let mut changed = decided;
        changed.plan.ceilings.push("another".to_owned());
        // A copy has the JSON of its own decision.
        for written in [&saved, &saved.clone()] {
            assert_eq!(serde_json::to_vec(written).unwrap(), plain(&changed));
        }
        let read: SavedDecision = serde_json::from_slice(&plain(&changed)).unwrap();
        assert_eq!(read, saved);
    }
}
