//! Signatures of the user's SSH keys that wait for the user under `--ask`: the line to the relay, and the words of the
//! question. The program chooses the user's name of a login and the purpose of a message; both are shown in quotes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::egress::ssh::agent::RequestedSignature;
use crate::egress::ssh::signed::{LoginServer, SignaturePurpose};
use crate::policy::SshFingerprint;
use crate::runtime::foreground::answer::Answer;
use crate::sidecar::user_relay::question::{SignatureAnswer, SignatureMessage, SignatureQuestion};
use crate::sys::clocks;

/// The longest message of the relay's. Names have at most 256 bytes.
const LONGEST: usize = 8 << 10;
/// The most characters of a name that are shown.
const SHOWN: usize = 48;
/// A question ends here this long before it ends in the relay, so that no yes comes too late.
const EARLIER: u64 = 500;

/// The answers to a question. What names no server cannot be allowed for a whole run: it would be a login anywhere.
const ANSWERS: [Answer; 4] = [Answer::Once, Answer::Run, Answer::No, Answer::Quiet];
const SINGLE: [Answer; 3] = [Answer::Once, Answer::No, Answer::Quiet];

/// The user's end of the line.
pub(super) struct SignatureDesk {
    line: UnixStream,
    read: Vec<u8>,
    waiting: Option<SignatureQuestion>,
    /// What the user allowed for this run.
    allowed: BTreeSet<RequestedSignature>,
    /// The user's comments for keys.
    comments: BTreeMap<SshFingerprint, String>,
}

/// A signature that waits.
pub(super) struct WaitingSignature {
    number: u64,
    signature: RequestedSignature,
    /// The key, for people.
    key: String,
    /// How long it waits.
    pub left: Duration,
}

impl SignatureDesk {
    /// The line does not block.
    pub fn new(line: UnixStream, comments: BTreeMap<SshFingerprint, String>) -> Self {
        Self {
            line,
            read: Vec::new(),
            waiting: None,
            allowed: BTreeSet::new(),
            comments,
        }
    }

    /// The signature that waits for the user. What they allowed for this run is answered here.
    pub fn next(&mut self) -> Option<WaitingSignature> {
        self.read();
        let waiting = self.waiting.clone()?;
        let end = waiting.until_ms.saturating_sub(EARLIER);
        let left = end.saturating_sub(clocks::read().boot_ms);
        if left == 0 {
            self.waiting = None;
            return None;
        }
        if self.allowed.contains(&waiting.signature) {
            self.answer(SignatureAnswer {
                number: waiting.number,
                signs: true,
            });
            return None;
        }
        let key = waiting.signature.key;
        let comment = self.comments.get(&key).filter(|text| !text.is_empty());
        Some(WaitingSignature {
            number: waiting.number,
            key: match comment {
                Some(comment) => format!("{} ({key})", cut(comment)),
                None => key.to_string(),
            },
            signature: waiting.signature,
            left: Duration::from_millis(left),
        })
    }

    /// Carries out an answer, and returns a line about it. Without one the relay refuses by itself.
    pub fn decide(&mut self, one: &WaitingSignature, answer: Option<Answer>) -> String {
        let what = one.line();
        let signs = match answer {
            Some(Answer::Run) if one.answers().contains(&Answer::Run) => {
                self.allowed.insert(one.signature.clone());
                true
            }
            Some(Answer::Once) => true,
            _ => false,
        };
        if answer.is_some() {
            self.answer(SignatureAnswer {
                number: one.number,
                signs,
            });
        }
        self.waiting = None;
        match (answer, signs) {
            (Some(Answer::Run), true) => format!("{what}: allowed while this run lasts"),
            (_, true) => format!("{what}: allowed once"),
            (Some(_), false) => format!("{what}: refused"),
            (None, false) => format!("{what}: refused, no answer in time"),
        }
    }

    fn answer(&mut self, answer: SignatureAnswer) {
        self.waiting = None;
        let mut line = serde_json::to_vec(&answer).unwrap_or_default();
        line.push(b'\n');
        // If the relay has gone, nothing signs.
        let _unread = self.line.write_all(&line);
    }

