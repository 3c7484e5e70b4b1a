//! PURE. The words for a network denial. Every surface prints them: the 403, the log, `audit`, `suggest`, the closing
//! lines of `wrap`, and `policy check`. The parsers of HTTP and TLS word the faults of a client's bytes themselves.

use std::fmt;

use super::http::HttpRefusal;
use super::tls::TlsRefusal;
use super::uses::{WithheldSecret, WithholdReason};
use super::{HoneyMatch, OverBudget};
use crate::policy::HoneyAction;
use crate::rules::{AddressRefusal, AskRefusal, Denial, EndDate, ExpiredRule};

/// No rule allows the request, and rules for other requests name the host.
pub const REQUEST_NOT_LISTED: &str = "no rule in network.allow matches this request";
/// The rules have changed during a connection.
pub const REVOKED: &str = "the rules changed: it is no longer allowed";
/// `network.mode` is `local`.
pub const LOCAL: &str =
    "the network is local (network.mode): no host is reachable until network.allow lists it";
/// A request to the container's own address through the proxy.
pub const OWN: &str =
    "this address is the container itself: connect without the proxy, on a port that no rule lists";
/// A datagram to another port than DNS.
pub const DATAGRAM: &str = "only TCP connections leave the container, and UDP is for DNS only";
/// No room for a body that decides.
pub const BUSY: &str = "too many long MCP messages are held at once: try again";
/// An [`AddressRefusal`] for the workload, which must not learn the addresses of the node's networks.
pub const CLOSED_ADDRESS: &str = "the name leads to no address that is open to this container; internal:HOST:PORT allows private ones, \
     node:HOST:PORT the node's (the node's log has the reason)";
/// A honeytoken for the workload, which must not learn which value was found.
pub const HONEY: &str = "the request contains a value that must not leave this container";

/// A rule of `network.deny` that covers a host or a request.
#[derive(Debug, Clone, Copy)]
pub struct DenyWords<R>(pub R);

impl<R: fmt::Display> fmt::Display for DenyWords<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network.deny lists {}", self.0)
    }
}

/// When an approval expired.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalEndWords(pub EndDate);

impl fmt::Display for ApprovalEndWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its approval expired at {}", self.0)
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed => f.write_str("no rule in network.allow matches it"),
            Self::Port(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                write!(
                    f,
                    "network.allow lists it with port {} only",
                    ports.join(", ")
                )
            }
            Self::DeniedBy(rule) => DenyWords(rule).fmt(f),
            Self::Metadata => f.write_str(
                "it is a cloud's metadata service, which no wildcard or address range allows",
            ),
            Self::OnlyRequests => f.write_str(
                "only some requests to this host are allowed: use http://HOST/PATH (agentbox adds TLS), or set network.tls=open (wrap: --set)",
            ),
            Self::Expired(expired) => expired.fmt(f),
        }
    }
}

/// It continues `the name leads to ADDRESS, `.
impl fmt::Display for AddressRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Denied(rule) => return write!(f, "and {}", DenyWords(rule)),
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address, where clouds serve metadata",
            Self::Private => {
                "a private address: allow it as internal:HOST:PORT if that is intended"
            }
            Self::Neighbour => {
                "an address in a network of the node or the engine: allow it as internal:HOST:PORT if that is intended"
            }
            Self::NotBeside => {
                "in no network that Docker or podman made for this container, nor in network.services of the node's file: use \
                 internal:HOST:PORT if that is intended"
            }
            Self::NotNode => "which is no address of the node, and node: allows no other",
            Self::Node => {
                "an address of the node or of a gateway: allow it as node:HOST:PORT if that is intended"
            }
            Self::Embedded => "an IPv6 address with an IPv4 address inside",
            Self::Special => "a multicast, reserved or unrouted address",
            Self::Cloud => {
                "where a cloud serves metadata or its host agent: only a rule with exactly this address allows it"
            }
        };
        f.write_str(text)
    }
}

