//! PURE. The messages of an SSH agent (draft-miller-ssh-agent, OpenSSH's PROTOCOL.agent), and which of them a workload
//! may send: the list of its keys, signatures with them, and bindings to servers, by which an agent holds the constraints
//! of its keys. It can add, remove and lock nothing.

use serde::{Deserialize, Serialize};

use super::key::{ListedKeys, fingerprint};
use super::signed::{LONGEST_SESSION, SignaturePurpose, purpose};
use super::wire::{WireReader, put};
use crate::policy::SshFingerprint;

/// The longest message, as in OpenSSH's agent.
pub const LONGEST_MESSAGE: usize = 256 << 10;
/// The most keys of an answer, as in OpenSSH's clients.
const MOST_IDENTITIES: u32 = 2048;

const REQUEST_IDENTITIES: u8 = 11;
const SIGN_REQUEST: u8 = 13;
const EXTENSION: u8 = 27;
const SUCCESS: u8 = 6;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_RESPONSE: u8 = 14;

/// SSH_AGENT_FAILURE, as a message's body.
pub const FAILURE: &[u8] = &[5];
/// The request for the list of keys, as a message's body.
pub const LIST: &[u8] = &[REQUEST_IDENTITIES];

/// The one extension that is passed on.
const SESSION_BIND: &str = "session-bind@openssh.com";
/// No flag, or one of the two that choose SHA-2 for an RSA key.
const SIGN_FLAGS: [u32; 3] = [0, 2, 4];

/// The length of the message that begins with these bytes; an error if no message is so long or so short.
pub fn body_length(head: [u8; 4]) -> Result<usize, NoMessage> {
    let length = usize::try_from(u32::from_be_bytes(head)).map_err(|_| NoMessage)?;
    match length {
        1..=LONGEST_MESSAGE => Ok(length),
        _ => Err(NoMessage),
    }
}

/// The bytes are no message: what follows cannot be read either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMessage;

/// A message with its length.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(4 + body.len());
    put(&mut all, body);
    all
}

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentDecision {
    /// Passed on; the answer is cut to the listed keys by [`only_listed`].
    List,
    /// Passed on, if the log takes a line.
    Sign(RequestedSignature),
    /// Passed on: it can only narrow what the agent signs.
    Bind,
    /// Answered with [`FAILURE`].
    Deny(AgentDenial),
}

/// A requested signature.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestedSignature {
    /// The key.
    pub key: SshFingerprint,
    /// What it is for.
    pub purpose: SignaturePurpose,
}

/// Why a request is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentDenial {
    /// The key is not listed.
    NotListed(SshFingerprint),
    /// The data is neither a login with this key nor an SSHSIG.
    UnknownData(SshFingerprint),
    /// A request that changes the agent, or that is not known.
    Request(DeniedRequest),
}

/// A request that is always denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeniedRequest {
    /// It adds a key, or those of a card.
    Add,
    /// It removes keys.
    Remove,
    /// It locks or unlocks the agent.
    Lock,
    /// It says that another host will speak to the agent. The agent believes its client: for a key with `ssh-add -h` the
    /// workload would choose the way.
    Forward,
    /// Another extension.
    Extension,
    /// It is not of the protocol, or malformed.
    Unknown,
}

impl DeniedRequest {
    /// The request as a phrase.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Add => "add a key to the SSH agent",
            Self::Remove => "remove keys from the SSH agent",
            Self::Lock => "lock or unlock the SSH agent",
            Self::Forward => "forward the SSH agent to another host",
            Self::Extension => "use an extension of the SSH agent",
            Self::Unknown => "send the SSH agent an unknown message",
        }
    }

    fn of(number: u8) -> Self {
        match number {
            17 | 20 | 25 | 26 => Self::Add,
            18 | 19 | 21 => Self::Remove,
            22 | 23 => Self::Lock,
            EXTENSION => Self::Extension,
            _ => Self::Unknown,
        }
    }
}

