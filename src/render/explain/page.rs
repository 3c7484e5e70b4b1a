//! PURE. Builds the explanation: a line for each wall, and below it, indented, the wall's effects.

use std::fmt::{Display, Write};
use std::path::Path;

use crate::text::escape;

/// Text in lines.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    /// A wall's name and state.
    pub(super) fn head(&mut self, name: &str, text: impl Display) {
        self.line(format_args!("{name}: {text}"));
    }

    /// One effect of the wall.
    pub(super) fn item(&mut self, text: impl Display) {
        self.line(format_args!("  {text}"));
    }

    /// One line, whatever the text contains: callers and images choose paths.
    pub(super) fn line(&mut self, text: impl Display) {
        writeln!(self.0, "{}", escape(&text.to_string())).expect("a String takes every text");
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// A path without control characters.
pub(super) fn path(path: &Path) -> String {
    match path.to_str() {
        Some(text) => escape(text),
        None => escape(&crate::plan::text::of(path)),
    }
}

/// Paths in one line.
pub(super) fn paths<'a>(all: impl IntoIterator<Item = &'a Path>) -> String {
    let all: Vec<String> = all.into_iter().map(path).collect();
    all.join(" ")
}

/// A size in the largest unit that divides it.
pub(super) fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) {
        format!("{} GiB", bytes >> 30)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}