impl fmt::Display for AskRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NOT_LISTED: Denial = Denial::NotListed;
        match self {
            Self::TimedOut(seconds) => write!(
                f,
                "{NOT_LISTED}, and it was not approved within {seconds} s"
            ),
            Self::Expired(seconds, end) => write!(
                f,
                "{}, and it was not approved again within {seconds} s",
                ApprovalEndWords(*end)
            ),
            Self::Refused => f.write_str("the operator denied it (agentbox deny)"),
            Self::TooMany(most) => write!(
                f,
                "{NOT_LISTED}, and {most} connections wait for approval already"
            ),
        }
    }
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connections(most) => write!(f, "network.connections allows {most} at once"),
            Self::Rate(most) => write!(
                f,
                "network.connections-per-minute allows {most} new ones in a minute"
            ),
            Self::Upload(most) => write!(f, "network.upload allows {most} bytes to be sent"),
            Self::Hosts(most) => write!(f, "network.hosts allows {most} different names"),
            Self::CoolDown(left) => write!(
                f,
                "a budget was used up, and network.cool-down denies connections for another {left} s"
            ),
        }
    }
}

impl fmt::Display for ExpiredRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rule {} expired at {}", self.rule, self.end.date())
    }
}

impl fmt::Display for WithheldSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.why {
            WithholdReason::UsedUp(uses) => write!(
                f,
                "the secret {name} is used up: {uses} requests had it, the most that the node's file allows a container"
            ),
            WithholdReason::Expired(end) => {
                write!(
                    f,
                    "the secret {name} that it would get expired at {}",
                    end.date()
                )
            }
        }
    }
}

/// For the node. The workload gets [`HONEY`].
impl fmt::Display for HoneyMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, then } = self;
        let meaning = match then {
            HoneyAction::Log => "the container goes on",
            HoneyAction::End => "the container is ended",
        };
        write!(
            f,
            "the honey value {name} was on its way out, which no program has a reason to send ({meaning})"
        )
    }
}

/// Why the bytes on an allowed connection are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentRefusal {
    /// They are no request, an ambiguous one, or one for another host.
    Http(HttpRefusal),
    /// They are no TLS greeting for the connection's host.
    Tls(TlsRefusal),
    /// The client closed the connection inside its TLS greeting.
    CutGreeting,
    /// The TLS greeting took too long.
    SlowGreeting,
    /// The request's head took too long.
    SlowRequest,
    /// A request in plain HTTP for the port of HTTPS.
    PlainOnHttps,
    /// The reader reported a honey value that does not exist.
    UnknownHoney,
    /// The reader reported a request for another destination than the connection's.
    OtherDestination {
        /// The request's host and port.
        request: String,
        /// The connection's.
        connection: String,
    },
    /// The reader, which parses the client's requests, gave this reason.
    Reader(String),
}

impl fmt::Display for ContentRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Http(refusal) => return refusal.fmt(f),
            Self::Tls(refusal) => return refusal.fmt(f),
            Self::CutGreeting => "the connection ended inside the TLS greeting",
            Self::SlowGreeting => "the TLS greeting took too long",
            Self::SlowRequest => "the request took too long",
            Self::PlainOnHttps => "plain HTTP on port 443, where a rule means TLS: use https://",
            Self::UnknownHoney => "the reader reported a honey value that does not exist",
            Self::OtherDestination {
                request,
                connection,
            } => return write!(f, "a request for {request} on a connection to {connection}"),
            Self::Reader(why) => why,
        };
        f.write_str(text)
    }
}

impl From<HttpRefusal> for ContentRefusal {
    fn from(refusal: HttpRefusal) -> Self {
        Self::Http(refusal)
    }
}

