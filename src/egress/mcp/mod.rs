//! MCP messages: JSON-RPC, read strictly and once, and written again in canonical form.
//!
//! ```text
//! copy    JSON in canonical form
//! lists   a server's lists
//! ```
//!
//! The message that is sent on is the one that was decided about. Refused are two fields of one name, also in spellings
//! that some server equates, unknown JSON-RPC fields, and messages that are no request, notification or answer.

mod copy;
mod lists;

use serde_json::Value;
use serde_json::value::RawValue;

use self::copy::{Members, copied, is_plain, members, messages, text};
use crate::egress::phrase::RefusalExplanation;
use crate::rules::request::{McpCall, is_method, name_field};
use crate::text::decodings;

/// The longest body and the longest list that are read, in bytes.
pub const LONGEST: usize = 1 << 20;
/// The most messages of a batch.
const MOST_MESSAGES: usize = 64;
/// The longest name in a call, and in all calls of a batch together, in bytes.
const LONGEST_NAME: usize = 2048;
const LONGEST_NAMES: usize = 8192;
/// The longest id, in bytes: it is kept until the answer.
const LONGEST_ID: usize = 256;
/// The JSON-RPC error of a refusal: one of the codes for servers to define.
const REFUSED: i64 = -32043;

/// The content of one body.
#[derive(Debug, Default, PartialEq)]
pub struct McpMessage {
    /// In canonical form.
    pub bytes: Vec<u8>,
    /// Its calls.
    pub calls: Vec<McpCall>,
    /// The ids of the requests that expect an answer.
    pub ids: Vec<Value>,
    /// Whether it is a list of messages.
    pub batch: bool,
    /// There is no message: it opens the event stream, or ends a session.
    pub stream: bool,
}

/// Parses a body. An error says what is wrong.
pub fn read(body: &[u8]) -> Result<McpMessage, String> {
    if body.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let bytes = copied(body)?;
    let mut message = McpMessage::default();
    let (all, batch) = messages(&bytes)?;
    match all.len() {
        0 => return Err("it is a batch without messages".to_owned()),
        1..=MOST_MESSAGES => {}
        _ => {
            return Err(format!(
                "it is a batch of more than {MOST_MESSAGES} messages"
            ));
        }
    }
    for one in all {
        message.take(one)?;
    }
    message.batch = batch;
    message.bytes = bytes;
    let names = message.calls.iter().filter_map(|call| call.name.as_ref());
    match names.map(String::len).sum::<usize>() <= LONGEST_NAMES {
        true => Ok(message),
        false => Err(format!(
            "its names have more than {LONGEST_NAMES} bytes together"
        )),
    }
}

impl McpMessage {
    /// Whether the answer has a list, or may have one.
    pub fn lists(&self) -> bool {
        self.stream || self.calls.iter().any(|call| call.method.ends_with("/list"))
    }
}

/// The answer to refused requests, made from the general explanation. `None` if no request expects an answer.
pub fn refusal(message: &McpMessage, explanation: &RefusalExplanation) -> Option<String> {
    let data = serde_json::to_value(explanation).ok()?;
    let text = explanation.sentence();
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

impl McpMessage {
    /// Adds one message of the body.
    fn take(&mut self, one: &RawValue) -> Result<(), String> {
        let mut fields = members(one, &[])?;
        if fields.remove("jsonrpc").and_then(text).as_deref() != Some("2.0") {
            return Err("its jsonrpc is not \"2.0\"".to_owned());
        }
        let id = fields.remove("id").map(id).transpose()?;
        let method = fields.remove("method").map(method).transpose()?;
        let params = fields.remove("params");
        let params = params.map(|params| members(params, &["name", "uri"]));
        let params = params.transpose()?;
        let result = fields.remove("result").is_some();
        let error = fields.remove("error").is_some();
        if let Some(other) = fields.into_keys().next() {
            return Err(format!(
                "it has the field {other:?}, which JSON-RPC does not"
            ));
        }
        let method = match (&id, method) {
            (Some(_), None) if result != error && params.is_none() => return Ok(()),
            (_, Some(method)) if !result && !error => method,
            _ => return Err("it is neither a request, a notification nor an answer".to_owned()),
        };
        if id.is_some() == method.starts_with("notifications/") {
            return Err(
                "a request has an id, and a notification has none: its method says the other"
                    .to_owned(),
            );
        }
        let name = name_field(&method).map(|field| name(field, &params.unwrap_or_default()));
        let name = name.transpose()?;
        self.ids.extend(id);
        self.calls.push(McpCall { method, name });
        Ok(())
    }
}

/// The id of a message. Never parsed as a [`Value`]: that would parse the text of an object with the private key of
/// [`RawValue`] as JSON again, at any depth.
fn id(value: &RawValue) -> Result<Value, &'static str> {
    let words = text(value).filter(|text| text.len() <= LONGEST_ID);
    let number = || {
        serde_json::from_str::<i64>(value.get())
            .ok()
            .map(Value::from)
    };
    let large = || {
        serde_json::from_str::<u64>(value.get())
            .ok()
            .map(Value::from)
    };
    let id = words.map(Value::from).or_else(number).or_else(large);
    id.ok_or("its id is neither a text of at most 256 bytes nor a whole number")
}

