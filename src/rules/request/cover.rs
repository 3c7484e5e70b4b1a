//! Whether one request rule is within others: an exact answer, with a request that is not.
//!
//! The search walks all rules at once, symbol by symbol, in both readings of the path. At a wildcard of the requested
//! rule, three symbols represent all: a slash, an encoded slash, and one that no rule names. If a limit passes any
//! other symbol, it passes it as a literal or by a wildcard, and a wildcard also passes the unnamed symbol. So the
//! unnamed symbol finds every way out of the limits that any symbol finds.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::RequestRule;
use super::glob::{PathGlob, Piece, Positions};
use super::mcp::McpWords;
use super::method::{Method, Methods};
use super::path::{ENCODED_SLASH, SLASH, Symbol};
use crate::rules::connection::RuleTarget;

/// The most states of a search. Typical rules need some hundreds; a comparison that needs more is answered with no.
const MOST_STATES: usize = 4_000;

/// A request that a rule allows and none of these limits does, as a rule; `None` if all requests are within the limits.
/// A limit without a port is for its scheme's port, like a rule.
pub fn exceeds(rule: &RequestRule, limits: &[RequestRule]) -> Option<String> {
    let near: Vec<&RequestRule> = limits
        .iter()
        .filter(|limit| {
            limit.scheme == rule.scheme
                && limit.allowed_port() == rule.allowed_port()
                && covers_target(&limit.target, &rule.target)
        })
        .collect();
    let address = RequestRule {
        methods: Methods::Any,
        path: PathGlob::parse("/").ok()?,
        ..rule.clone()
    };
    let address = address.to_string();
    let address = address.strip_prefix("* ")?.strip_suffix('/')?;
    for method in methods(rule, &near) {
        let globs: Vec<&PathGlob> = near
            .iter()
            .filter(|limit| match (&method, &rule.methods) {
                (Some(method), Methods::Mcp(_)) => limit.methods.allow(method),
                // A rule that allows only calls allows no requests.
                (Some(method), _) => limit.mcp().is_none() && limit.methods.allow(method),
                (None, _) => limit.methods == Methods::Any,
            })
            .map(|limit| &limit.path)
            .collect();
        if let Some((path, ())) = outside(&rule.path, &globs, none) {
            let method = method.map_or_else(|| "*".to_owned(), |method| method.to_string());
            return Some(format!("{method} {address}{path}"));
        }
    }
    let words = rule.mcp().into_iter().flat_map(McpWords::iter);
    words
        .filter_map(|word| call_outside(word, rule, &near))
        .map(|(path, call)| format!("mcp:{address}{path} {call}"))
        .next()
}

/// A path and a call there that a word allows and no limit does: neither a limit for calls nor one for all requests.
fn call_outside(
    word: &super::mcp::McpWord,
    rule: &RequestRule,
    near: &[&RequestRule],
) -> Option<(String, String)> {
    let post: Method = "POST".parse().ok()?;
    let near: Vec<&&RequestRule> = near
        .iter()
        .filter(|limit| limit.mcp().is_some() || limit.methods.allow(&post))
        .collect();
    let globs: Vec<&PathGlob> = near.iter().map(|limit| &limit.path).collect();
    outside(&rule.path, &globs, |ends| {
        let here = || near.iter().zip(ends).filter(|(_, end)| **end);
        match here().any(|(limit, _)| limit.mcp().is_none()) {
            true => None,
            false => word.outside(here().filter_map(|(limit, _)| limit.mcp())),
        }
    })
}

/// For requests without calls: they are beyond the limits if no limit has their path.
fn none(ends: &[bool]) -> Option<()> {
    (!ends.iter().any(|end| *end)).then_some(())
}

/// The methods to compare: each that the rule names, or each that a limit names and, as `None`, all others.
fn methods(rule: &RequestRule, limits: &[&RequestRule]) -> Vec<Option<Method>> {
    let named = |methods: &Methods| match methods {
        Methods::Any | Methods::Mcp(_) => BTreeSet::new(),
        Methods::These(methods) => methods.clone(),
    };
    match &rule.methods {
        // The methods of the stream and of a session's end. Calls are compared separately.
        Methods::Mcp(_) => ["GET", "DELETE"]
            .iter()
            .map(|method| method.parse().ok())
            .collect(),
        Methods::These(methods) => methods.iter().cloned().map(Some).collect(),
        Methods::Any => {
            let limited: BTreeSet<Method> = limits
                .iter()
                .flat_map(|limit| named(&limit.methods))
                .filter(|method| rule.methods.allow(method))
                .collect();
            std::iter::once(None)
                .chain(limited.into_iter().map(Some))
                .collect()
        }
    }
}

