//! PURE. The JSON Schema of a line: docs/event.schema.json, which a test writes from the types.

/// The schema, as it is published.
pub const TEXT: &str = include_str!("../../docs/event.schema.json");

#[cfg(test)]
mod tests {
    use schemars::Schema;
    use schemars::transform::{RecursiveTransform, Transform};
    use serde_json::Value;

    use super::*;
    use crate::audit::LogLine;

    /// Descriptions on one line, and one for the tags of enums, which have no doc comment.
    fn describe(schema: &mut Schema) {
        let Some(object) = schema.as_object_mut() else {
            return;
        };
        if let Some(Value::String(text)) = object.get_mut("description") {
            *text = text.replace('\n', " ");
        }
        if let Some(Value::Object(kind)) = object
            .get_mut("properties")
            .and_then(|fields| fields.get_mut("kind"))
        {
            kind.insert("description".to_owned(), "The kind of operation.".into());
        }
    }

    /// The fields and words without a description.
    fn undescribed(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for list in ["properties", "$defs"] {
                    for (name, field) in object
                        .get(list)
                        .and_then(Value::as_object)
                        .into_iter()
                        .flatten()
                    {
                        if field.get("description").is_none() {
                            found.push(format!("{at}/{name}"));
                        }
                    }
                }
                if object.contains_key("const") && object.get("description").is_none() {
                    found.push(at.to_owned());
                }
                for (name, inner) in object {
                    undescribed(inner, &format!("{at}/{name}"), found);
                }
            }
            Value::Array(items) => {
                for item in items {
                    undescribed(item, at, found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn the_published_schema_is_that_of_the_types_and_describes_each_field() {
        let mut schema = schemars::schema_for!(LogLine);
        RecursiveTransform(describe).transform(&mut schema);
        let mut found = Vec::new();
        undescribed(schema.as_value(), "", &mut found);
        assert_eq!(found, [""; 0]);
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
