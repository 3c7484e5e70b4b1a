//! PURE. The signatures of a run, for its report: equal ones are counted together, logins before messages.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{LogLine, Verdict, WallName};
use super::markdown::code;
use super::report::{more, when};
use super::rows::MOST;
use super::what::EventDetail;
use super::words;

/// The signatures with one key for one purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SignatureGroup {
    /// The key and the purpose.
    what: String,
    /// Signatures.
    signed: u64,
    /// Those that the agent refused.
    failed: u64,
    /// The times of its first and its last line.
    span: (String, String),
}

/// All signatures with one key: no flood takes this line away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KeyTotal {
    logins: u64,
    /// Different users of the logins.
    users: BTreeSet<String>,
    messages: u64,
}

/// What a report tells of the signatures.
#[derive(Debug, Default)]
struct SignatureList {
    /// By key.
    totals: BTreeMap<String, KeyTotal>,
    /// Logins first, then messages, of both the first ones first: what comes later hides nothing.
    groups: Vec<SignatureGroup>,
}

impl SignatureList {
    fn of(lines: &[&LogLine]) -> Self {
        let mut list = Self::default();
        let mut places: BTreeMap<(bool, String), usize> = BTreeMap::new();
        for line in lines {
            let event = &line.event;
            let EventDetail::Signature { key, user, .. } = &event.what else {
                continue;
            };
            let (signed, failed) = match event.verdict {
                Verdict::Allowed => (event.times(), 0),
                Verdict::Failed => (0, event.times()),
                Verdict::Denied | Verdict::Ended | Verdict::Noted | Verdict::WouldDeny => continue,
            };
            list.totals
                .entry(key.to_string())
                .or_default()
                .add(user.as_deref(), signed);
            let (what, time) = (words::what(&event.what), words::time(line));
            let next = list.groups.len();
            let place = *places.entry((user.is_none(), what.clone())).or_insert(next);
            if place == next {
                list.groups.push(SignatureGroup {
                    what,
                    signed: 0,
                    failed: 0,
                    span: (time.clone(), time.clone()),
                });
            }
            if let Some(group) = list.groups.get_mut(place) {
                group.add(signed, failed, time);
            }
        }
        let is_message: BTreeMap<usize, bool> = places
            .into_iter()
            .map(|((is_message, _), place)| (place, is_message))
            .collect();
        let mut numbered: Vec<_> = list.groups.into_iter().enumerate().collect();
        numbered.sort_by_key(|(place, _)| (is_message.get(place).copied(), *place));
        list.groups = numbered.into_iter().map(|(_, group)| group).collect();
        list
    }
}

impl KeyTotal {
    fn add(&mut self, user: Option<&str>, signed: u64) {
        match user {
            Some(_) if signed == 0 => {}
            Some(user) => {
                self.logins = self.logins.saturating_add(signed);
                self.users.insert(user.to_owned());
            }
            None => self.messages = self.messages.saturating_add(signed),
        }
    }

    fn text(&self) -> String {
        format!(
            "{} to log in as {} {}, {} for messages",
            self.logins,
            self.users.len(),
            if self.users.len() == 1 {
                "user"
            } else {
                "users"
            },
            self.messages
        )
    }
}

impl SignatureGroup {
    fn add(&mut self, signed: u64, failed: u64, time: String) {
        self.signed = self.signed.saturating_add(signed);
        self.failed = self.failed.saturating_add(failed);
        let (first, last) = &mut self.span;
        if time < *first {
            first.clone_from(&time);
        }
        if time > *last {
            *last = time;
        }
    }
}

/// The list for a terminal; empty without a signature.
pub(super) fn text(lines: &[&LogLine]) -> String {
    let list = SignatureList::of(lines);
    let mut text = match list.groups.is_empty() {
        true => String::new(),
        false => "signatures:\n".to_owned(),
    };
    for (key, total) in &list.totals {
        text += &format!("  all with {key}: {}\n", total.text());
    }
    for one in list.groups.iter().take(MOST) {
        let failed = match one.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        text += &format!(
            "  {}: {} signed{failed} ({})\n",
            one.what,
            one.signed,
            when(&one.span)
        );
    }
    let hidden = list.groups.len().saturating_sub(MOST);
    text + &more(&[(WallName::Keys, hidden)].into())
}