/// Decides about a request, which is untrusted bytes.
pub fn decide(body: &[u8], keys: &ListedKeys) -> AgentDecision {
    let number = body.first().copied().unwrap_or_default();
    let decided = match number {
        REQUEST_IDENTITIES if body == LIST => Some(AgentDecision::List),
        SIGN_REQUEST => sign(body, keys),
        EXTENSION => bind(body),
        _ => None,
    };
    let request = DeniedRequest::of(number);
    decided.unwrap_or(AgentDecision::Deny(AgentDenial::Request(request)))
}

fn sign(body: &[u8], keys: &ListedKeys) -> Option<AgentDecision> {
    let mut reader = WireReader::new(body.get(1..)?);
    let (key, data) = (reader.string()?, reader.string()?);
    let flags = reader.number()?;
    reader.end()?;
    if !SIGN_FLAGS.contains(&flags) {
        return None;
    }
    let Some(shown) = keys.find(key) else {
        let denial = AgentDenial::NotListed(fingerprint(key));
        return Some(AgentDecision::Deny(denial));
    };
    Some(match purpose(key, data) {
        Some(purpose) => AgentDecision::Sign(RequestedSignature {
            key: shown,
            purpose,
        }),
        None => AgentDecision::Deny(AgentDenial::UnknownData(shown)),
    })
}

/// Most bytes of a host key, and of its signature: more than those of RSA with 16,384 bits, and of certificates with many
/// names.
const LONGEST_PROOF: usize = 64 << 10;

fn bind(body: &[u8]) -> Option<AgentDecision> {
    let mut reader = WireReader::new(body.get(1..)?);
    reader.is(SESSION_BIND)?;
    let (host, session, signature) = (reader.string()?, reader.string()?, reader.string()?);
    let is_forwarding = reader.boolean()?;
    reader.end()?;
    // No host key and no signature is longer; the session's id is a hash (RFC 4253, 7.2).
    let is_sound = (1..=LONGEST_SESSION).contains(&session.len())
        && [host, signature]
            .iter()
            .all(|part| (1..=LONGEST_PROOF).contains(&part.len()));
    is_sound.then_some(match is_forwarding {
        true => AgentDecision::Deny(AgentDenial::Request(DeniedRequest::Forward)),
        false => AgentDecision::Bind,
    })
}

/// A key of the agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentIdentity<'a> {
    /// The key or certificate.
    pub key: &'a [u8],
    /// The user's words for it.
    pub comment: &'a [u8],
}

/// The keys of the agent's answer to [`LIST`]; `None` if it is no such answer.
pub fn identities(answer: &[u8]) -> Option<Vec<AgentIdentity<'_>>> {
    let mut reader = WireReader::new(answer);
    if reader.byte()? != IDENTITIES_ANSWER {
        return None;
    }
    let count = reader.number()?;
    if count > MOST_IDENTITIES {
        return None;
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let (key, comment) = (reader.string()?, reader.string()?);
        all.push(AgentIdentity { key, comment });
    }
    reader.end()?;
    Some(all)
}

/// The agent's answer without the keys that are not listed.
pub fn only_listed(answer: &[u8], keys: &ListedKeys) -> Option<Vec<u8>> {
    let all = identities(answer)?;
    let listed: Vec<_> = all
        .iter()
        .filter(|one| keys.find(one.key).is_some())
        .collect();
    let mut body = vec![IDENTITIES_ANSWER];
    body.extend(u32::try_from(listed.len()).ok()?.to_be_bytes());
    for AgentIdentity { key, comment } in listed {
        put(&mut body, key);
        put(&mut body, comment);
    }
    Some(body)
}

/// Whether the agent's answer is a signature, and nothing else.
pub fn is_signature(answer: &[u8]) -> bool {
    let mut reader = WireReader::new(answer);
    let read = |reader: &mut WireReader<'_>| {
        let is_response = reader.byte()? == SIGN_RESPONSE;
        reader.string()?;
        reader.end()?;
        Some(is_response)
    };
    read(&mut reader).unwrap_or_default()
}

/// Whether the agent's answer says yes.
pub fn is_success(answer: &[u8]) -> bool {
    answer == [SUCCESS]
}

#[cfg(test)]
mod tests {
    use super::super::key::ListedKey;
    use super::super::signed::tests::{SESSION, login_data, message_data};
    use super::*;

    const KEY: &[u8] = b"the listed key";
    const OTHER: &[u8] = b"another key";

