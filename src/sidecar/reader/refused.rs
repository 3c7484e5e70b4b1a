//! The wall's own answers, in a format that their client reads.

use http_body_util::Either;
use hyper::body::Bytes;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE, USER_AGENT};
use hyper::{Response, StatusCode};

use super::conversation::ReaderResponse;
use super::outside::TextBody;
use crate::egress::mcp::{McpMessage, refusal};
use crate::egress::phrase::RefusalExplanation;

const JSON: &str = "application/json";

/// The format in which a client reads a refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RefusalFormat {
    #[default]
    Json,
    /// git shows only text (`show_http_message()` in its remote-curl.c), as lines `remote:`.
    Text,
    /// After 403 a WebSocket client tries again. 426 tells it that there is no WebSocket here (RFC 9110, section
    /// 15.5.22); a client that knows another way then uses that.
    WebSocket,
}

impl RefusalFormat {
    /// Chosen by the head of a request.
    pub fn of(headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT);
        match agent.is_some_and(|agent| agent.as_bytes().starts_with(b"git/")) {
            true => Self::Text,
            false => Self::Json,
        }
    }
}

/// The wall's answer.
pub(super) fn words(
    status: u16,
    phrase: String,
    explanation: RefusalExplanation,
    read_as: RefusalFormat,
) -> ReaderResponse {
    let status_code = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
    let mut answer = match read_as {
        RefusalFormat::Text => {
            let text = explanation.sentence() + "\n";
            answer_of(status_code, "text/plain", text.into_bytes())
        }
        RefusalFormat::Json | RefusalFormat::WebSocket => {
            answer_of(status_code, JSON, explanation.json())
        }
    };
    let fields = answer.headers_mut();
    if (read_as, status) == (RefusalFormat::WebSocket, 403) {
        fields.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
        fields.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        *answer.status_mut() = StatusCode::UPGRADE_REQUIRED;
    }
    if !phrase.is_empty()
        && let Ok(phrase) = ReasonPhrase::try_from(phrase.into_bytes())
    {
        answer.extensions_mut().insert(phrase);
    }
    answer.extensions_mut().insert(explanation);
    answer
}

fn answer_of(status: StatusCode, kind: &'static str, body: Vec<u8>) -> ReaderResponse {
    let mut answer = Response::new(Either::Left(TextBody::new(Bytes::from(body))));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// A refusal for a client of MCP: a JSON-RPC error, if a request waits for its answer.
pub(super) fn in_mcp(told: ReaderResponse, message: Option<&McpMessage>) -> ReaderResponse {
    let Some(message) = message.filter(|_| told.status() == StatusCode::FORBIDDEN) else {
        return told;
    };
    let explanation = told.extensions().get::<RefusalExplanation>();
    match explanation.and_then(|explanation| refusal(message, explanation)) {
        Some(error) => answer_of(StatusCode::OK, JSON, error.into_bytes()),
        None => told,
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn answered(agent: &'static str, websocket: bool, status: u16) -> (u16, HeaderMap, String) {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let read_as = match websocket {
            true => RefusalFormat::WebSocket,
            false => RefusalFormat::of(&headers),
        };
        let explanation = RefusalExplanation {
            how_to_ask: Some("ask".to_owned()),
            ..RefusalExplanation::new("no rule")
        };
        let answer = words(status, "agentbox: no rule".to_owned(), explanation, read_as);
        let (parts, body) = answer.into_parts();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let Ok(body) = runtime.block_on(body.collect()) else {
            panic!("it is all there");
        };
        let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        (parts.status.as_u16(), parts.headers, body)
    }

    /// Former fault: git showed only 403.
    #[test]
    fn git_gets_a_text_and_every_other_client_json() {
        let (status, headers, body) = answered("git/2.39.5", false, 403);
        assert_eq!((status, &*body), (403, "agentbox: no rule; ask\n"));
        assert_eq!(headers[CONTENT_TYPE], "text/plain");
        let (_, headers, body) = answered("curl/7.88", false, 403);
        assert_eq!(headers[CONTENT_TYPE], "application/json");
        assert!(body.starts_with('{'));
    }

    /// Former fault: Codex asked five times, and lost 9.5 s.
    #[test]
    fn a_refused_websocket_is_told_that_there_is_none() {
        let (status, headers, _) = answered("codex", true, 403);
        assert_eq!(
            (status, &headers[UPGRADE]),
            (426, &HeaderValue::from_static("HTTP/1.1"))
        );
        assert_eq!(headers[CONNECTION], "Upgrade");
        // A fault of the host may pass.
        assert_eq!(answered("codex", true, 502).0, 502);
    }
}