    /// Reads what has come; the last message counts.
    fn read(&mut self) {
        let mut bytes = [0; 1024];
        loop {
            match self.line.read(&mut bytes) {
                Ok(0) => break,
                Ok(length) => self.read.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                self.waiting = match serde_json::from_slice(&line) {
                    Ok(SignatureMessage::Ask(question)) => Some(question),
                    Ok(SignatureMessage::Withdraw(_)) | Err(_) => None,
                };
            }
            if self.read.len() > LONGEST {
                self.read.clear();
            }
        }
    }
}

impl WaitingSignature {
    /// The question, as a clause.
    pub fn question(&self) -> String {
        let Self { key, signature, .. } = self;
        match &signature.purpose {
            SignaturePurpose::Login { user, server } => {
                let server = match server {
                    LoginServer::Named(key) => format!("the server with the host key {key}"),
                    LoginServer::Unnamed(_) => {
                        "a server that the request does not name: it may be any that accepts the key"
                            .to_owned()
                    }
                };
                let user = cut(user);
                format!(
                    "the program asks for a signature with your SSH key {key}, to log in as \"{user}\" at {server}"
                )
            }
            SignaturePurpose::Message(purpose) => {
                let purpose = cut(purpose);
                format!(
                    "the program asks for a signature with your SSH key {key}, of data for \"{purpose}\" that agentbox does not see"
                )
            }
        }
    }

    /// The line in which the user types: what they sign.
    pub fn line(&self) -> String {
        match &self.signature.purpose {
            SignaturePurpose::Login { user, server } => {
                let user = cut(user);
                match server {
                    LoginServer::Named(key) => format!("log in as \"{user}\" at {key}"),
                    LoginServer::Unnamed(_) => format!("log in as \"{user}\" anywhere"),
                }
            }
            SignaturePurpose::Message(purpose) => format!("sign for \"{}\"", cut(purpose)),
        }
    }

    /// The answers that count.
    pub fn answers(&self) -> &'static [Answer] {
        match &self.signature.purpose {
            SignaturePurpose::Login {
                server: LoginServer::Unnamed(_),
                ..
            } => &SINGLE,
            SignaturePurpose::Login { .. } | SignaturePurpose::Message(_) => &ANSWERS,
        }
    }

    /// The same, with their meaning.
    pub fn explained(&self) -> &'static str {
        match self.answers().contains(&Answer::Run) {
            true => {
                "once, run (this key for this purpose, until this run ends), no, quiet (no, and stop asking)"
            }
            false => "once, no, quiet (no, and stop asking)",
        }
    }
}

