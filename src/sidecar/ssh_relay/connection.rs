//! One connection of the workload's: its requests are decided, and the allowed ones relayed to the user's agent.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::serve::{RelayState, RequestCost};
use crate::audit::{Event, EventDetail, Verdict, WallName};
use crate::egress::ssh::agent::{
    self, AgentDecision, AgentDenial, FAILURE, LIST, RequestedSignature, body_length, framed,
};
use crate::egress::ssh::signed::{SessionBinding, SignaturePurpose};
use crate::policy::{Field, SshFingerprint};
use crate::sidecar::root::SOCKET;

/// For the rest of a message, and for the workload to take an answer.
const WITHIN: Duration = Duration::from_secs(30);
/// For the agent's answer: it may ask its user, or wait for a touch.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);
/// The most bindings of a connection, as in OpenSSH's agent.
const MOST_BINDINGS: usize = 16;

/// A connection to the user's agent, made when the first request needs it.
#[derive(Default)]
struct AgentConnection {
    stream: Option<UnixStream>,
    /// Bindings that the agent has accepted on it.
    bindings: Vec<SessionBinding>,
}

/// Serves until the workload closes, or sends what is no message.
pub(super) async fn serve(relay: &RelayState, mut client: UnixStream) {
    let mut agent = AgentConnection::default();
    while let Ok(Some(body)) = read_message(&mut client, None).await {
        relay.pace(RequestCost::Message).await;
        let answer = answer(relay, &mut agent, &body).await;
        let (answer, lost) = match answer {
            Ok(answer) => (answer, false),
            // Its bindings are lost with the agent's end.
            Err(_) => (FAILURE.to_vec(), true),
        };
        let sent = timeout(WITHIN, client.write_all(&framed(&answer))).await;
        if lost || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// The answer to a request; an error if the agent is not reached.
async fn answer(
    relay: &RelayState,
    agent: &mut AgentConnection,
    body: &[u8],
) -> io::Result<Vec<u8>> {
    match agent::decide(body, &relay.keys, &agent.bindings) {
        AgentDecision::List => {
            let listed = agent::only_listed(&agent.ask(LIST).await?, &relay.keys);
            Ok(listed.unwrap_or_else(|| FAILURE.to_vec()))
        }
        AgentDecision::Sign(signature) => {
            relay.pace(RequestCost::Signature).await;
            let signed = agent.ask(body).await;
            let is_signed = signed
                .as_ref()
                .is_ok_and(|answer| agent::is_signature(answer));
            relay.log(of_signature(&signature, is_signed));
            match is_signed {
                true => signed,
                false => signed.map(|_| FAILURE.to_vec()),
            }
        }
        AgentDecision::Bind(binding) if agent.bindings.len() < MOST_BINDINGS => {
            let said = agent.ask(body).await?;
            if !agent::is_success(&said) {
                return Ok(FAILURE.to_vec());
            }
            agent.bindings.push(binding);
            Ok(said)
        }
        AgentDecision::Bind(_) => Ok(FAILURE.to_vec()),
        AgentDecision::Deny(denial) => {
            relay.log(of_denial(denial));
            Ok(FAILURE.to_vec())
        }
    }
}

impl AgentConnection {
    /// Sends a request, and waits for the answer.
    async fn ask(&mut self, body: &[u8]) -> io::Result<Vec<u8>> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(UnixStream::connect(SOCKET).await?),
        };
        timeout(WITHIN, stream.write_all(&framed(body))).await??;
        let answered = read_message(stream, Some(ANSWER_WITHIN)).await?;
        answered.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// The body of the next message; `None` at the end of the stream. Only bytes that have come take memory.
async fn read_message(
    stream: &mut UnixStream,
    first_within: Option<Duration>,
) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 4];
    let first = stream.read(&mut head[..1]);
    let read = match first_within {
        Some(limit) => timeout(limit, first).await??,
        None => first.await?,
    };
    if read == 0 {
        return Ok(None);
    }
    let rest = async {
        stream.read_exact(&mut head[1..]).await?;
        let length = body_length(head).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut body = Vec::new();
        let most = u64::try_from(length).unwrap_or(u64::MAX);
        AsyncReadExt::take(&mut *stream, most)
            .read_to_end(&mut body)
            .await?;
        match body.len() == length {
            true => Ok(Some(body)),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    timeout(WITHIN, rest).await?
}

fn detail(key: SshFingerprint, purpose: Option<&SignaturePurpose>) -> EventDetail {
    let (user, server, namespace) = match purpose {
        Some(SignaturePurpose::Login { user, server }) => (Some(user.clone()), *server, None),
        Some(SignaturePurpose::Message(namespace)) => (None, None, Some(namespace.clone())),
        None => (None, None, None),
    };
    EventDetail::Signature {
        key: key.to_string(),
        user,
        server: server.map(|server| server.to_string()),
        namespace,
    }
}

fn of_signature(signature: &RequestedSignature, is_signed: bool) -> Event {
    let what = detail(signature.key, Some(&signature.purpose));
    let rule = Some(format!("{}: {}", Field::NetworkSshKeys, signature.key));
    match is_signed {
        true => Event {
            rule,
            ..Event::new(WallName::Keys, Verdict::Allowed, what)
        },
        false => Event {
            rule,
            cause: Some("agent".to_owned()),
            reason: Some(
                "the SSH agent did not sign: it has ended or is locked, or the key has gone or is constrained"
                    .to_owned(),
            ),
            ..Event::new(WallName::Keys, Verdict::Failed, what)
        },
    }
}

fn of_denial(denial: AgentDenial) -> Event {
    let (what, cause, reason, hint) = match denial {
        AgentDenial::NotListed(key) => (
            detail(key, None),
            "not-listed",
            "the key is not listed (network.ssh-keys)",
            Some(format!("--ssh-agent={key} lists it")),
        ),
        AgentDenial::UnknownData(key) => (
            detail(key, None),
            "unknown-data",
            "the data is neither a login with this key nor an SSHSIG",
            None,
        ),
        AgentDenial::Request(request) => (
            EventDetail::Asked {
                item: request.phrase().to_owned(),
            },
            "request",
            "the workload may list its keys and sign with them, nothing else",
            None,
        ),
    };
    Event {
        cause: Some(cause.to_owned()),
        reason: Some(reason.to_owned()),
        hint,
        ..Event::new(WallName::Keys, Verdict::Denied, what)
    }
}