    fn listed() -> ListedKeys {
        [ListedKey::of(KEY)].into_iter().collect()
    }

    fn message(number: u8, strings: &[&[u8]], after: &[u8]) -> Vec<u8> {
        let mut body = vec![number];
        strings.iter().for_each(|string| put(&mut body, string));
        body.extend(after);
        body
    }

    fn signing(key: &[u8], data: &[u8], flags: u32) -> Vec<u8> {
        message(SIGN_REQUEST, &[key, data], &flags.to_be_bytes())
    }

    fn binding(strings: &[&[u8]], after: &[u8]) -> Vec<u8> {
        let all: Vec<&[u8]> = std::iter::once(SESSION_BIND.as_bytes())
            .chain(strings.iter().copied())
            .collect();
        message(EXTENSION, &all, after)
    }

    fn decided(body: &[u8]) -> AgentDecision {
        decide(body, &listed())
    }

    fn denied(request: DeniedRequest) -> AgentDecision {
        AgentDecision::Deny(AgentDenial::Request(request))
    }

    #[test]
    fn a_listed_key_signs_what_is_known_and_nothing_else() {
        let git = message_data("git", b"sha512", &[0; 64]);
        let purpose = SignaturePurpose::Message("git".to_owned());
        let key = fingerprint(KEY);
        for flags in SIGN_FLAGS {
            let signature = RequestedSignature {
                key,
                purpose: purpose.clone(),
            };
            assert_eq!(
                decided(&signing(KEY, &git, flags)),
                AgentDecision::Sign(signature)
            );
        }
        let unlisted = AgentDenial::NotListed(fingerprint(OTHER));
        assert_eq!(
            decided(&signing(OTHER, &git, 0)),
            AgentDecision::Deny(unlisted)
        );
        let unknown = AgentDenial::UnknownData(key);
        assert_eq!(
            decided(&signing(KEY, b"data", 0)),
            AgentDecision::Deny(unknown)
        );
        // A login that names another key than the one that signs.
        let login = login_data("git", b"publickey", OTHER, &[]);
        assert_eq!(
            decided(&signing(KEY, &login, 0)),
            AgentDecision::Deny(unknown)
        );
        for flags in [1, 6, 8, u32::MAX] {
            let body = signing(KEY, &git, flags);
            assert_eq!(decided(&body), denied(DeniedRequest::Unknown), "{flags}");
        }
        let more = [&signing(KEY, &git, 0)[..], b"x"].concat();
        assert_eq!(decided(&more), denied(DeniedRequest::Unknown));
    }

    #[test]
    fn every_request_that_changes_the_agent_is_denied() {
        use DeniedRequest::{Add, Extension, Lock, Remove, Unknown};
        for number in 0..=u8::MAX {
            let expected = match number {
                REQUEST_IDENTITIES => AgentDecision::List,
                17 | 20 | 25 | 26 => denied(Add),
                18 | 19 | 21 => denied(Remove),
                22 | 23 => denied(Lock),
                EXTENSION => denied(Extension),
                _ => denied(Unknown),
            };
            assert_eq!(decided(&[number]), expected, "{number}");
        }
        assert_eq!(decided(&[]), denied(Unknown));
        assert_eq!(decided(&[REQUEST_IDENTITIES, 0]), denied(Unknown));
        let query = message(EXTENSION, &[b"query"], &[]);
        assert_eq!(decided(&query), denied(Extension));
        let restrict = message(
            EXTENSION,
            &[b"restrict-destination-v00@openssh.com", b"x"],
            &[],
        );
        assert_eq!(decided(&restrict), denied(Extension));
    }

    #[test]
    fn only_a_well_formed_binding_is_passed_on() {
        let parts: [&[u8]; 3] = [b"host", SESSION, b"signature"];
        assert_eq!(decided(&binding(&parts, &[0])), AgentDecision::Bind);
        // No client forwards the agent from inside.
        let forwarded = decided(&binding(&parts, &[1]));
        assert_eq!(forwarded, denied(DeniedRequest::Forward));
        let empty: [&[u8]; 3] = [b"host", b"", b"signature"];
        for body in [
            binding(&parts, &[]),
            binding(&parts, &[2]),
            binding(&parts, &[0, 0]),
            binding(&parts[..2], &[0]),
            binding(&empty, &[0]),
            binding(&[&[b'h'; LONGEST_PROOF + 1], SESSION, b"signature"], &[0]),
            binding(&[b"host", &[b's'; LONGEST_SESSION + 1], b"signature"], &[0]),
            binding(&[b"host", SESSION, &[b'p'; LONGEST_PROOF + 1]], &[0]),
        ] {
            assert_eq!(decided(&body), denied(DeniedRequest::Extension), "{body:?}");
        }
    }

