//! PURE. The JSON Schema of a line: docs/event.schema.json, which a test writes from the types.

/// The schema, as it is published.
pub const TEXT: &str = include_str!("../../docs/event.schema.json");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::LogLine;

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let schema = schemars::schema_for!(LogLine);
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("AGENTBOX_BLESS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/event.schema.json");
            std::fs::write(path, text).unwrap();
            return;
        }
        assert!(
            text == TEXT,
            "AGENTBOX_BLESS=1 cargo test --lib audit::schema writes it"
        );
    }
}
