//! PURE. A run in Markdown: a summary for a pull request or a CI job's page.

use super::Line;
use super::report::{Subject, denied, passed, title};

/// Rows of one table; what is more is counted.
const MOST: usize = 50;

/// The summary.
pub fn text(subject: &Subject, lines: &[&Line]) -> String {
    let mut text = format!(
        "### agentbox\n\n{}; run of {}: {}\n\n",
        cell(&title(&subject.context)),
        cell(&subject.started),
        cell(&subject.state)
    );
    let refused = denied(lines);
    if refused.is_empty() {
        text += "Nothing was refused.\n";
    } else {
        text += "| Refused | Times | Why | What would allow it |\n| --- | --- | --- | --- |\n";
    }
    for one in refused.iter().take(MOST) {
        let rule = one.missing_rule.as_ref().map(|rule| code(rule));
        text += &format!(
            "| {} | {} | {} | {} |\n",
            code(&one.what),
            one.times,
            cell(&one.reason),
            rule.unwrap_or_default()
        );
    }
    text += &more(refused.len());
    let through = passed(lines);
    if !through.is_empty() {
        text += "\n| Let through | Connections | Bytes sent | Received | Rule |\n| --- | --- | --- | --- | --- |\n";
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
    text + &more(through.len())
}

fn more(count: usize) -> String {
    match count.saturating_sub(MOST) {
        0 => String::new(),
        more => format!("\n{more} more.\n"),
    }
}

/// Text in which nothing is a mark of Markdown or HTML: a container may have chosen it.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '!' | '>' | '~' => {
                out.extend(['\\', c])
            }
            '@' => out.push_str("&#64;"),
            _ => out.push(c),
        }
    }
    out
}

/// The same as code, where only its end and a table's border mean something.
fn code(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| match c {
            '`' | '|' => '?',
            c => c,
        })
        .collect();
    format!("`{plain}`")
}
