//! One connection of the workload's: its requests are decided, and the allowed ones relayed to the user's agent.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use super::question::ConfirmationFailure;
use super::serve::{RelayState, RequestCost};
use crate::audit::{self, Event, EventDetail, Verdict, WallName};
use crate::egress::ssh::agent::{
    self, AgentDecision, AgentDenial, FAILURE, LIST, RequestedSignature, body_length, framed,
};
use crate::egress::ssh::signed::{LoginServer, SignaturePurpose};
use crate::policy::{Field, SshFingerprint};
use crate::sidecar::root::SOCKET;

/// For the rest of a message, and for the workload to take an answer.
const WITHIN: Duration = Duration::from_secs(30);
/// For the agent's answer: it may ask its user, or wait for a touch.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

/// A connection to the user's agent, made when the first request needs it.
#[derive(Default)]
struct AgentConnection {
    stream: Option<UnixStream>,
}

/// Serves until the workload closes, or sends what is no message.
pub(super) async fn serve(relay: &RelayState, mut client: UnixStream) {
    let mut agent = AgentConnection::default();
    while let Ok(Some(body)) = read_message(&mut client, None).await {
        relay.pace(RequestCost::Message).await;
        let answer = answer(relay, &mut agent, &body).await;
        let (answer, lost) = match answer {
            Ok(answer) => (answer, false),
            // The agent's bindings are lost with its end.
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
    match agent::decide(body, &relay.keys) {
        AgentDecision::List => {
            let listed = agent::only_listed(&agent.ask(LIST).await?, &relay.keys);
            Ok(listed.unwrap_or_else(|| FAILURE.to_vec()))
        }
        AgentDecision::Sign(signature) => sign(relay, agent, &signature, body).await,
        AgentDecision::Bind => {
            // The agent checks a signature.
            relay.pace(RequestCost::Signature).await;
            let said = agent.ask(body).await?;
            Ok(match agent::is_success(&said) {
                true => said,
                false => FAILURE.to_vec(),
            })
        }
        AgentDecision::Deny(denial) => {
            relay.log.write(of_denial(denial));
            Ok(FAILURE.to_vec())
        }
    }
}

/// A signature of the agent's. No signature leaves the relay without a line in the log: the log is asked before the
/// agent, and has the line before the workload has the signature.
async fn sign(
    relay: &RelayState,
    agent: &mut AgentConnection,
    signature: &RequestedSignature,
    body: &[u8],
) -> io::Result<Vec<u8>> {
    relay.pace(RequestCost::Signature).await;
    let mut turn = relay.turn(signature.key).await;
    let line = signed(signature);
    if !relay.log.admits(&line) {
        relay.log.write(unlogged(signature.key));
        return Ok(FAILURE.to_vec());
    }
    if let Err(why) = relay.confirm(signature).await {
        // The next question waits: nobody is asked as fast as a program can ask.
        turn.fail(signature.key, Instant::now());
        relay.log.write(unconfirmed(signature, why));
        return Ok(FAILURE.to_vec());
    }
    let answer = agent.ask(body).await;
    let is_signed = answer
        .as_ref()
        .is_ok_and(|answer| agent::is_signature(answer));
    if !is_signed {
        turn.fail(signature.key, Instant::now());
        relay.log.write(not_signed(signature));
        return answer.map(|_| FAILURE.to_vec());
    }
    turn.succeed(signature.key);
    match relay.log.record(line) {
        true => answer,
        false => {
            relay.log.write(unlogged(signature.key));
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
    let (login, namespace) = match purpose {
        Some(SignaturePurpose::Login { user, server }) => (Some((user, server)), None),
        Some(SignaturePurpose::Message(namespace)) => (None, Some(namespace.clone())),
        None => (None, None),
    };
    // Logins at unknown servers are told apart by their connections: else one would hide in the count of another.
    let (server, session) = match login {
        Some((_, LoginServer::Named(server))) => (Some(server.to_string()), None),
        Some((_, LoginServer::Unnamed(session))) => (None, Some(audit::hash(session))),
        None => (None, None),
    };
    EventDetail::Signature {
        key: key.to_string().into(),
        user: login.map(|(user, _)| user.clone()).map(Into::into),
        server: server.map(Into::into),
        session: session.map(Into::into),
        namespace: namespace.map(Into::into),
    }
}

/// A signature that is handed out.
fn signed(signature: &RequestedSignature) -> Event {
    let what = detail(signature.key, Some(&signature.purpose));
    Event {
        rule: Some(format!("{}: {}", Field::NetworkSshKeys, signature.key).into()),
        ..Event::new(WallName::Keys, Verdict::Allowed, what)
    }
}

/// One that the agent refused.
fn not_signed(signature: &RequestedSignature) -> Event {
    Event {
        verdict: Verdict::Failed,
        cause: Some("agent".into()),
        reason: Some(
            "the SSH agent did not sign: it has ended or is locked, or the key has gone or is constrained"
                .into(),
        ),
        ..signed(signature)
    }
}

/// One that the user did not confirm.
fn unconfirmed(signature: &RequestedSignature, why: ConfirmationFailure) -> Event {
    Event {
        verdict: Verdict::Denied,
        rule: None,
        cause: Some(why.cause()),
        reason: Some(why.reason().into()),
        ..signed(signature)
    }
}

/// A signature that the log has no room for.
fn unlogged(key: SshFingerprint) -> Event {
    let what = EventDetail::Asked {
        item: format!("sign with {key} without a line in the log").into(),
    };
    Event {
        cause: Some("log-full".into()),
        reason: Some(
            "the log takes no more lines of signatures: its quota is used up, or its disk is full"
                .into(),
        ),
        ..Event::new(WallName::Keys, Verdict::Denied, what)
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
                item: request.phrase().into(),
            },
            "request",
            "the workload may list its keys and sign with them, nothing else",
            None,
        ),
    };
    Event {
        cause: Some(cause.into()),
        reason: Some(reason.into()),
        hint: hint.map(Into::into),
        ..Event::new(WallName::Keys, Verdict::Denied, what)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::rc::Rc;

    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::super::log::tests::{lines, memory};
    use super::super::question::{Questions, SignatureAnswer, SignatureMessage};
    use super::*;
    use crate::audit::Context;
    use crate::egress::ssh::key::ListedKey;
    use crate::sidecar::journal::Journal;
    use crate::sys::event::event_loop;

    const KEY: &[u8] = b"the listed key";
    const SIGNED: &[u8] = &[14, 0, 0, 0, 1, b's'];

    fn string(to: &mut Vec<u8>, text: &[u8]) {
        to.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        to.extend(text);
    }

    fn request(data: &[u8]) -> Vec<u8> {
        let mut body = vec![13];
        string(&mut body, KEY);
        string(&mut body, data);
        body.extend([0; 4]);
        body
    }

    /// The request to log in over an SSH connection of this id.
    fn login(session: &[u8]) -> Vec<u8> {
        let mut data = Vec::new();
        string(&mut data, session);
        data.push(50);
        for text in [&b"git"[..], b"ssh-connection", b"publickey"] {
            string(&mut data, text);
        }
        data.push(1);
        string(&mut data, b"ssh-ed25519");
        string(&mut data, KEY);
        request(&data)
    }

    /// The answers to these requests by an agent that signs or not, and how often it was asked.
    fn answers(requests: &[Vec<u8>], journal: OwnedFd, says: &'static [u8]) -> (Vec<Vec<u8>>, u32) {
        let runtime = event_loop().unwrap();
        let asked = Rc::new(Cell::new(0));
        let count = Rc::clone(&asked);
        let all = runtime.block_on(async {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            tokio::task::spawn_local(async move {
                while let Ok(Some(_)) = read_message(&mut theirs, None).await {
                    count.set(count.get() + 1);
                    theirs.write_all(&framed(says)).await.unwrap();
                }
            });
            let keys = [ListedKey::of(KEY)].into_iter().collect();
            let relay = RelayState::new(keys, Journal::new(journal, Context::default()));
            let mut agent = AgentConnection { stream: Some(ours) };
            let mut all = Vec::new();
            for body in requests {
                all.push(answer(&relay, &mut agent, body).await.unwrap());
            }
            all
        });
        (all, asked.get())
    }

    #[test]
    fn no_signature_is_handed_out_without_a_line_in_the_log() {
        let requests = [login(b"one"), login(b"two")];
        // The control.
        let file = memory();
        let (all, asked) = answers(&requests, file.try_clone().unwrap().into(), SIGNED);
        assert_eq!((all, asked), (vec![SIGNED.to_vec(); 2], 2));
        assert_eq!(lines(file).len(), 2);
        // The disk is full: seen at the first line, and the agent is not asked again.
        let full = File::options().append(true).open("/dev/full").unwrap();
        let (all, asked) = answers(&requests, full.into(), SIGNED);
        assert_eq!((all, asked), (vec![FAILURE.to_vec(); 2], 1));
    }

    /// Two connections of the workload's: the agent never has two requests, and a refusal makes the next one wait.
    #[test]
    fn the_agent_is_asked_for_one_signature_at_a_time() {
        const SLOW: Duration = Duration::from_millis(200);
        let file = memory();
        let journal = Journal::new(file.try_clone().unwrap().into(), Context::default());
        let keys = [ListedKey::of(KEY)].into_iter().collect();
        // How many requests the agents have now and had at once, and when each came.
        let (now, most) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(0_u32)));
        let came = Rc::new(std::cell::RefCell::new(Vec::new()));
        event_loop().unwrap().block_on(async {
            let relay = RelayState::new(keys, journal);
            let connection = || {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                let (now, most, came) = (Rc::clone(&now), Rc::clone(&most), Rc::clone(&came));
                tokio::task::spawn_local(async move {
                    while let Ok(Some(_)) = read_message(&mut theirs, None).await {
                        came.borrow_mut().push(Instant::now());
                        now.set(now.get() + 1);
                        most.set(most.get().max(now.get()));
                        tokio::time::sleep(SLOW).await;
                        now.set(now.get() - 1);
                        theirs.write_all(&framed(FAILURE)).await.unwrap();
                    }
                });
                AgentConnection { stream: Some(ours) }
            };
            let (mut one, mut other) = (connection(), connection());
            let bodies = [login(b"one"), login(b"two")];
            let (first, second) = tokio::join!(
                answer(&relay, &mut one, &bodies[0]),
                answer(&relay, &mut other, &bodies[1]),
            );
            assert_eq!(
                (first.unwrap(), second.unwrap()),
                (FAILURE.to_vec(), FAILURE.to_vec())
            );
        });
        let came = came.borrow();
        assert_eq!((came.len(), most.get()), (2, 1));
        // The agent's time, and the pause of a second.
        assert!(came[1] - came[0] >= SLOW + Duration::from_secs(1));
    }

    #[test]
    fn logins_at_unknown_servers_are_lines_of_their_own() {
        let file = memory();
        let requests = [login(b"one"), login(b"two"), login(b"one")];
        answers(&requests, file.try_clone().unwrap().into(), SIGNED);
        let sessions: Vec<_> = lines(file)
            .into_iter()
            .map(|event| match event.what {
                EventDetail::Signature {
                    server: None,
                    session,
                    ..
                } => session,
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [b"one", b"two"].map(|id| Some(audit::hash(id).into()));
        assert_eq!(sessions, expected);
    }

    #[test]
    fn a_signature_that_the_agent_refuses_is_a_failed_one() {
        let file = memory();
        let (all, asked) = answers(&[login(b"one")], file.try_clone().unwrap().into(), FAILURE);
        assert_eq!((all, asked), (vec![FAILURE.to_vec()], 1));
        let verdicts: Vec<_> = lines(file).iter().map(|event| event.verdict).collect();
        assert_eq!(verdicts, [Verdict::Failed]);
    }

    /// What comes back for the question of a number.
    type Says = fn(u64) -> Option<String>;

    /// The answers to two logins that the user confirms or not, how often the agent was asked, and the log. `says` gets each
    /// question, and gives the lines that come back.
    fn confirmed(says: Says) -> (Vec<Vec<u8>>, u32, Vec<Event>) {
        let file = memory();
        let asked = Rc::new(Cell::new(0));
        let count = Rc::clone(&asked);
        let journal = Journal::new(file.try_clone().unwrap().into(), Context::default());
        let all = event_loop().unwrap().block_on(async {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            tokio::task::spawn_local(async move {
                while let Ok(Some(_)) = read_message(&mut theirs, None).await {
                    count.set(count.get() + 1);
                    theirs.write_all(&framed(SIGNED)).await.unwrap();
                }
            });
            let (relays, users) = UnixStream::pair().unwrap();
            tokio::task::spawn_local(async move {
                let mut lines = BufReader::new(users).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let SignatureMessage::Ask(question) = serde_json::from_str(&line).unwrap() {
                        let Some(said) = says(question.number) else {
                            return;
                        };
                        lines.get_mut().write_all(said.as_bytes()).await.unwrap();
                    }
                }
            });
            let keys = [ListedKey::of(KEY)].into_iter().collect();
            let relay = RelayState::new(keys, journal).asking(Questions::new(relays, 1));
            let mut agent = AgentConnection { stream: Some(ours) };
            let mut all = Vec::new();
            for body in [login(b"one"), login(b"two")] {
                all.push(answer(&relay, &mut agent, &body).await.unwrap());
            }
            all
        });
        (all, asked.get(), lines(file))
    }

    #[test]
    fn a_signature_that_the_user_confirms_needs_a_yes_to_its_own_question() {
        let reasons = |events: &[Event]| -> Vec<(Verdict, String)> {
            let reason = |event: &Event| event.reason.clone().unwrap_or_default().to_string();
            events
                .iter()
                .map(|event| (event.verdict, reason(event)))
                .collect()
        };
        // The control.
        let (all, asked, events) = confirmed(|number| {
            let answer = SignatureAnswer {
                number,
                signs: true,
            };
            Some(serde_json::to_string(&answer).unwrap() + "\n")
        });
        assert_eq!((all, asked), (vec![SIGNED.to_vec(); 2], 2));
        assert!(events.iter().all(|event| event.verdict == Verdict::Allowed));
        // No; no answer in time; the end of the line; a yes to another question, and no answer; what is no answer.
        let cases: [(Says, &str); 5] = [
            (
                |number| Some(format!("{{\"number\":{number},\"signs\":false}}\n")),
                "did not confirm",
            ),
            (|_| Some(String::new()), "within 1 s"),
            (|_| None, "no terminal"),
            (
                |number| Some(format!("{{\"number\":{},\"signs\":true}}\n", number + 1)),
                "within 1 s",
            ),
            (|_| Some("yes\n".to_owned()), "no terminal"),
        ];
        for (says, reason) in cases {
            let (all, asked, events) = confirmed(says);
            assert_eq!((all, asked), (vec![FAILURE.to_vec(); 2], 0), "{reason}");
            let found = reasons(&events);
            assert_eq!(found.len(), 2, "{found:?}");
            assert!(found[0].1.contains(reason), "{found:?}");
            assert!(found.iter().all(|(verdict, _)| *verdict == Verdict::Denied));
        }
    }
}
