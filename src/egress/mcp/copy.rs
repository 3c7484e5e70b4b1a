//! JSON, copied in one form: no field twice in an object, and no spelling of a known one that some program takes for it.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, Serialize};

/// As servers compare names of fields that do not tell capitals from small letters, or overlook white space around them.
fn folded(key: &str) -> String {
    key.trim().to_uppercase().to_lowercase()
}

/// Whether every program reads the same text in it: to one in C it ends before a NUL, and others overlook white space around it.
pub(super) fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control) && text.trim() == text
}

/// Refuses a field that some program takes for one of these.
pub(super) fn unlike<E: Error>(key: &str, known: &[&str]) -> Result<(), E> {
    let same = |known: &&&str| key != **known && folded(key) == **known;
    match known.iter().find(same) {
        None => Ok(()),
        Some(known) => Err(E::custom(format!(
            "it has the field {key:?}, which some servers take for {known:?}"
        ))),
    }
}

pub(super) fn put<E: Error>(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), E> {
    serde_json::to_writer(out, value).map_err(E::custom)
}

/// Copies an object; `each` copies the value of a key.
pub(super) fn object<'de, A: MapAccess<'de>>(
    mut map: A,
    out: &mut Vec<u8>,
    mut each: impl FnMut(&str, &mut A, &mut Vec<u8>) -> Result<(), A::Error>,
) -> Result<(), A::Error> {
    let mut seen = HashSet::new();
    out.push(b'{');
    while let Some(key) = map.next_key::<String>()? {
        if key.chars().any(char::is_control) {
            return Err(A::Error::custom(format!(
                "it has the field {key:?}, whose control character some programs do not read"
            )));
        }
        if !seen.is_empty() {
            out.push(b',');
        }
        put(out, &key)?;
        out.push(b':');
        each(&key, &mut map, out)?;
        let name = key.clone();
        if !seen.insert(key) {
            return Err(A::Error::custom(format!("it has the field {name:?} twice")));
        }
    }
    out.push(b'}');
    Ok(())
}

/// Copies any value, and reads the text of a string.
pub(super) struct ValueCopy<'a>(pub(super) &'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for ValueCopy<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueCopy<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        put(self.0, &value).map(|()| None)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        put(self.0, &value).map(|()| None)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        put(self.0, &value).map(|()| None)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        put(self.0, &value).map(|()| None)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        put(self.0, &value).map(|()| Some(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        put(self.0, &()).map(|()| None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        self.0.push(b'[');
        let mut first = true;
        loop {
            let end = self.0.len();
            if !first {
                self.0.push(b',');
            }
            if all.next_element_seed(ValueCopy(self.0))?.is_none() {
                self.0.truncate(end);
                self.0.push(b']');
                return Ok(None);
            }
            first = false;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        object(map, self.0, |_, map, out| {
            map.next_value_seed(ValueCopy(out)).map(drop)
        })?;
        Ok(None)
    }
}
