//! PURE. The signatures of a run, for its report: equal ones are counted together, logins before messages.

use std::collections::BTreeMap;

use super::markdown::code;
use super::report::{more, when};
use super::rows::MOST;
use super::words;
use super::{EventDetail, LogLine, Verdict, WallName};

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

/// The groups: logins first, then messages, of both the most frequent first.
fn groups(lines: &[&LogLine]) -> Vec<SignatureGroup> {
    let mut all: BTreeMap<(bool, String), SignatureGroup> = BTreeMap::new();
    for line in lines {
        let event = &line.event;
        let EventDetail::Signature { user, .. } = &event.what else {
            continue;
        };
        let (signed, failed) = match event.verdict {
            Verdict::Allowed => (event.times(), 0),
            Verdict::Failed => (0, event.times()),
            Verdict::Denied | Verdict::Ended | Verdict::Noted | Verdict::WouldDeny => continue,
        };
        let (what, time) = (words::what(&event.what), words::time(line));
        let group = all
            .entry((user.is_none(), what.clone()))
            .or_insert_with(|| SignatureGroup {
                what,
                signed: 0,
                failed: 0,
                span: (time.clone(), time.clone()),
            });
        group.signed = group.signed.saturating_add(signed);
        group.failed = group.failed.saturating_add(failed);
        let (first, last) = &mut group.span;
        if time < *first {
            first.clone_from(&time);
        }
        if time > *last {
            *last = time;
        }
    }
    let mut all: Vec<((bool, String), SignatureGroup)> = all.into_iter().collect();
    all.sort_by_key(|((is_message, _), group)| (*is_message, u64::MAX - group.signed));
    all.into_iter().map(|(_, group)| group).collect()
}

/// The list for a terminal; empty without a signature.
pub(super) fn text(lines: &[&LogLine]) -> String {
    let all = groups(lines);
    let mut text = match all.is_empty() {
        true => String::new(),
        false => "signatures:\n".to_owned(),
    };
    for one in all.iter().take(MOST) {
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
    let hidden = all.len().saturating_sub(MOST);
    text + &more(&[(WallName::Keys, hidden)].into())
}

/// The table in Markdown; empty without a signature.
pub(super) fn table(lines: &[&LogLine]) -> String {
    let all = groups(lines);
    let mut text = match all.is_empty() {
        true => String::new(),
        false => "\n| Signature | Signed | Failed |\n| --- | --- | --- |\n".to_owned(),
    };
    for one in all.iter().take(MOST) {
        text += &format!(
            "| {} | {} | {} |\n",
            code(&one.what),
            one.signed,
            one.failed
        );
    }
    text + &super::markdown::more(all.len())
}

#[cfg(test)]
mod tests {
    use super::super::report::{self, RunHeader};
    use super::super::{Chain, Context, Event, Log, SSH, markdown};
    use super::*;

    fn signature(user: Option<&str>, namespace: Option<&str>, verdict: Verdict) -> Event {
        let what = EventDetail::Signature {
            key: "SHA256:key".to_owned(),
            user: user.map(str::to_owned),
            server: None,
            session: None,
            namespace: namespace.map(str::to_owned),
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

    /// Finding 2 of the hostile reading: sixty signatures for messages hid the login before them.
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
        assert!(page.contains(&format!("| `{what}` | 2 | 1 |\n")), "{page}");
        assert!(page.contains("\n11 more.\n"), "{page}");
        // They are not listed a second time.
        assert_eq!(text.matches("\"root\"").count(), 1, "{text}");
    }

    /// Finding 9: a user with a part of a sentence in its name.
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
