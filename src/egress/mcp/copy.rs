//! Copies JSON in canonical form: no field twice in an object, no variant of a known field that some program equates.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, Serialize};
use serde_json::value::RawValue;

use super::LONGEST;

/// The prefix of the keys by which serde_json passes values to itself.
const PRIVATE: &str = "$serde_json::private::";

/// The fields of an object, each value unparsed.
pub(super) type Members<'a> = HashMap<String, &'a RawValue>;

/// A field's name for servers that ignore case, or white space around it.
fn folded(key: &str) -> String {
    key.trim().to_uppercase().to_lowercase()
}

/// A field's name in a reason: a long one would not fit on the line to the sidecar, and the refusal would have no reason.
fn shown(key: &str) -> String {
    const LONGEST: usize = 64;
    match key.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}...", &key[..end]),
        None => format!("{key:?}"),
    }
}

/// Whether every program reads the same text. In C it would end before a NUL; others ignore white space around it.
pub(super) fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control) && text.trim() == text
}

/// Copies a body, strictly.
pub(super) fn copied(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = ValueCopy(&mut bytes).deserialize(&mut reader);
    read.and_then(|()| reader.end())
        .map_err(|error| error.to_string())?;
    match bytes.len() <= LONGEST {
        true => Ok(bytes),
        false => Err(format!(
            "it is longer than {LONGEST} bytes with its numbers written out"
        )),
    }
}

/// The messages of a copied body, and whether they are a list.
pub(super) fn messages(body: &[u8]) -> Result<(Vec<&RawValue>, bool), String> {
    let batch = body.first() == Some(&b'[');
    let read = match batch {
        true => serde_json::from_slice(body),
        false => serde_json::from_slice(body).map(|one| vec![one]),
    };
    Ok((read.map_err(|error| error.to_string())?, batch))
}

/// The fields of a copied object. Refuses a field that some program equates with a known one.
pub(super) fn members<'a>(object: &'a RawValue, known: &[&str]) -> Result<Members<'a>, String> {
    let members: Members<'a> =
        serde_json::from_str(object.get()).map_err(|error| error.to_string())?;
    for key in members.keys() {
        let same = |known: &&&str| key != **known && folded(key) == **known;
        if let Some(known) = known.iter().find(same) {
            return Err(format!(
                "it has the field {}, which some servers take for {}",
                shown(key),
                shown(known)
            ));
        }
    }
    Ok(members)
}

/// The text, if the value is one.
pub(super) fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn put<E: Error>(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), E> {
    serde_json::to_writer(out, value).map_err(E::custom)
}

/// Copies any value.
struct ValueCopy<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for ValueCopy<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueCopy<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        put(self.0, &value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        put(self.0, &value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        put(self.0, &value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        put(self.0, &value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        put(self.0, &value)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        put(self.0, &())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let begin = self.0.len();
        while all.next_element_seed(ValueCopy(self.0))?.is_some() {
            self.0.push(b',');
        }
        if self.0.len() > begin {
            self.0.pop();
        }
        self.0.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        self.0.push(b'{');
        while let Some(key) = map.next_key::<String>()? {
            if key.chars().any(char::is_control) {
                return Err(A::Error::custom(format!(
                    "it has the field {}, whose control character some programs do not read",
                    shown(&key)
                )));
            }
            if key.starts_with(PRIVATE) {
                return Err(A::Error::custom(format!(
                    "it has the field {}, whose value some programs read as JSON again",
                    shown(&key)
                )));
            }
            if seen.contains(&key) {
                let key = shown(&key);
                return Err(A::Error::custom(format!("it has the field {key} twice")));
            }
            if !seen.is_empty() {
                self.0.push(b',');
            }
            put(self.0, &key)?;
            self.0.push(b':');
            map.next_value_seed(ValueCopy(self.0))?;
            seen.insert(key);
        }
        self.0.push(b'}');
        Ok(())
    }
}