fn covers_target(limit: &RuleTarget, asked: &RuleTarget) -> bool {
    match (limit, asked) {
        (RuleTarget::Any, RuleTarget::Name(_) | RuleTarget::Below(_) | RuleTarget::Any) => true,
        (RuleTarget::Below(domain), RuleTarget::Name(name)) => {
            name.parent() == Some(domain.as_str())
        }
        (same, other) => same == other,
    }
}

/// The positions of a path in a pattern, for both readings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PathPositions {
    written: Positions,
    decoded: Positions,
}

impl PathPositions {
    fn first(glob: &PathGlob) -> Self {
        Self {
            written: Positions::first(glob.written()),
            decoded: Positions::first(glob.decoded()),
        }
    }

    fn after(&self, glob: &PathGlob, symbol: Symbol) -> Self {
        let decoded = symbol.decoded();
        Self {
            written: self.written.after(glob.written(), symbol, Symbol::eq),
            decoded: self.decoded.after(glob.decoded(), decoded, Symbol::eq),
        }
    }

    fn is_end(&self) -> bool {
        self.written.is_end() && self.decoded.is_end()
    }

    fn is_dead(&self) -> bool {
        self.written.is_dead() || self.decoded.is_dead()
    }
}

/// The decoded segment at the end of a path so far. No path ends with some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Segment {
    Before,
    Empty,
    Dot,
    Dots,
    Name,
}

impl Segment {
    /// After one more symbol; `None` if no path continues so.
    fn after(self, symbol: Symbol) -> Option<Self> {
        let (symbol, dot) = (symbol.decoded(), Symbol::plain(b'.'));
        match self {
            Self::Before => (symbol == SLASH).then_some(Self::Empty),
            Self::Name if symbol == SLASH => Some(Self::Empty),
            Self::Empty | Self::Dot | Self::Dots if symbol == SLASH => None,
            Self::Empty if symbol == dot => Some(Self::Dot),
            Self::Dot if symbol == dot => Some(Self::Dots),
            Self::Empty | Self::Dot | Self::Dots | Self::Name => Some(Self::Name),
        }
    }

    fn is_end(self) -> bool {
        matches!(self, Self::Empty | Self::Name)
    }
}

/// A path that the requested pattern matches and that `beyond` accepts, given which other patterns match it.
fn outside<T>(
    asked: &PathGlob,
    others: &[&PathGlob],
    beyond: impl Fn(&[bool]) -> Option<T>,
) -> Option<(String, T)> {
    let globs: Vec<&PathGlob> = std::iter::once(asked)
        .chain(others.iter().copied())
        .collect();
    let alphabet = alphabet(&globs);
    let begin: Vec<PathPositions> = globs
        .iter()
        .map(|glob| PathPositions::first(glob))
        .collect();
    let begin = (begin, Segment::Before);
    let mut seen = HashSet::from([begin.clone()]);
    let mut ways = VecDeque::from([(begin, String::new())]);
    while let Some(((stands, segment), path)) = ways.pop_front() {
        let ends: Vec<bool> = stands.iter().map(PathPositions::is_end).collect();
        if let (true, Some((true, others))) = (segment.is_end(), ends.split_first())
            && let Some(found) = beyond(others)
        {
            return Some((path, found));
        }
        for symbol in &alphabet {
            let Some(segment) = segment.after(*symbol) else {
                continue;
            };
            let next = globs.iter().zip(&stands);
            let next: Vec<PathPositions> = next
                .map(|(glob, stand)| stand.after(glob, *symbol))
                .collect();
            if next.first().is_none_or(PathPositions::is_dead) {
                continue;
            }
            let state = (next, segment);
            if seen.insert(state.clone()) {
                ways.push_back((state, format!("{path}{symbol}")));
            }
        }
        if seen.len() > MOST_STATES {
            // Too much to compare: return the pattern itself, as not shown to be within the limits.
            let found = beyond(&vec![false; others.len()])?;
            return Some((asked.to_string(), found));
        }
    }
    None
}

