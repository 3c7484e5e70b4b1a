//! Messages of MCP: JSON-RPC, read strictly and once, and written again in one form.
//!
//! ```text
//! copy    JSON in one form
//! lists   what a server lists
//! rules   what the rules say of calls
//! ```
//!
//! What is sent on is what was decided about. Two fields of one name, in whatever spelling of it that some server takes for the same, a
//! field that JSON-RPC does not have, and a message that is neither a request, a notification nor an answer are refused.

mod copy;
mod lists;
mod rules;

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

pub use lists::{McpLists, NamePatterns};

use self::copy::{ValueCopy, is_plain, object, put, unlike};
use crate::egress::forms::percent_decoded;
use crate::egress::phrase::in_words;
use crate::policy::request::{McpCall, is_method, name_field};

/// The longest body that is read, and the longest list, in bytes.
pub const LONGEST: usize = 1 << 20;
/// The most messages of a batch.
const MOST_MESSAGES: usize = 64;
/// The longest name of what a call is about, and all of a batch together, in bytes.
const LONGEST_NAME: usize = 2048;
const LONGEST_NAMES: usize = 8192;
/// The longest id, in bytes: it is kept until the answer.
const LONGEST_ID: usize = 256;
/// The error of JSON-RPC for what the wall refuses: one of those that a server defines.
const REFUSED: i64 = -32043;

/// The content of one body.
#[derive(Debug, Default, PartialEq)]
pub struct McpMessage {
    /// In its one form.
    pub bytes: Vec<u8>,
    /// What it asks for.
    pub calls: Vec<McpCall>,
    /// The requests that wait for an answer.
    pub ids: Vec<Value>,
    /// Whether it is a list of messages.
    pub batch: bool,
    /// It has no message: it is for the stream of events, or the end of a session.
    pub stream: bool,
}

/// Reads a body. An error says what it is not.
pub fn read(body: &[u8]) -> Result<McpMessage, String> {
    if body.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let mut message = McpMessage::default();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = Top(&mut message).deserialize(&mut reader);
    read.and_then(|()| reader.end())
        .map_err(|error| error.to_string())?;
    if message.bytes.len() > LONGEST {
        return Err(format!(
            "it is longer than {LONGEST} bytes with its numbers written out"
        ));
    }
    let names = message.calls.iter().filter_map(|call| call.name.as_ref());
    match names.map(String::len).sum::<usize>() <= LONGEST_NAMES {
        true => Ok(message),
        false => Err(format!(
            "its names have more than {LONGEST_NAMES} bytes together"
        )),
    }
}

impl McpMessage {
    /// Whether an answer to it has a list, or may have one.
    pub fn lists(&self) -> bool {
        self.stream || self.calls.iter().any(|call| call.method.ends_with("/list"))
    }
}

/// The answer to requests that the wall refuses, out of what it would say to another request; `None` where nobody waits for one.
pub fn refusal(message: &McpMessage, explanation: &str) -> Option<String> {
    let data: Value = serde_json::from_str(explanation).ok()?;
    let text = in_words(explanation)?;
    let one = |id: &Value| {
        serde_json::json!({
            "jsonrpc": "2.0", "id": id, "error": {"code": REFUSED, "message": text, "data": data}
        })
    };
    match (message.ids.as_slice(), message.batch) {
        ([], _) => None,
        ([id], false) => Some(one(id).to_string()),
        (ids, _) => Some(Value::Array(ids.iter().map(one).collect()).to_string()),
    }
}

/// One message or a list of them.
struct Top<'a>(&'a mut McpMessage);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message of JSON-RPC or a list of them")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        one(map, self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        self.0.batch = true;
        self.0.bytes.push(b'[');
        let mut count = 0;
        while all.next_element_seed(Member(self.0, count))?.is_some() {
            count += 1;
            if count > MOST_MESSAGES {
                return Err(A::Error::custom("it is a batch of more than 64 messages"));
            }
        }
        self.0.bytes.push(b']');
        match count {
            0 => Err(A::Error::custom("it is a batch without messages")),
            _ => Ok(()),
        }
    }
}