impl From<TlsRefusal> for ContentRefusal {
    fn from(refusal: TlsRefusal) -> Self {
        Self::Tls(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::tls::ClientWatch;
    use crate::rules::{EgressRule, Expiry};

    const CONSTANTS: [&str; 7] = [
        REQUEST_NOT_LISTED,
        REVOKED,
        LOCAL,
        OWN,
        DATAGRAM,
        BUSY,
        HONEY,
    ];

    /// The words of each variant: a new one does not compile until it has an example here.
    macro_rules! words_of_every {
        ($type:ty { $($variant:pat => $example:expr),+ $(,)? }) => {{
            let _every_variant_has_an_arm = |one: &$type| match one {
                $($variant => {})+
            };
            vec![$(<$type>::from($example).to_string()),+]
        }};
    }

    fn rule() -> EgressRule {
        "example.test".parse().unwrap()
    }
    fn end() -> Expiry {
        Expiry::at("2030-01-02T03:04:05Z".parse().unwrap())
    }

    fn decisions() -> Vec<String> {
        let network = rule().connection().unwrap().clone();
        let expired = ExpiredRule {
            rule: rule(),
            end: end(),
        };
        words_of_every!(Denial {
            Denial::NotListed => Denial::NotListed,
            Denial::Port(_) => Denial::Port([80, 8080].into()),
            Denial::DeniedBy(_) => Denial::DeniedBy(network),
            Denial::Metadata => Denial::Metadata,
            Denial::OnlyRequests => Denial::OnlyRequests,
            Denial::Expired(_) => Denial::Expired(Box::new(expired)),
        })
    }

    fn addresses() -> Vec<String> {
        use AddressRefusal as Refusal;
        words_of_every!(AddressRefusal {
            Refusal::Denied(_) => Refusal::Denied(Box::new(rule())),
            Refusal::Loopback => Refusal::Loopback,
            Refusal::LinkLocal => Refusal::LinkLocal,
            Refusal::Private => Refusal::Private,
            Refusal::Neighbour => Refusal::Neighbour,
            Refusal::NotBeside => Refusal::NotBeside,
            Refusal::NotNode => Refusal::NotNode,
            Refusal::Node => Refusal::Node,
            Refusal::Embedded => Refusal::Embedded,
            Refusal::Special => Refusal::Special,
            Refusal::Cloud => Refusal::Cloud,
        })
    }

    fn approvals() -> Vec<String> {
        words_of_every!(AskRefusal {
            AskRefusal::TimedOut(_) => AskRefusal::TimedOut(60),
            AskRefusal::Expired(..) => AskRefusal::Expired(60, end().date()),
            AskRefusal::Refused => AskRefusal::Refused,
            AskRefusal::TooMany(_) => AskRefusal::TooMany(32),
        })
    }

    fn budgets() -> Vec<String> {
        let secret = |why| WithheldSecret {
            name: "model".to_owned(),
            why,
        };
        let mut all = words_of_every!(OverBudget {
            OverBudget::Connections(_) => OverBudget::Connections(1),
            OverBudget::Rate(_) => OverBudget::Rate(1),
            OverBudget::Upload(_) => OverBudget::Upload(1),
            OverBudget::Hosts(_) => OverBudget::Hosts(1),
            OverBudget::CoolDown(_) => OverBudget::CoolDown(1),
        });
        let uses = [WithholdReason::UsedUp(3), WithholdReason::Expired(end())];
        for why in uses {
            match &why {
                WithholdReason::UsedUp(_) | WithholdReason::Expired(_) => {}
            }
            all.push(secret(why).to_string());
        }
        all
    }

    fn contents() -> Vec<String> {
        use ContentRefusal as Refusal;
        let http = words_of_every!(HttpRefusal {
            HttpRefusal::NotHttp => HttpRefusal::NotHttp,
            HttpRefusal::TooLong => HttpRefusal::TooLong,
            HttpRefusal::Ambiguous(_) => HttpRefusal::Ambiguous("two lengths"),
            HttpRefusal::OtherHost(_) => HttpRefusal::OtherHost("a".to_owned()),
            HttpRefusal::Unsupported(_) => HttpRefusal::Unsupported("CONNECT without a port"),
        });
        let mut watch = ClientWatch::new("example.test".parse().unwrap());
        let hello = watch.feed(b"SSH-2.0-x", &mut Vec::new()).unwrap_err();
        let all = words_of_every!(ContentRefusal {
            Refusal::Http(_) => HttpRefusal::NotHttp,
            Refusal::Tls(_) => hello,
            Refusal::CutGreeting => Refusal::CutGreeting,
            Refusal::SlowGreeting => Refusal::SlowGreeting,
            Refusal::SlowRequest => Refusal::SlowRequest,
            Refusal::PlainOnHttps => Refusal::PlainOnHttps,
            Refusal::UnknownHoney => Refusal::UnknownHoney,
            Refusal::OtherDestination { .. } => Refusal::OtherDestination {
                request: "a".to_owned(),
                connection: "b".to_owned(),
            },
            Refusal::Reader(_) => Refusal::Reader("its field x-method is unknown".to_owned()),
        });
        http.into_iter().chain(all).collect()
    }

    /// LANGUAGE.md: an error has at most 160 characters.
    #[test]
    fn each_denial_is_one_short_line() {
        let all = [decisions(), addresses(), approvals(), budgets(), contents()].concat();
        let constants = CONSTANTS.into_iter().chain([CLOSED_ADDRESS]);
        for text in all.into_iter().chain(constants.map(str::to_owned)) {
            assert!(
                text.len() <= 160 && !text.ends_with('.') && !text.contains("  "),
                "{text}"
            );
        }
    }

    /// The phrases of the page's first columns. `...` and words in capitals stand for anything.
    fn phrases() -> Vec<Vec<String>> {
        let page = include_str!("../../docs/denials.md");
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let cells = cells.filter_map(|line| line.split(" | ").next());
        let quoted = cells.flat_map(|cell| cell.split('`').step_by(2));
        let is_any =
            |word: &str| word == "..." || word.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        let parts = |phrase: &str| {
            let mut parts = vec![String::new()];
            for word in phrase.split(' ') {
                let last = parts.last_mut().unwrap();
                match is_any(word) {
                    true => parts.push(String::new()),
                    false if last.is_empty() => word.clone_into(last),
                    false => *last += &format!(" {word}"),
                }
            }
            parts.retain(|part| !part.is_empty());
            parts
        };
        quoted
            .map(parts)
            .filter(|parts| !parts.is_empty())
            .collect()
    }

    fn is_on_page(text: &str) -> bool {
        phrases().iter().any(|parts| {
            let mut rest = text;
            parts.iter().all(|part| {
                let found = rest.find(part.as_str());
                found.is_some_and(|at| {
                    rest = &rest[at + part.len()..];
                    true
                })
            })
        })
    }

    #[test]
    fn the_page_of_denials_is_found_by_the_words_of_each() {
        let addresses = addresses();
        let addresses = addresses
            .iter()
            .map(|why| format!("the name leads to 10.0.0.1, {why}"));
        let texts = [decisions(), approvals(), budgets(), contents()].concat();
        let texts = texts.into_iter().chain(addresses);
        let texts = texts.chain(["the honey value a was on its way out".to_owned()]);
        let constants = CONSTANTS.into_iter().chain([CLOSED_ADDRESS]);
        for text in texts.chain(constants.map(str::to_owned)) {
            assert!(is_on_page(&text), "docs/denials.md has no words of: {text}");
        }
        assert!(!is_on_page("a sentence that no wall says"));
    }

    #[test]
    fn a_deny_rule_has_the_same_words_for_a_host_and_its_address() {
        let rule: EgressRule = "192.0.2.0/24".parse().unwrap();
        let by_host = Denial::DeniedBy(rule.connection().unwrap().clone());
        let by_address = AddressRefusal::Denied(Box::new(rule));
        assert_eq!(by_address.to_string(), format!("and {by_host}"));
    }
}