/// The symbols that a search needs: the requested pattern's own, both slashes, and one that no pattern names.
fn alphabet(globs: &[&PathGlob]) -> Vec<Symbol> {
    let named = |glob: &PathGlob| -> Vec<Symbol> {
        let pieces = glob.written().iter().chain(glob.decoded());
        pieces
            .filter_map(|piece| match piece {
                Piece::Is(symbol) => Some(*symbol),
                Piece::One | Piece::Part | Piece::Rest => None,
            })
            .collect()
    };
    let all: BTreeSet<Symbol> = globs.iter().flat_map(|glob| named(glob)).collect();
    let letters = (b'a'..=b'z').chain(b'A'..=b'Z').chain(b'0'..=b'9');
    let unnamed = letters
        .chain(*b"-_~!$&'()*+,=:@")
        .map(Symbol::plain)
        .find(|letter| !all.contains(letter));
    // If the patterns name every character, those are enough.
    let unnamed: Vec<Symbol> = match unnamed {
        Some(symbol) => vec![symbol],
        None => all.iter().copied().collect(),
    };
    let own = globs.first().map(|glob| named(glob)).unwrap_or_default();
    let mut alphabet: Vec<Symbol> = unnamed;
    for symbol in [SLASH, ENCODED_SLASH].into_iter().chain(own) {
        if !alphabet.contains(&symbol) {
            alphabet.push(symbol);
        }
    }
    alphabet
}

#[cfg(test)]
mod tests {
    use super::super::{PathGlob, RequestPath};
    use super::*;

    fn rule(text: &str) -> RequestRule {
        text.parse().unwrap()
    }

    fn beyond(asked: &str, limits: &[&str]) -> Option<String> {
        let limits: Vec<RequestRule> = limits.iter().map(|text| rule(text)).collect();
        exceeds(&rule(asked), &limits)
    }

    #[test]
    fn a_rule_within_its_limits_exceeds_nothing() {
        for (asked, limits) in [
            ("GET https://a.test/x", &["* https://a.test"][..]),
            (
                "GET,HEAD https://a.test/r/acme/**",
                &["GET,HEAD,POST https://*.test/r/**"],
            ),
            (
                "GET,POST https://a.test/x",
                &["GET https://a.test/x", "POST https://*/*"],
            ),
            ("* https://a.test/x/*", &["* https://a.test:443/x/**"]),
            ("GET https://a.test/*", &["GET https://a.test/**"]),
            (
                "* https://a.test/**",
                &["* https://a.test/**", "WEBSOCKET https://a.test/x"],
            ),
            (
                "GET,WEBSOCKET https://a.test/x",
                &["* https://a.test/**", "WEBSOCKET https://a.test/*"],
            ),
            ("GET https://a.test/a/**/b", &["GET https://a.test/a/*/**"]),
            (
                "GET https://a.test/p%2Fq/*",
                &["GET https://a.test/p%2Fq/**"],
            ),
            (
                "mcp:https://a.test/mcp tools/call:search_*",
                &["mcp:https://a.test/* tools/call:s* prompts/get"],
            ),
            (
                "mcp:https://a.test/mcp tools/call:a tools/call:b",
                &[
                    "mcp:https://a.test/mcp tools/call:a",
                    "mcp:https://a.test/** tools/call:b",
                ],
            ),
            (
                "mcp:https://a.test/mcp tools/call resources/templates/list",
                &["GET,POST,DELETE https://a.test/mcp"],
            ),
        ] {
            assert_eq!(beyond(asked, limits), None, "{asked} {limits:?}");
        }
    }