    fn answer(keys: &[&[u8]]) -> Vec<u8> {
        let mut body = vec![IDENTITIES_ANSWER];
        body.extend(u32::try_from(keys.len()).unwrap().to_be_bytes());
        for key in keys {
            put(&mut body, key);
            put(&mut body, b"comment");
        }
        body
    }

    #[test]
    fn the_list_has_the_listed_keys_alone() {
        let cut = only_listed(&answer(&[OTHER, KEY]), &listed());
        assert_eq!(cut, Some(answer(&[KEY])));
        assert_eq!(only_listed(&answer(&[OTHER]), &listed()), Some(answer(&[])));
        let whole = answer(&[OTHER, KEY]);
        for end in 0..whole.len() {
            assert_eq!(only_listed(&whole[..end], &listed()), None, "{end}");
        }
        let mut more = whole.clone();
        more[4] = 3;
        assert_eq!(only_listed(&more, &listed()), None);
        more[1] = 255;
        assert_eq!(only_listed(&more, &listed()), None);
    }

    #[test]
    fn an_answer_is_one_message_of_its_kind() {
        assert!(is_signature(&message(SIGN_RESPONSE, &[b"s"], &[])));
        assert!(!is_signature(&message(SIGN_RESPONSE, &[b"s"], b"more")));
        assert!(!is_signature(&message(IDENTITIES_ANSWER, &[b"s"], &[])));
        assert!(!is_signature(&[]) && is_success(&[SUCCESS]) && !is_success(FAILURE));
        assert_eq!(body_length([0, 0, 0, 0]), Err(NoMessage));
        assert_eq!(body_length([0, 4, 0, 0]), Ok(LONGEST_MESSAGE));
        assert_eq!(body_length([0, 4, 0, 1]), Err(NoMessage));
        assert_eq!(framed(FAILURE), [0, 0, 0, 1, 5]);
    }

    /// Whatever bytes come: only the listed key signs, exactly data of a known form, and no byte makes it panic.
    #[test]
    fn no_change_of_a_request_lets_another_key_or_other_data_through() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).unwrap()
        };
        let git = message_data("git", b"sha512", &[0; 64]);
        let login = login_data("git", b"publickey", KEY, &[]);
        let seeds = [
            signing(KEY, &git, 0),
            signing(KEY, &login, 4),
            signing(OTHER, &git, 2),
            binding(&[b"host", SESSION, b"signature"], &[0]),
            LIST.to_vec(),
        ];
        let mut signed = 0;
        for round in 0..60_000 {
            let mut body = seeds[round % seeds.len()].clone();
            for _ in 0..random() % 4 {
                let at = random() % (body.len() + 1);
                match random() % 4 {
                    0 => body.truncate(at),
                    1 => body.insert(at, random().to_le_bytes()[0]),
                    2 => {
                        let more: Vec<u8> = seeds[random() % seeds.len()].clone();
                        body.extend(more);
                    }
                    _ => {
                        if let Some(byte) = body.get_mut(at) {
                            *byte = random().to_le_bytes()[0];
                        }
                    }
                }
            }
            let AgentDecision::Sign(signature) = decided(&body) else {
                continue;
            };
            signed += 1;
            let mut reader = WireReader::new(&body[1..]);
            let (key, data) = (reader.string().unwrap(), reader.string().unwrap());
            assert_eq!(key, KEY);
            assert_eq!(signature.key, fingerprint(KEY));
            assert_eq!(purpose(key, data), Some(signature.purpose));
            assert_eq!(body[0], SIGN_REQUEST);
        }
        assert!((1_000..50_000).contains(&signed), "{signed}");
    }
}
