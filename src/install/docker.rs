//! PURE. Docker's daemon.json with the runtime, and without it. The rest keeps its form.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

/// The name of the runtime.
const NAME: &str = "agentbox";
const RUNTIMES: &str = "runtimes";

/// dockerd accepts strict JSON only, without comments.
const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The file as dockerd reads it, with its formatting.
struct DaemonJson {
    root: CstRootNode,
    object: CstObject,
}

impl DaemonJson {
    /// Parses its text; an empty file is an empty object. The error says what is wrong.
    fn parse(text: &str) -> Result<Self, String> {
        let text = match text.trim().is_empty() {
            true => "{}\n",
            false => text,
        };
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("is not a JSON object ({error}): correct it first"))?;
        if !value.is_object() {
            return Err("is not a JSON object: correct it first".to_owned());
        }
        let root = CstRootNode::parse(text, &STRICT)
            .map_err(|error| format!("is not a JSON object ({error}): correct it first"))?;
        let object = root
            .object_value()
            .ok_or("is not a JSON object: correct it first")?;
        let file = Self { root, object };
        for object in [Some(file.object.clone()), file.runtimes()?]
            .into_iter()
            .flatten()
        {
            for name in [RUNTIMES, NAME] {
                let all = object.properties();
                let same = all
                    .iter()
                    .filter(|p| p.decoded_name().as_deref() == Some(name));
                if same.count() > 1 {
                    return Err(format!("has {name:?} twice: remove one"));
                }
            }
        }
        Ok(file)
    }

    fn runtimes(&self) -> Result<Option<CstObject>, String> {
        match self.object.get(RUNTIMES) {
            None => Ok(None),
            Some(property) => match property.object_value() {
                Some(object) => Ok(Some(object)),
                None => Err(format!(
                    "has {RUNTIMES:?}, which is not an object: correct it first"
                )),
            },
        }
    }

    /// The runtime's entry.
    fn entry(&self) -> Result<Option<Value>, String> {
        let property = self.runtimes()?.and_then(|runtimes| runtimes.get(NAME));
        Ok(property.and_then(|property| property.to_serde_value()))
    }
}

/// The state of the runtime's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryState {
    /// There is none.
    Absent,
    /// It has this path and nothing else, as [`register`] writes it.
    Plain(String),
    /// It has more, such as arguments that require a policy, so it is the operator's.
    Foreign,
}

/// The state of the entry in a file.
pub fn entry_state(text: &str) -> Result<EntryState, String> {
    Ok(match DaemonJson::parse(text)?.entry()? {
        None => EntryState::Absent,
        Some(found) => match found.get("path").and_then(Value::as_str) {
            Some(path) if found == entry(path) => EntryState::Plain(path.to_owned()),
            _ => EntryState::Foreign,
        },
    })
}

/// Whether it is the default runtime.
pub fn is_default(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    value.get("default-runtime").and_then(Value::as_str) == Some(NAME)
}

fn entry(binary: &str) -> Value {
    serde_json::json!({ "path": binary })
}

/// The text with the runtime; `None` if it has it already.
pub fn register(text: &str, binary: &str) -> Result<Option<String>, String> {
    let file = DaemonJson::parse(text)?;
    if file.entry()? == Some(entry(binary)) {
        return Ok(None);
    }
    let written = CstInputValue::Object(vec![("path".to_owned(), binary.into())]);
    let runtimes = match file.runtimes()? {
        Some(object) => object,
        None => file.object.object_value_or_set(RUNTIMES),
    };
    match runtimes.get(NAME) {
        Some(property) => property.set_value(written),
        None => drop(runtimes.append(NAME, written)),
    }
    Ok(Some(file.root.to_string()))
}

/// The text without the runtime. Only the entry that `register` wrote is removed: a changed one is the operator's.
pub fn unregister(text: &str, binary: &str) -> Result<Option<String>, String> {
    let file = DaemonJson::parse(text)?;
    if file.entry()? != Some(entry(binary)) {
        return Ok(None);
    }
    let Some(runtimes) = file.runtimes()? else {
        return Ok(None);
    };
    if let Some(property) = runtimes.get(NAME) {
        property.remove();
    }
    if runtimes.properties().is_empty()
        && let Some(property) = file.object.get(RUNTIMES)
    {
        property.remove();
    }
    Ok(Some(file.root.to_string()))
}

/// Whether it has runtimes.
pub fn has_runtimes(text: &str) -> bool {
    DaemonJson::parse(text).is_ok_and(|file| file.object.get(RUNTIMES).is_some())
}

/// Whether the object is empty.
pub fn is_empty(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value == serde_json::json!({}))
}
