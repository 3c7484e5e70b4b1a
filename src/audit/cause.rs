//! PURE. The cause of an event: a short fixed word to count by, and an enum where code compares with it.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::plain::PlainText;

/// A cause that code compares with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KnownCause {
    /// Learn mode allowed it.
    Learnt,
    /// The warden's line about a sidecar that died.
    SidecarLost,
    /// A honeytoken.
    Honey,
    /// A denied connection to a port that the engine publishes.
    Published,
    /// The rule that allowed it has expired.
    RuleExpired,
    /// A signature that is denied because the user could not be asked (`wrap --ask`).
    NotAsked,
    /// The first connection to a port of the loopback inside where nothing listens.
    Loopback,
    /// Writes to a mount's files are recorded from now on.
    Watched,
    /// A file of a watched mount was written.
    Written,
}

impl KnownCause {
    const ALL: [Self; 9] = [
        Self::Learnt,
        Self::SidecarLost,
        Self::Honey,
        Self::Published,
        Self::RuleExpired,
        Self::NotAsked,
        Self::Loopback,
        Self::Watched,
        Self::Written,
    ];

    /// Its word in a line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Learnt => "learnt",
            Self::SidecarLost => "sidecar-lost",
            Self::Honey => "honey",
            Self::Published => "published",
            Self::RuleExpired => "rule-expired",
            Self::NotAsked => "not-asked",
            Self::Loopback => "loopback",
            Self::Watched => "watched",
            Self::Written => "written",
        }
    }
}

/// The cause of an event. A word that is read from a line is known if code compares with it, by whichever version it was written.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum EventCause {
    /// Code compares with it.
    Known(KnownCause),
    /// Another word.
    Other(OtherCause),
}

/// A word that no code compares with.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OtherCause(PlainText);

impl EventCause {
    /// Its word in a line.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(known) => known.as_str(),
            Self::Other(OtherCause(word)) => word,
        }
    }
}

impl From<KnownCause> for EventCause {
    fn from(known: KnownCause) -> Self {
        Self::Known(known)
    }
}

impl From<PlainText> for EventCause {
    fn from(word: PlainText) -> Self {
        let mut all = KnownCause::ALL.into_iter();
        match all.find(|known| word == known.as_str()) {
            Some(known) => Self::Known(known),
            None => Self::Other(OtherCause(word)),
        }
    }
}

impl From<&str> for EventCause {
    fn from(word: &str) -> Self {
        PlainText::from(word).into()
    }
}

impl From<String> for EventCause {
    fn from(word: String) -> Self {
        PlainText::from(word).into()
    }
}

/// By the words, so that the order of lines depends on no version.
impl Ord for EventCause {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for EventCause {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for EventCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for EventCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventCause {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventCause {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        PlainText::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_written_as_its_word_and_read_back() {
        let words = KnownCause::ALL.map(KnownCause::as_str);
        let expected = [
            "learnt",
            "sidecar-lost",
            "honey",
            "published",
            "rule-expired",
            "not-asked",
            "loopback",
            "watched",
            "written",
        ];
        assert_eq!(words, expected, "other programs read these words");
        for known in KnownCause::ALL {
            let cause = EventCause::from(known);
            let json = format!("\"{}\"", known.as_str());
            assert_eq!(serde_json::to_string(&cause).unwrap(), json);
            assert_eq!(serde_json::from_str::<EventCause>(&json).unwrap(), cause);
            assert_eq!(EventCause::from(known.as_str()), cause);
        }
    }

    #[test]
    fn a_cause_of_another_version_is_read_and_keeps_its_word() {
        let long = "x".repeat(2 * PlainText::LONGEST);
        for word in ["not-listed", "of-a-later-version", "", "Honey", &long] {
            let json = serde_json::to_string(word).unwrap();
            let read: EventCause = serde_json::from_str(&json).unwrap();
            assert!(matches!(read, EventCause::Other(_)), "{word}");
            assert_eq!(serde_json::to_string(&read).unwrap(), json);
        }
        let hostile: EventCause = serde_json::from_str("\"a\\u001b[2J\"").unwrap();
        assert_eq!(hostile.as_str(), PlainText::from("a\u{1b}[2J").as_str());
    }

    #[test]
    fn causes_are_ordered_by_their_words() {
        let mut all: Vec<EventCause> = KnownCause::ALL.map(EventCause::from).to_vec();
        all.extend(["agent", "port", "zone"].map(EventCause::from));
        all.sort();
        assert!(all.is_sorted_by_key(EventCause::as_str), "{all:?}");
    }
}
