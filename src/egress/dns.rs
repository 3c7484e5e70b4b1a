//! The answers of the DNS stub: synthetic addresses for names that the rules allow, NXDOMAIN for all others. The stub
//! never asks another server. It does not answer REFUSED, which makes musl wait and Kubernetes' search lists fail.

use hickory_proto::op::{Edns, Header, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::rdata::{A, AAAA, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::names::{Families, SyntheticAddresses};
use crate::rules::HostName;

/// How long an answer may be cached: the address of a name never changes, but the rules may.
const TTL: u32 = 30;
/// How long a denial may be cached: short, because the name may be approved meanwhile.
const NEGATIVE_TTL: u32 = 2;
/// The largest UDP answer that every resolver accepts (RFC 1035, section 2.3.4).
const SMALL: usize = 512;
/// "Blocked": on a list of the server's operator (RFC 8914, section 4.16).
const BLOCKED: u16 = 15;

/// The answer to a query for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameAnswer {
    /// The name is allowed.
    Addresses(SyntheticAddresses),
    /// The name is denied; the text is the reason.
    Blocked(String),
}

/// The name in a query, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsQuery {
    /// The name as written, without the final dot.
    pub name: String,
    /// Whether it was blocked.
    pub blocked: bool,
}

/// Answers one message. `None` if none is due: RFC 1035 has no answer to an answer, or to garbage without an id.
pub fn respond(
    message: &[u8],
    families: Families,
    decide: impl FnOnce(&HostName) -> NameAnswer,
) -> Option<(Vec<u8>, Option<DnsQuery>)> {
    let query = match Message::from_vec(message) {
        Ok(query) => query,
        Err(_) => return Some((format_error(message)?, None)),
    };
    if query.message_type() != MessageType::Query {
        return None;
    }
    let mut answer = Message::new();
    answer.set_header(Header::response_from_request(query.header()));
    answer.set_recursion_available(true);
    answer.set_authoritative(false);
    let [question] = query.queries() else {
        answer.set_response_code(ResponseCode::FormErr);
        return Some((answer.to_vec().ok()?, None));
    };
    if query.op_code() != OpCode::Query || question.query_class() != DNSClass::IN {
        answer.set_response_code(ResponseCode::NotImp);
        return Some((answer.to_vec().ok()?, None));
    }
    answer.add_query(question.clone());
    let text = question.name().to_ascii();
    let decided = text
        .parse::<HostName>()
        .map_or_else(|e| NameAnswer::Blocked(e.to_string()), |name| decide(&name));
    let blocked = matches!(decided, NameAnswer::Blocked(_));
    let mut edns = query.extensions().as_ref().map(|_| own_edns());
    match decided {
        NameAnswer::Addresses(addresses) => {
            for data in records(question.query_type(), addresses, families) {
                answer.add_answer(Record::from_rdata(question.name().clone(), TTL, data));
            }
            if answer.answers().is_empty() {
                answer.add_name_server(soa(question.name())?);
            }
        }
        NameAnswer::Blocked(why) => {
            answer.set_response_code(ResponseCode::NXDomain);
            answer.add_name_server(soa(question.name())?);
            if let Some(edns) = &mut edns {
                edns.options_mut().insert(extended_error(&why));
            }
        }
    }
    if let Some(edns) = edns {
        answer.set_edns(edns);
    }
    let mut bytes = answer.to_vec().ok()?;
    if bytes.len() > SMALL {
        // Only the explanation is long, and the answer matters more.
        answer.set_edns(own_edns());
        bytes = answer.to_vec().ok()?;
    }
    let asked = DnsQuery {
        name: text.trim_end_matches('.').to_owned(),
        blocked,
    };
    Some((bytes, Some(asked)))
}

fn records(kind: RecordType, addresses: SyntheticAddresses, families: Families) -> Vec<RData> {
    let v4 = || RData::A(A(addresses.v4));
    let v6 = || RData::AAAA(AAAA(addresses.v6));
    match kind {
        RecordType::A => vec![v4()],
        RecordType::AAAA if families.has_v6() => vec![v6()],
        RecordType::ANY if families.has_v6() => vec![v4(), v6()],
        RecordType::ANY => vec![v4()],
        _ => Vec::new(),
    }
}

/// Resolvers cache a denial as long as its SOA says (RFC 2308).
fn soa(name: &Name) -> Option<Record> {
    let host = Name::from_ascii("agentbox.invalid.").ok()?;
    let ttl = i32::try_from(NEGATIVE_TTL).ok()?;
    let soa = SOA::new(host.clone(), host, 1, ttl, ttl, ttl, NEGATIVE_TTL);
    Some(Record::from_rdata(
        name.base_name(),
        NEGATIVE_TTL,
        RData::SOA(soa),
    ))
}

fn own_edns() -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    edns
}