    #[test]
    fn a_rule_beyond_its_limits_is_shown_by_a_request() {
        for (asked, limits, witness) in [
            ("GET https://a.test/x", &[][..], "GET https://a.test/x"),
            (
                "GET,POST https://a.test/x",
                &["GET https://a.test/**"],
                "POST https://a.test/x",
            ),
            (
                "* https://a.test/x",
                &["GET,PUT https://a.test/**"],
                "* https://a.test/x",
            ),
            (
                "WEBSOCKET https://a.test/x",
                &["* https://a.test/**"],
                "WEBSOCKET https://a.test/x",
            ),
            (
                "GET https://a.test/r/**",
                &["GET https://a.test/r/*"],
                "GET https://a.test/r/",
            ),
            (
                "GET https://a.test/r/*",
                &["GET https://a.test/r/a*"],
                "GET https://a.test/r/b",
            ),
            (
                "GET https://a.test/p%2Fq",
                &["GET https://a.test/*"],
                "GET https://a.test/p%2Fq",
            ),
            // Neither limit matches the encoded slash.
            (
                "GET https://a.test/**",
                &[
                    "GET https://a.test/",
                    "GET https://a.test/*",
                    "GET https://a.test/*/**",
                ],
                "GET https://a.test/a%2F",
            ),
            (
                "GET http://a.test/x",
                &["GET https://a.test/x"],
                "GET http://a.test/x",
            ),
            (
                "mcp:https://a.test/mcp tools/call:search_*",
                &["mcp:https://a.test/mcp tools/call:search_a* prompts/get"],
                "mcp:https://a.test/mcp tools/call:search_",
            ),
            // Each limit covers one of the two paths.
            (
                "mcp:https://a.test/* tools/call:a",
                &[
                    "mcp:https://a.test/* tools/call:b",
                    "mcp:https://a.test/x tools/call:a",
                ],
                "mcp:https://a.test/a tools/call:a",
            ),
            (
                "mcp:https://a.test/mcp tools/call:a",
                &["POST https://a.test/mcp"],
                "GET https://a.test/mcp",
            ),
            (
                "POST https://a.test/mcp",
                &["mcp:https://a.test/mcp tools/call"],
                "POST https://a.test/mcp",
            ),
            (
                "GET https://a.test/mcp",
                &["mcp:https://a.test/mcp tools/call"],
                "GET https://a.test/mcp",
            ),
            (
                "mcp:https://a.test/mcp tools/call",
                &["GET,DELETE https://a.test/mcp"],
                "mcp:https://a.test/mcp tools/call:a",
            ),
            (
                "GET https://a.test:444/x",
                &["GET https://a.test/x"],
                "GET https://a.test:444/x",
            ),
            (
                "GET https://*.a.test/x",
                &["GET https://b.a.test/x"],
                "GET https://*.a.test/x",
            ),
        ] {
            assert_eq!(
                beyond(asked, limits).as_deref(),
                Some(witness),
                "{asked} {limits:?}"
            );
        }
    }

    /// Compares the answer for all paths with every path of few symbols.
    #[test]
    fn the_answer_for_all_paths_is_right_for_each_short_path() {
        let parts = ["/", "a", ".", "%2F", "*", "**"];
        let texts = |parts: &[&str], most: u32| {
            let mut all = vec![String::from("/")];
            let mut last = all.clone();
            for _ in 0..most {
                last = last
                    .iter()
                    .flat_map(|text| parts.iter().map(move |part| format!("{text}{part}")))
                    .collect();
                all.extend(last.clone());
            }
            all
        };
        let paths: Vec<RequestPath> = texts(&["/", "a", "b", ".", "%2F"], 5)
            .iter()
            .filter_map(|text| {
                RequestPath::parse(text)
                    .ok()
                    .filter(|p| p.to_string() == *text)
            })
            .collect();
        let globs: Vec<PathGlob> = texts(&parts, 3)
            .iter()
            .filter_map(|text| PathGlob::parse(text).ok())
            .collect();
        assert!(
            paths.len() > 1000 && globs.len() > 60,
            "{} {}",
            paths.len(),
            globs.len()
        );
        let mut outsides = 0;
        for asked in &globs {
            let asked_paths: Vec<&RequestPath> =
                paths.iter().filter(|path| asked.matches(path)).collect();
            for (at, limit) in globs.iter().enumerate() {
                let second = &globs[(at * 7 + 3) % globs.len()];
                let found = outside(asked, &[limit, second], none).map(|(path, ())| path);
                let naive = asked_paths
                    .iter()
                    .find(|path| !limit.matches(path) && !second.matches(path));
                match (&found, naive) {
                    (None, Some(path)) => panic!("{asked} has {path}, beyond {limit} and {second}"),
                    (Some(witness), _) => {
                        let path = RequestPath::parse(witness).unwrap();
                        assert_eq!(path.to_string(), *witness);
                        let right =
                            asked.matches(&path) && !limit.matches(&path) && !second.matches(&path);
                        assert!(right, "{witness} of {asked} with {limit} and {second}");
                        outsides += 1;
                    }
                    (None, None) => {}
                }
            }
        }
        assert!(outsides > 1000, "{outsides}");
    }

    #[test]
    fn a_comparison_ends_after_a_bounded_number_of_states() {
        let many = "GET https://a.test/*a*b*c*d*e*f*g*h";
        let limits: Vec<String> = ('a'..'m')
            .map(|c| format!("GET https://a.test/*{c}*b*a*c*d*e*f*g"))
            .collect();
        let limits: Vec<&str> = limits.iter().map(String::as_str).collect();
        assert!(beyond(many, &limits).is_some());
    }
}