/// A name that a program, or an agent, chose: short, and in ASCII, whose characters are one column each and look like no
/// other; without the end of its quotes.
fn cut(text: &str) -> String {
    let mut plain: String = text.escape_default().collect();
    if plain.len() > SHOWN {
        plain.truncate(SHOWN);
        plain.push_str("...");
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::ssh::key::fingerprint;

    fn requested(purpose: SignaturePurpose) -> RequestedSignature {
        RequestedSignature {
            key: fingerprint(b"the key"),
            purpose,
        }
    }

    #[test]
    fn a_name_has_columns_and_quotes_of_ascii_alone() {
        assert_eq!(cut("git"), "git");
        assert_eq!(
            cut("a\u{201d} at \u{3000}x\\"),
            "a\\u{201d} at \\u{3000}x\\\\"
        );
        let long = cut(&"\u{3000}".repeat(60));
        assert!(long.len() == SHOWN + 3 && long.is_ascii(), "{long}");
    }

    fn message(namespace: &str) -> RequestedSignature {
        requested(SignaturePurpose::Message(namespace.to_owned()))
    }

    fn login(server: LoginServer) -> RequestedSignature {
        let user = "git".to_owned();
        requested(SignaturePurpose::Login { user, server })
    }

    struct Relay {
        line: UnixStream,
        desk: SignatureDesk,
    }

    impl Relay {
        fn new() -> Self {
            let (line, users) = UnixStream::pair().unwrap();
            users.set_nonblocking(true).unwrap();
            line.set_nonblocking(true).unwrap();
            let comments = [(fingerprint(b"the key"), "me@home".to_owned())].into();
            let desk = SignatureDesk::new(users, comments);
            Self { line, desk }
        }

        fn says(&mut self, message: &SignatureMessage) {
            let mut line = serde_json::to_vec(message).unwrap();
            line.push(b'\n');
            self.line.write_all(&line).unwrap();
        }

        fn asks(&mut self, number: u64, signature: &RequestedSignature) {
            let until_ms = clocks::read().boot_ms + 30_000;
            self.says(&SignatureMessage::Ask(SignatureQuestion {
                number,
                signature: signature.clone(),
                until_ms,
            }));
        }

        /// The answers so far.
        fn hears(&mut self) -> Vec<(u64, bool)> {
            let mut text = String::new();
            let _would_block = self.line.read_to_string(&mut text);
            let lines = text.lines();
            let answers = lines.map(|line| serde_json::from_str::<SignatureAnswer>(line).unwrap());
            answers.map(|one| (one.number, one.signs)).collect()
        }
    }

    #[test]
    fn each_question_has_its_own_answer_and_none_without_the_user() {
        let mut relay = Relay::new();
        assert!(relay.desk.next().is_none());
        relay.asks(1, &message("git"));
        let one = relay.desk.next().unwrap();
        assert!(
            one.question().contains("me@home (SHA256:"),
            "{}",
            one.question()
        );
        assert_eq!(relay.hears(), []);
        relay.desk.decide(&one, Some(Answer::Once));
        assert_eq!(relay.hears(), [(1, true)]);
        // The same signature is asked about again.
        relay.asks(2, &message("git"));
        let one = relay.desk.next().unwrap();
        relay.desk.decide(&one, Some(Answer::No));
        relay.asks(3, &message("git"));
        let one = relay.desk.next().unwrap();
        relay.desk.decide(&one, Some(Answer::Quiet));
        // Without an answer nothing is said.
        relay.asks(4, &message("git"));
        let one = relay.desk.next().unwrap();
        let said = relay.desk.decide(&one, None);
        assert!(said.contains("no answer"), "{said}");
        assert_eq!(relay.hears(), [(2, false), (3, false)]);
        // One that is withdrawn, or over, is no question.
        relay.asks(5, &message("git"));
        relay.says(&SignatureMessage::Withdraw(5));
        assert!(relay.desk.next().is_none());
        relay.says(&SignatureMessage::Ask(SignatureQuestion {
            number: 6,
            signature: message("git"),
            until_ms: clocks::read().boot_ms,
        }));
        assert!(relay.desk.next().is_none() && relay.hears().is_empty());
    }

    #[test]
    fn a_run_is_allowed_for_one_key_and_purpose_and_never_for_an_unnamed_server() {
        let mut relay = Relay::new();
        relay.asks(1, &message("git"));
        let one = relay.desk.next().unwrap();
        relay.desk.decide(&one, Some(Answer::Run));
        relay.asks(2, &message("git"));
        assert!(relay.desk.next().is_none());
        assert_eq!(relay.hears(), [(1, true), (2, true)]);
        let server = LoginServer::Named(fingerprint(b"host"));
        for other in [message("file"), login(server)] {
            relay.asks(3, &other);
            assert!(relay.desk.next().unwrap().answers().contains(&Answer::Run));
        }
        let unnamed = login(LoginServer::Unnamed(vec![7; 32]));
        for number in [4, 5] {
            relay.asks(number, &unnamed);
            let one = relay.desk.next().unwrap();
            assert!(one.question().contains("does not name"));
            relay.desk.decide(&one, Some(Answer::Run));
        }
        assert_eq!(relay.hears(), [(4, false), (5, false)]);
    }

    #[test]
    fn a_name_that_a_program_chose_stays_within_its_quotes() {
        let mut relay = Relay::new();
        for (name, shown) in [
            ("git", "sign for \"git\""),
            ("x\" > \u{1b}[2K", "sign for \"x\\\" > \\u{1b}[2K\""),
            ("\u{202e}a", "sign for \"\\u{202e}a\""),
        ] {
            relay.asks(1, &message(name));
            let one = relay.desk.next().unwrap();
            assert_eq!(one.line(), shown);
        }
        relay.asks(2, &message(&"long ".repeat(50)));
        let one = relay.desk.next().unwrap();
        assert!(one.line().len() < 80 && one.line().ends_with("...\""));
    }
}