fn extended_error(why: &str) -> EdnsOption {
    let mut data = BLOCKED.to_be_bytes().to_vec();
    // It must fit into a small answer with the question.
    data.extend(why.bytes().take(160));
    EdnsOption::Unknown(u16::from(EdnsCode::Unknown(15)), data)
}

/// A format error as the answer to an unreadable message, from its header.
fn format_error(message: &[u8]) -> Option<Vec<u8>> {
    let header = message.get(..12)?;
    let is_query = header[2] & 0x80 == 0;
    let mut answer = vec![header[0], header[1], 0x80 | (header[2] & 0x79), 0x81];
    answer.resize(12, 0);
    is_query.then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::Query;

    fn query(name: &str, kind: RecordType, edns: bool) -> Vec<u8> {
        question(Name::from_ascii(name).unwrap(), kind, edns)
    }

    fn question(name: Name, kind: RecordType, edns: bool) -> Vec<u8> {
        let mut message = Message::new();
        message.set_id(7);
        message.set_recursion_desired(true);
        message.add_query(Query::query(name, kind));
        if edns {
            message.set_edns(Edns::new());
        }
        message.to_vec().unwrap()
    }

    fn synthetic() -> SyntheticAddresses {
        SyntheticAddresses {
            v4: "198.18.1.0".parse().unwrap(),
            v6: "fd00:5afe::100".parse().unwrap(),
        }
    }

    fn ask(name: &str, kind: RecordType, edns: bool) -> Message {
        let decide = |name: &HostName| match name.as_str() {
            "allowed.test" => NameAnswer::Addresses(synthetic()),
            _ => NameAnswer::Blocked("no rule matches it".to_owned()),
        };
        let (bytes, _) = respond(&query(name, kind, edns), Families::Both, decide).unwrap();
        assert!(bytes.len() <= SMALL);
        Message::from_vec(&bytes).unwrap()
    }

    #[test]
    fn allowed_names_have_only_synthetic_addresses() {
        let a = ask("Allowed.test.", RecordType::A, false);
        assert_eq!(a.id(), 7);
        assert_eq!(a.response_code(), ResponseCode::NoError);
        assert_eq!(a.answers()[0].data().to_string(), "198.18.1.0");
        let aaaa = ask("allowed.test.", RecordType::AAAA, false);
        assert_eq!(aaaa.answers()[0].data().to_string(), "fd00:5afe::100");
        for kind in [
            RecordType::HTTPS,
            RecordType::TXT,
            RecordType::SRV,
            RecordType::MX,
        ] {
            let other = ask("allowed.test.", kind, true);
            assert_eq!(other.response_code(), ResponseCode::NoError);
            assert!(other.answers().is_empty());
            assert_eq!(other.name_servers().len(), 1);
        }
    }

    #[test]
    fn denied_names_do_not_exist_and_say_why() {
        let denied = ask("evil.test.", RecordType::A, true);
        assert_eq!(denied.response_code(), ResponseCode::NXDomain);
        assert!(denied.answers().is_empty());
        assert_eq!(denied.name_servers().len(), 1);
        let edns = denied.extensions().as_ref().unwrap();
        let Some(EdnsOption::Unknown(15, data)) = edns.option(EdnsCode::Unknown(15)) else {
            panic!("no extended error");
        };
        assert_eq!(data[..2], 15_u16.to_be_bytes());
        assert_eq!(&data[2..], b"no rule matches it");
        assert!(
            ask("evil.test.", RecordType::A, false)
                .extensions()
                .is_none()
        );
    }

    #[test]
    fn odd_names_never_reach_the_decision() {
        let nul = Name::from_labels([&b"a\0b"[..], b"test"]).unwrap();
        let plain = ["1.2.3.4.", "."].map(|name| Name::from_ascii(name).unwrap());
        for name in plain.into_iter().chain([nul]) {
            let bytes = question(name.clone(), RecordType::A, true);
            let refuse = |_: &HostName| -> NameAnswer { panic!("asked") };
            let (bytes, asked) = respond(&bytes, Families::Both, refuse).unwrap();
            let answer = Message::from_vec(&bytes).unwrap();
            assert_eq!(answer.response_code(), ResponseCode::NXDomain, "{name}");
            assert!(asked.unwrap().blocked);
        }
    }

    #[test]
    fn garbage_is_answered_once_or_never() {
        let never = |_: &HostName| -> NameAnswer { panic!("asked") };
        assert!(respond(b"", Families::Both, never).is_none());
        assert!(respond(&[0; 11], Families::Both, never).is_none());
        let mut answer = query("allowed.test.", RecordType::A, false);
        answer[2] |= 0x80;
        assert!(respond(&answer, Families::Both, never).is_none());
        let cut = &query("allowed.test.", RecordType::A, false)[..20];
        let (bytes, _) = respond(cut, Families::Both, never).unwrap();
        assert_eq!(
            Message::from_vec(&bytes).unwrap().response_code(),
            ResponseCode::FormErr
        );
    }
}
