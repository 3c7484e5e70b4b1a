//! PURE. Reviewed data of the program, `policies/**/*.toml`, as JSON that build.rs has made of the texts.
//!
//! Every start needs some of them, and TOML takes several times as long to parse. The JSON has no addresses: static Rust values
//! would be relocated at every start of every process.

use serde::Deserialize;

/// A text of `policies/`, as JSON.
#[derive(Debug, Clone, Copy)]
pub struct BuiltinTable(pub &'static str);

/// The table of `policies/NAME.toml`.
macro_rules! table {
    ($name:literal) => {
        $crate::data::BuiltinTable(include_str!(concat!(
            env!("OUT_DIR"),
            "/policies/",
            $name,
            ".json"
        )))
    };
}
pub(crate) use table;

impl BuiltinTable {
    /// Reads the whole table.
    ///
    /// # Errors
    /// If it is no value of this type. A test reads each.
    pub fn read<T: Deserialize<'static>>(self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// Each text below `policies/`, with its table.
    fn all(directory: &str) -> BTreeMap<String, (String, &'static str)> {
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
                let table = std::fs::read_to_string(tables.join(format!("{name}.json")));
                found.insert(below.display().to_string(), (text, &*table.unwrap().leak()));
            }
        }
        found
    }

    #[test]
    fn each_table_is_what_its_text_says() {
        let all = all("");
        for (name, (text, table)) in &all {
            let read: toml::Value = BuiltinTable(table).read().unwrap();
            let parsed: toml::Value = toml::from_str(text).unwrap();
            assert_eq!(read, parsed, "{name}");
        }
        assert!(all.len() > 20, "{}", all.len());
        assert_eq!(all["never.toml"].1, table!("never").0);
    }
}