/// One of a batch, which is no batch.
struct Member<'a>(&'a mut McpMessage, usize);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        if self.1 > 0 {
            self.0.bytes.push(b',');
        }
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message of JSON-RPC")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        one(map, self.0)
    }
}

/// The fields of a message.
#[derive(Default)]
struct Fields {
    version: bool,
    id: Option<Value>,
    method: Option<String>,
    params: Option<Params>,
    result: bool,
    error: bool,
}

/// What a call may be about.
#[derive(Default)]
struct Params {
    name: Option<String>,
    uri: Option<String>,
}

fn one<'de, A: MapAccess<'de>>(map: A, message: &mut McpMessage) -> Result<(), A::Error> {
    let mut fields = Fields::default();
    object(map, &mut message.bytes, |key, map, out| {
        match key {
            "jsonrpc" => {
                let version = map.next_value_seed(ValueCopy(out))?;
                fields.version = version.as_deref() == Some("2.0");
            }
            "id" => {
                let id = map.next_value::<Value>()?;
                let is_text = id.as_str().is_some_and(|text| text.len() <= LONGEST_ID);
                if !(is_text || id.is_i64() || id.is_u64()) {
                    return Err(A::Error::custom(
                        "its id is neither a text of at most 256 bytes nor a whole number",
                    ));
                }
                put(out, &id)?;
                fields.id = Some(id);
            }
            "method" => {
                let method = map.next_value_seed(ValueCopy(out))?;
                let method = method.filter(|method| is_method(method));
                fields.method = Some(method.ok_or_else(|| {
                    A::Error::custom(
                        "its method is not 1 to 64 of letters, digits, '/', '_', '-', '.' and '$'",
                    )
                })?);
            }
            "params" => fields.params = Some(map.next_value_seed(ParamsOf(out))?),
            "result" => {
                map.next_value_seed(ValueCopy(out))?;
                fields.result = true;
            }
            "error" => {
                map.next_value_seed(ValueCopy(out))?;
                fields.error = true;
            }
            other => {
                return Err(A::Error::custom(format!(
                    "it has the field {other:?}, which JSON-RPC does not"
                )));
            }
        }
        Ok(())
    })?;
    message.take(fields).map_err(A::Error::custom)
}

impl McpMessage {
    fn take(&mut self, fields: Fields) -> Result<(), &'static str> {
        if !fields.version {
            return Err("its jsonrpc is not \"2.0\"");
        }
        let answers = fields.result != fields.error;
        let (id, method) = match (fields.id, fields.method) {
            (Some(_), None) if answers && fields.params.is_none() => return Ok(()),
            (id, Some(method)) if !fields.result && !fields.error => (id, method),
            _ => return Err("it is neither a request, a notification nor an answer"),
        };
        if id.is_some() == method.starts_with("notifications/") {
            return Err(
                "a request has an id, and a notification has none: its method says the other",
            );
        }
        let params = fields.params.unwrap_or_default();
        let name = match name_field(&method) {
            None => None,
            Some(field) => {
                let name = if field == "uri" {
                    params.uri
                } else {
                    params.name
                };
                let fits = |name: &String| {
                    !name.is_empty() && name.len() <= LONGEST_NAME && is_plain(name)
                };
                let name = name.filter(fits);
                if field == "uri" && name.as_deref().is_some_and(has_dots) {
                    return Err(
                        "its uri has a dot segment, by which a server may read another one",
                    );
                }
                Some(name.ok_or(
                    "its params have no name, or no uri, of 1 to 2048 bytes of text without control characters and outer white space",
                )?)
            }
        };
        self.ids.extend(id);
        self.calls.push(McpCall { method, name });
        Ok(())
    }
}