/// The table in Markdown; empty without a signature.
pub(super) fn table(lines: &[&LogLine]) -> String {
    let list = SignatureList::of(lines);
    let mut text = match list.groups.is_empty() {
        true => String::new(),
        false => "\n| Signature | Signed | Failed |\n| --- | --- | --- |\n".to_owned(),
    };
    for one in list.groups.iter().take(MOST) {
        text += &format!(
            "| {} | {} | {} |\n",
            code(&one.what),
            one.signed,
            one.failed
        );
    }
    text += &super::markdown::more(list.groups.len());
    for (key, total) in &list.totals {
        text += &format!("\nAll with {}: {}.\n", code(key), total.text());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::{self, RunHeader};
    use super::super::{Chain, Context, Event, Log, SSH, markdown};
    use super::*;

    fn signature(user: Option<&str>, namespace: Option<&str>, verdict: Verdict) -> Event {
        let what = EventDetail::Signature {
            key: "SHA256:key".into(),
            user: user.map(Into::into),
            server: None,
            session: None,
            namespace: namespace.map(Into::into),
        };
        Event::new(WallName::Keys, verdict, what)
    }

    fn reports(events: impl IntoIterator<Item = Event>) -> (String, String) {
        let (mut chain, mut bytes) = (Chain::default(), Vec::new());
        for event in events {
            let line = chain.render("2026-01-02T03:04:05.678Z", &Context::default(), &event);
            chain.commit(&line);
            bytes.extend(line);
        }
        let log = Log::parse(SSH, &bytes);
        let lines: Vec<&LogLine> = log.lines.iter().collect();
        let subject = RunHeader::default();
        (
            report::text(&subject, &lines),
            markdown::text(&subject, &lines),
        )
    }

    /// Former fault: sixty signatures for messages hid the login before them.
    #[test]
    fn a_flood_of_messages_hides_no_login() {
        let login = || signature(Some("root"), None, Verdict::Allowed);
        let flood = (0..60).map(|n| signature(None, Some(&format!("n{n}")), Verdict::Allowed));
        let events = [login(), login()].into_iter().chain(flood);
        let refused = [signature(Some("root"), None, Verdict::Failed)];
        let (text, page) = reports(events.chain(refused));
        let what =
            "signature with SHA256:key to log in as \"root\" at a server that it does not name";
        let row = format!("  {what}: 2 signed, 1 failed (at 2026-01-02T03:04:05Z)\n");
        assert!(text.contains(&row), "{text}");
        assert!(text.contains("and more: 11 of keys"), "{text}");
        let total = "all with SHA256:key: 2 to log in as 1 user, 60 for messages\n";
        assert!(text.contains(total), "{text}");
        assert!(page.contains(&format!("| `{what}` | 2 | 1 |\n")), "{page}");
        assert!(page.contains("\n11 more.\n"), "{page}");
        // They are not listed a second time.
        assert_eq!(text.matches("\"root\"").count(), 1, "{text}");
    }

    /// The same with a flood of logins as invented users, twice each, before and after the one that matters.
    #[test]
    fn a_flood_of_logins_hides_neither_an_earlier_one_nor_their_number() {
        let login = |user: &str| signature(Some(user), None, Verdict::Allowed);
        let flood = |range: std::ops::Range<u32>| {
            range.flat_map(|n| [n, n]).map(|n| login(&format!("u{n}")))
        };
        let (text, page) = reports([login("root")].into_iter().chain(flood(0..51)));
        assert!(text.contains("log in as \"root\""), "{text}");
        assert!(page.contains("log in as \"root\""), "{page}");
        // What comes after more users than a report lists is in the total.
        let (text, page) = reports(flood(0..51).chain([login("root")]));
        let total = "103 to log in as 52 users, 0 for messages";
        assert!(
            text.contains(&format!("all with SHA256:key: {total}\n")),
            "{text}"
        );
        assert!(
            page.contains(&format!("All with `SHA256:key`: {total}.\n")),
            "{page}"
        );
    }

    /// A user with a part of a sentence in its name.
    #[test]
    fn a_name_is_told_from_the_words_around_it() {
        let user = "git at the server with the key SHA256:x";
        let (text, _) = reports([signature(Some(user), None, Verdict::Allowed)]);
        let quoted = format!("to log in as \"{user}\" at a server");
        assert!(text.contains(&quoted), "{text}");
        let (text, _) = reports([signature(None, Some("git\" and"), Verdict::Allowed)]);
        assert!(text.contains("for \"git\\\" and\": 1 signed"), "{text}");
    }

    #[test]
    fn a_run_without_a_signature_has_no_such_list() {
        let denied = signature(None, None, Verdict::Denied);
        let (text, page) = reports([denied]);
        assert!(!text.contains("signatures:"), "{text}");
        assert!(!page.contains("| Signature |"), "{page}");
    }
}