/// The method of a message.
fn method(value: &RawValue) -> Result<String, &'static str> {
    text(value)
        .filter(|method| is_method(method))
        .ok_or("its method is not 1 to 64 of letters, digits, '/', '_', '-', '.' and '$'")
}

/// The name in a call, from this field.
fn name(field: &str, params: &Members<'_>) -> Result<String, &'static str> {
    let fits = |name: &String| !name.is_empty() && name.len() <= LONGEST_NAME && is_plain(name);
    let name = params.get(field).and_then(|value| text(value)).filter(fits).ok_or(
        "its params have no name, or no uri, of 1 to 2048 bytes of text without control characters and outer white space",
    )?;
    match field == "uri" && has_dots(&name) {
        true => Err("its uri has a dot segment, by which a server may read another one"),
        false => Ok(name),
    }
}

/// Whether an address has a segment `.` or `..`, however often encoded: servers decode it, some of them twice, and resolve it,
/// but rules do not. An address that is encoded more often counts as one.
fn has_dots(uri: &str) -> bool {
    decodings(uri).is_none_or(|all| all.iter().any(|form| has_plain_dots(form)))
}

/// Parsers of addresses drop tabs and line ends (WHATWG URL, 4.4), and a segment may have parameters behind a semicolon.
fn has_plain_dots(uri: &[u8]) -> bool {
    let mut segments = uri.split(|byte| b"/\\".contains(byte));
    segments.any(|segment| {
        let name = segment.split(|byte| b"?#;".contains(byte)).next();
        let name = name.into_iter().flatten();
        let name: Vec<u8> = name
            .copied()
            .filter(|byte| !b"\t\r\n".contains(byte))
            .collect();
        name == b"." || name == b".."
    })
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

    /// The line to the sidecar has an end, behind which a refusal would have no reason.
    #[test]
    fn a_reason_is_short_whatever_the_body_says() {
        let key = "k".repeat(100_000);
        for text in [
            format!(r#"{{"{key}":1,"{key}":1}}"#),
            format!(r#"{{"{key}\u0007":1}}"#),
            body(&format!(r#""method":"{key}""#)),
            body(&format!(
                r#""method":"tools/call","params":{{"name":"{key}"}}"#
            )),
        ] {
            let why = calls(&text).unwrap_err();
            assert!(why.len() < 400, "{}", why.len());
        }
    }

    /// With its `raw_value`, serde_json parses the value of such a key as JSON again, at any depth.
    #[test]
    fn a_private_key_of_serde_json_is_refused() {
        for id in [
            r#"{"$serde_json::private::RawValue":"1"}"#,
            r#"{"a":[{"$serde_json::private::RawValue":"{}"}]}"#,
            r#"{"$serde_json::private::Number":"1"}"#,
        ] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
            let why = calls(&message).unwrap_err();
            assert!(why.contains("read as JSON again"), "{why}");
        }
        for id in ["{}", "[]", "1.5", "true", "99999999999999999999"] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
            assert!(calls(&message).is_err(), "{id}");
        }
        for id in ["\"a\"", "-1", "18446744073709551615"] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
            assert!(calls(&message).is_ok(), "{id}");
        }
    }

    #[test]
    fn a_message_is_written_in_canonical_form() {
        let text = r#" { "jsonrpc" : "2.0", "id": 7,
            "method": "tools\u002fcall", "params": {"name": "\u0073earch", "arguments": {"a": [1, -2.5, null, true, "\u00e9"], "A": {}}}} "#;
        let message = read(text.as_bytes()).unwrap();
        let form = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search","arguments":{"a":[1,-2.5,null,true,"é"],"A":{}}}}"#;
        assert_eq!(String::from_utf8(message.bytes).unwrap(), form);
        assert_eq!(message.calls[0].to_string(), "tools/call:search");
        assert_eq!((message.ids, message.batch), (vec![Value::from(7)], false));
        assert_eq!(read(form.as_bytes()).unwrap().bytes, form.as_bytes());
        // A fraction keeps its last digit.
        for number in ["6.934698245112694e+276", "-7.803913958627244e+173"] {
            let form = body(&format!(
                r#""id":1,"method":"ping","params":{{"a":{number}}}"#
            ));
            assert_eq!(read(form.as_bytes()).unwrap().bytes, form.as_bytes());
        }
    }

    #[test]
    fn the_calls_of_a_message() {
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
            (
                r#""id":1,"method":"resources/read","params":{"uri":"file:///a%2520b/...%25"}"#,
                &["resources/read:file:///a%2520b/...%25"],
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

    /// N47: text that two readers could read as two things.
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
            r#""id":1,"method":"resources/read","params":{"uri":"file:///docs/%252e%252e/etc/x"}"#,
            r#""id":1,"method":"resources/read","params":{"uri":"file:///docs/.%09./etc/x"}"#,
            r#""id":1,"method":"resources/read","params":{"uri":"file:///docs/..;x/etc/x"}"#,
            r#""id":1,"method":"resources/read","params":{"uri":"file:///docs/%25252e./etc/x"}"#,
            r#""id":1,"method":"resources/read","params":{"uri":"file:///docs/.%2525252e%2525252fetc/x"}"#,
            r#""id":1,"method":"resources/read","params":{"uri":"file:///a%25252525252525252541"}"#,
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
        let why = &RefusalExplanation {
            how_to_ask: Some("so".to_owned()),
            ..RefusalExplanation::new("no")
        };
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
