//! PURE. A run in Markdown: a summary for a pull request or a CI job's page.

use super::event::LogLine;
use super::report::{DenialGroup, RunHeader, denied, passed, shares, title, would_deny};
use super::rows::{MOST, hidden_words};
use super::signatures;
use crate::policy::Advice;

/// The summary.
pub fn text(subject: &RunHeader, lines: &[&LogLine]) -> String {
    let mut text = format!(
        "### agentbox\n\n{}; run of {}: {}\n\n",
        code(&title(&subject.context)),
        code(&subject.started),
        code(&subject.state)
    );
    if let Some(command) = &subject.command {
        text += &format!("Command: {}\n\n", code(command));
    }
    if let Some(files) = &subject.files {
        text += &format!("Files: {}\n\n", code(files));
    }
    let refused = denied(lines);
    if refused.is_empty() {
        text += "Nothing was denied.\n";
    } else {
        text += "| Refused | Times | Why | What would allow it |\n| --- | --- | --- | --- |\n";
    }
    rows(&mut text, &refused);
    let audited = would_deny(lines);
    if !audited.is_empty() {
        text += "\n| Allowed, and would be denied (report.learn, report.audit) | Times | Why | What would allow it |\n| --- | --- | --- | --- |\n";
        rows(&mut text, &audited);
    }
    let through = passed(lines);
    if !through.is_empty() {
        text += "\n| Allowed | Connections | Bytes sent | Received | Rule |\n| --- | --- | --- | --- | --- |\n";
    }
    for one in through.iter().take(MOST) {
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            code(&one.what),
            one.connections,
            one.sent,
            one.received,
            code(&one.rule)
        );
    }
    text + &more(through.len()) + &signatures::table(lines)
}

fn rows(text: &mut String, refused: &[DenialGroup]) {
    let (shown, hidden) = shares(refused);
    for one in shown {
        let rule = one.missing_rule.as_ref();
        let rule = rule.filter(|rule| Advice::of(rule).may_be_named());
        let rule = rule.map(|rule| code(rule));
        *text += &format!(
            "| {} | {} | {} | {} |\n",
            code(&one.what),
            one.times,
            code(&one.reason),
            rule.unwrap_or_default()
        );
    }
    if let Some(words) = hidden_words(&hidden) {
        *text += &format!("\n{words}.\n");
    }
}

pub(super) fn more(count: usize) -> String {
    match count.saturating_sub(MOST) {
        0 => String::new(),
        more => format!("\n{more} more.\n"),
    }
}

/// Text as code, in which Markdown, HTML, addresses, mentions and issue numbers do nothing. A container may have chosen
/// it, and GitHub turns bare addresses elsewhere into links. Inside code only the end of the code and a table's border
/// have a meaning.
pub(super) fn code(text: &str) -> String {
    if text.trim().is_empty() {
        return String::new();
    }
    let plain: String = text
        .chars()
        .map(|c| match c {
            '`' | '|' => '?',
            c if c.is_control() => '?',
            c => c,
        })
        .collect();
    format!("`{plain}`")
}

#[cfg(test)]
mod tests {
    use super::super::{
        Chain, ConnectionKind, Context, Event, EventDetail, Log, NODE, Verdict, WallName,
    };
    use super::*;

    /// Texts of which GitHub would make a link, a mention, an image or HTML.
    const MARKS: [&str; 14] = [
        "www.evil.test",
        "https://evil.test/a",
        "http://evil.test",
        "ftp://evil.test",
        "a@evil.test",
        "@evil",
        "#1",
        "evil/evil#1",
        "GH-1",
        "0123456789abcdef0123456789abcdef01234567",
        "![a](https://evil.test)",
        "<img src=//evil.test>",
        "` www.evil.test `",
        "a | b\n\n# www.evil.test",
    ];

    #[test]
    fn text_that_a_container_chose_appears_only_as_code() {
        for mark in MARKS {
            let context = Context {
                container: mark.into(),
                image: Some(mark.into()),
                name: Some(mark.into()),
                policy: Some(mark.into()),
                ..Context::default()
            };
            let subject = RunHeader {
                context: context.clone(),
                started: mark.to_owned(),
                state: mark.to_owned(),
                is_over: true,
                command: Some(mark.to_owned()),
                files: Some(mark.to_owned()),
                earlier: 1,
            };
            let attempt = EventDetail::attempt(ConnectionKind::Http, mark, Some(443));
            let passed = EventDetail::Connection {
                via: None,
                host: mark.into(),
                port: Some(443),
                sent: None,
                received: None,
            };
            let signature = EventDetail::Signature {
                key: mark.into(),
                user: Some(mark.into()),
                server: Some(mark.into()),
                session: None,
                namespace: None,
            };
            let all = |event: Event| Event {
                reason: Some(mark.into()),
                rule: Some(mark.into()),
                missing_rule: Some(mark.into()),
                hint: Some(mark.into()),
                ..event
            };
            let mut chain = Chain::default();
            let mut bytes = Vec::new();
            for event in [
                all(Event::new(WallName::Network, Verdict::Denied, attempt)),
                all(Event::new(WallName::Network, Verdict::Allowed, passed)),
                all(Event::new(WallName::Keys, Verdict::Allowed, signature)),
            ] {
                let line = chain.render("2026-01-02T03:04:05.678Z", &context, &event);
                chain.commit(&line);
                bytes.extend(line);
            }
            let log = Log::parse(NODE, &bytes);
            let lines: Vec<&LogLine> = log.lines.iter().collect();
            assert_eq!(lines.len(), 3);
            let page = text(&subject, &lines);
            // The text outside of code on each line. Here code never spans lines.
            let outside: String = page
                .lines()
                .flat_map(|line| line.split('`').step_by(2).chain(["\n"]))
                .collect();
            let expected = "### agentbox\n\n; run of : \n\nCommand: \n\nFiles: \n\n\
                | Refused | Times | Why | What would allow it |\n| --- | --- | --- | --- |\n|  | 1 |  |  |\n\n\
                | Allowed | Connections | Bytes sent | Received | Rule |\n| --- | --- | --- | --- | --- |\n|  | 1 | 0 | 0 |  |\n\n\
                | Signature | Signed | Failed |\n| --- | --- | --- |\n|  | 1 | 0 |\n\n\
                All with : 1 to log in as 1 user, 0 for messages.\n";
            assert_eq!(outside, expected, "{mark}: {page}");
        }
    }
}
