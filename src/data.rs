//! PURE. Reviewed data of the program, `policies/**/*.toml`, as tables that build.rs has made of the texts.
//!
//! Every start needs some of them, and a TOML parser takes five times as many instructions to read one. A table is bytes without
//! addresses: static Rust values would be relocated at every start of every process.

use std::str;

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// A text of `policies/`, as its table.
#[derive(Debug, Clone, Copy)]
pub struct BuiltinTable(pub &'static [u8]);

/// The table of `policies/NAME.toml`.
macro_rules! table {
    ($name:literal) => {
        $crate::data::BuiltinTable(include_bytes!(concat!(
            env!("OUT_DIR"),
            "/policies/",
            $name,
            ".table"
        )))
    };
}
pub(crate) use table;

impl BuiltinTable {
    /// Reads the whole table.
    ///
    /// # Errors
    /// If it is no value of this type. A test reads each.
    pub fn read<T: Deserialize<'static>>(self) -> Result<T, Error> {
        let mut rest = Reader(self.0);
        let value = T::deserialize(&mut rest)?;
        match rest.0 {
            [] => Ok(value),
            _ => Err(Error::custom("a table has more than one value")),
        }
    }
}

/// What of a table has not been read yet.
struct Reader(&'static [u8]);

impl Reader {
    fn bytes(&mut self, length: usize) -> Result<&'static [u8], Error> {
        let split = self.0.split_at_checked(length);
        let (first, rest) = split.ok_or_else(|| Error::custom("a table ends too early"))?;
        self.0 = rest;
        Ok(first)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Error> {
        self.bytes(LENGTH)?.try_into().map_err(Error::custom)
    }

    fn length(&mut self) -> Result<usize, Error> {
        Ok(u16::from_le_bytes(self.array()?).into())
    }

    fn text(&mut self) -> Result<&'static str, Error> {
        let length = self.length()?;
        str::from_utf8(self.bytes(length)?).map_err(Error::custom)
    }
}

impl Deserializer<'static> for &mut Reader {
    type Error = Error;

    fn deserialize_any<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.array()? {
            [b's'] => visitor.visit_borrowed_str(self.text()?),
            [b'i'] => visitor.visit_i64(i64::from_le_bytes(self.array()?)),
            [b'b'] => visitor.visit_bool(self.array()? == [1]),
            [b'a'] => {
                let left = self.length()?;
                visitor.visit_seq(Items { reader: self, left })
            }
            [b't'] => {
                let left = self.length()?;
                visitor.visit_map(Items { reader: self, left })
            }
            [kind] => Err(Error::custom(format_args!("a table has no kind {kind}"))),
        }
    }

    fn deserialize_option<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'static>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'static>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.array()? {
            [b's'] => visitor.visit_enum(self.text()?.into_deserializer()),
            _ => Err(Error::custom("a table names a variant by its word")),
        }
    }

    forward_to_deserialize_any! {
        <V: Visitor<'static>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct
        map struct identifier ignored_any
    }
}

/// The rest of an array or of a table's entries.
struct Items<'a> {
    reader: &'a mut Reader,
    left: usize,
}

impl Items<'_> {
    /// Whether there is another one, which is read next.
    fn next(&mut self) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }
}

impl SeqAccess<'static> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        match self.next() {
            true => seed.deserialize(&mut *self.reader).map(Some),
            false => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl MapAccess<'static> for Items<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'static>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if !self.next() {
            return Ok(None);
        }
        let key: StrDeserializer<'static, Error> = self.reader.text()?.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'static>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.reader)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// Each text below `policies/`, with its table.
    fn all(directory: &str) -> BTreeMap<String, (String, &'static [u8])> {
        let texts = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
        let tables = Path::new(env!("OUT_DIR")).join("policies").join(directory);
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(texts.join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let below = Path::new(directory).join(&name);
            if texts.join(&below).is_dir() {
                found.extend(all(below.to_str().unwrap()));
            } else if let Some(name) = name.strip_suffix(".toml") {
                let text = std::fs::read_to_string(texts.join(&below)).unwrap();
                let bytes = std::fs::read(tables.join(format!("{name}.table"))).unwrap();
                found.insert(below.display().to_string(), (text, &*bytes.leak()));
            }
        }
        found
    }

    #[test]
    fn each_table_is_what_its_text_says() {
        let all = all("");
        for (name, (text, bytes)) in &all {
            let read: toml::Value = BuiltinTable(bytes).read().unwrap();
            let parsed: toml::Value = toml::from_str(text).unwrap();
            assert_eq!(read, parsed, "{name}");
        }
        assert!(all.len() > 20, "{}", all.len());
        assert_eq!(all["never.toml"].1, table!("never").0);
    }

    #[test]
    fn a_table_that_ends_early_or_goes_on_is_an_error() {
        let whole = table!("strict").0;
        let read = |bytes: &[u8]| {
            let bytes: &'static [u8] = bytes.to_vec().leak();
            BuiltinTable(bytes).read::<toml::Value>()
        };
        read(whole).unwrap();
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{end}");
        }
        assert!(read(&[whole, &[0]].concat()).is_err());
        assert!(read(b"x").is_err() && read(b"s\x01\0\xff").is_err());
    }

    #[test]
    fn a_value_is_read_as_its_type_wants_it() {
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Word {
            First,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Name(String);
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Row {
            word: Word,
            name: Option<Name>,
            missing: Option<bool>,
            numbers: Vec<u16>,
        }
        let table = b"t\x03\0\x04\0words\x05\0first\x04\0names\x01\0x\x07\0numbersa\x01\0i\x07\0\0\0\0\0\0\0";
        let row = Row {
            word: Word::First,
            name: Some(Name("x".to_owned())),
            missing: None,
            numbers: vec![7],
        };
        assert_eq!(BuiltinTable(table).read::<Row>(), Ok(row));
        let unknown = b"t\x01\0\x04\0wordi\x07\0\0\0\0\0\0\0";
        assert!(BuiltinTable(unknown).read::<Row>().is_err());
        assert!(
            BuiltinTable(b"t\x01\0\x05\0otherb\x01")
                .read::<Row>()
                .is_err()
        );
    }
}