/// Whether an address has a segment `.` or `..`, encoded or not: servers resolve it, and rules do not.
fn has_dots(uri: &str) -> bool {
    let decoded = percent_decoded(uri);
    let mut segments = decoded.split(|byte| b"/\\".contains(byte));
    segments.any(|segment| {
        let name = segment.split(|byte| b"?#".contains(byte)).next();
        name.is_some_and(|name| name == b"." || name == b"..")
    })
}

struct ParamsOf<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for ParamsOf<'_> {
    type Value = Params;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Params, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ParamsOf<'_> {
    type Value = Params;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object as params")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Params, A::Error> {
        let mut params = Params::default();
        object(map, self.0, |key, map, out| {
            unlike(key, &["name", "uri"])?;
            let text = map.next_value_seed(ValueCopy(out))?;
            match key {
                "name" => params.name = text,
                "uri" => params.uri = text,
                _ => {}
            }
            Ok(())
        })?;
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(body: &str) -> Result<Vec<String>, String> {
        let message = read(body.as_bytes())?;
        Ok(message.calls.iter().map(ToString::to_string).collect())
    }

    fn body(rest: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0",{rest}}}"#)
    }

    #[test]
    fn a_message_is_read_and_written_in_one_form() {
        let text = r#" { "jsonrpc" : "2.0", "id": 7,
            "method": "tools\u002fcall", "params": {"name": "\u0073earch", "arguments": {"a": [1, -2.5, null, true, "\u00e9"], "A": {}}}} "#;
        let message = read(text.as_bytes()).unwrap();
        let form = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search","arguments":{"a":[1,-2.5,null,true,"é"],"A":{}}}}"#;
        assert_eq!(String::from_utf8(message.bytes).unwrap(), form);
        assert_eq!(message.calls[0].to_string(), "tools/call:search");
        assert_eq!((message.ids, message.batch), (vec![Value::from(7)], false));
        assert_eq!(read(form.as_bytes()).unwrap().bytes, form.as_bytes());
        // A fraction's last digit stays too.
        for number in ["6.934698245112694e+276", "-7.803913958627244e+173"] {
            let form = body(&format!(
                r#""id":1,"method":"ping","params":{{"a":{number}}}"#
            ));
            assert_eq!(read(form.as_bytes()).unwrap().bytes, form.as_bytes());
        }
    }

    #[test]
    fn what_a_message_asks_for() {
        for (rest, expected) in [
            (
                r#""id":1,"method":"initialize","params":{}"#,
                &["initialize"][..],
            ),
            (
                r#""method":"notifications/initialized""#,
                &["notifications/initialized"],
            ),
            (r#""id":"x","result":{"method":"tools/call"}"#, &[]),
            (r#""id":1,"error":{"code":1,"message":"x"}"#, &[]),
            (
                r#""id":1,"method":"resources/read","params":{"uri":"a:b c"}"#,
                &["resources/read:a:b c"],
            ),
        ] {
            assert_eq!(calls(&body(rest)).unwrap(), expected, "{rest}");
        }
        let one = body(r#""id":1,"method":"ping""#);
        let two = body(r#""id":2,"method":"tools/list""#);
        assert_eq!(
            calls(&format!("[{one},{two}]")).unwrap(),
            ["ping", "tools/list"]
        );
    }

    /// N47: whatever two readers could take for two things.
    #[test]
    fn what_has_two_readings_is_refused() {
        let call = r#""id":1,"method":"tools/call""#;
        for rest in [
            r#""id":1,"method":"ping","method":"tools/call","params":{"name":"a"}"#,
            r#""id":1,"method":"ping","m\u0065thod":"tools/call","params":{"name":"a"}"#,
            r#""id":1,"method":"ping","Method":"tools/call","params":{"name":"a"}"#,
            &format!(r#"{call},"params":{{"name":"a","name":"b"}}"#),
            &format!(r#"{call},"params":{{"name":"a","Name":"b"}}"#),
            &format!(r#"{call},"params":{{"name":"a","arguments":{{"x":1,"x":2}}}}"#),
            &format!(r#"{call},"params":{{"name":"a"}},"params":{{"name":"b"}}"#),
            &format!(r#"{call},"params":["a"]"#),
            &format!(r#"{call},"params":null"#),
            &format!(r#"{call},"params":{{"name":["a"]}}"#),
            &format!(r#"{call},"params":{{"name":"\ud800"}}"#),
            call,
            r#""method":"tools/call","params":{"name":"a"}"#,
            r#""id":1,"method":"notifications/initialized""#,
            r#""id":null,"method":"ping""#,
            r#""id":1.5,"method":"ping""#,
            &format!(r#""id":"{}","method":"ping""#, "x".repeat(257)),
            &format!(
                r#""id":1,"method":"ping","params":{{"a":[1e15{}]}}"#,
                ",1e15".repeat(LONGEST / 8)
            ),
            r#""id":1,"method":"ping","result":{}"#,
            r#""id":1,"method":["ping"]"#,
            r#""id":1,"method":"tools/call\u0000""#,
            r#""method":"notifications/../tools/call","params":{"name":"a"}"#,
            r#""method":"notifications//tools/call","params":{"name":"a"}"#,
            r#""method":"notifications/""#,
            &format!(r#"{call},"params":{{"name\u0000x":"b","name":"a"}}"#),
            &format!(r#"{call},"params":{{"name ":"b","name":"a"}}"#),
            &format!(r#"{call},"params":{{"name":"a","arguments":{{"x\u001f":1}}}}"#),
            &format!(r#"{call},"params":{{"name":"a\u0000"}}"#),
            &format!(r#"{call},"params":{{"name":"a\n"}}"#),
            &format!(r#"{call},"params":{{"name":" a"}}"#),
            &format!(r#"{call},"params":{{"name":"a\u00a0"}}"#),
            r#""id":1,"method":"resources/read","params":{"uri":"file:///docs/../etc/x"}"#,
            r#""id":1,"method":"resources/read","params":{"uri":"file:///docs/%2e%2E/etc/x"}"#,
            r#""id":1,"method":"resources/read","params":{"uri":"file:///docs/..?x"}"#,
            r#""id":1,"result":{},"error":{}"#,
            r#""id":1"#,
            r#""result":{}"#,
            r#""id":1,"method":"ping","extra":1"#,
        ] {
            assert!(calls(&body(rest)).is_err(), "{rest}");
        }
        let ping = body(r#""id":1,"method":"ping""#);
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for text in [
            "",
            "[]",
            "1",
            "\"ping\"",
            r#"{"id":1,"method":"ping"}"#,
            r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#,
            &format!("{ping}{ping}"),
            &format!("{ping} x"),
            &format!("[[{ping}]]"),
            &format!("[{ping},1]"),
            &format!("\u{feff}{ping}"),
            &format!("[{}]", vec![ping.as_str(); 65].join(",")),
            &body(&format!(
                r#""id":1,"method":"ping","params":{{"a":{deep}}}"#
            )),
            &body(&format!(
                r#""id":1,"method":"ping","params":{{"a":"{}"}}"#,
                "x".repeat(LONGEST)
            )),
        ] {
            assert!(calls(text).is_err(), "{:.80}", text);
        }
        assert!(read(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}").is_err());
        assert!(calls(&ping).is_ok());
    }

    #[test]
    fn a_refusal_is_an_answer_to_each_request() {
        let why = r#"{"reason":"no","how_to_ask":"so"}"#;
        let message = |requests: usize| McpMessage {
            ids: vec![Value::from(1); requests],
            ..McpMessage::default()
        };
        let batch = McpMessage {
            batch: true,
            ..message(1)
        };
        let one = refusal(&message(1), why).unwrap();
        assert!(
            one.contains(r#""message":"agentbox: no; so""#) && one.starts_with('{'),
            "{one}"
        );
        assert!(refusal(&batch, why).unwrap().starts_with('['));
        assert_eq!(refusal(&message(0), why), None);
    }
}
