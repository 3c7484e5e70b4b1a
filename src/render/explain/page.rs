//! PURE. Builds the explanation: a line for each wall, and below it, indented, the wall's effects.

use std::fmt::{Display, Write};
use std::path::Path;

use crate::policy::Tool;
use crate::text::escape;

/// How much an explanation prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageLength {
    /// What fits one screen: mounts and paths that are alike in one line, origins of values that a built-in policy does
    /// not set.
    Screen,
    /// Everything.
    All,
}

/// Text in lines.
pub(super) struct Page {
    length: PageLength,
    tool: Tool,
    text: String,
}

impl Page {
    /// An empty page.
    pub(super) fn new(length: PageLength, tool: Tool) -> Self {
        let text = String::new();
        Self { length, tool, text }
    }

    /// The words for readers with an engine, or those for users of `wrap`, who have no engine and no image.
    pub(super) fn words<'a>(&self, engines: &'a str, wraps: &'a str) -> &'a str {
        match self.tool {
            Tool::Wrap => wraps,
            Tool::Engine | Tool::Annotating | Tool::Pod | Tool::PodmanPod => engines,
        }
    }

    /// Whether it prints everything.
    pub(super) fn is_whole(&self) -> bool {
        self.length == PageLength::All
    }

    /// Paths in one line: on a screen those below `common` as a number, and at most [`SHOWN_PATHS`] others.
    pub(super) fn list<'a>(
        &self,
        all: impl IntoIterator<Item = &'a Path>,
        common: &[&str],
    ) -> String {
        if self.is_whole() {
            return paths(all);
        }
        let is_common = |path: &&Path| common.iter().any(|top| path.starts_with(top));
        let (counted, named): (Vec<_>, Vec<_>) = all.into_iter().partition(is_common);
        let mut words = paths(named.iter().take(SHOWN_PATHS).copied());
        if named.len() > SHOWN_PATHS {
            words += &format!(" and {} more", named.len() - SHOWN_PATHS);
        }
        if let [one] = counted[..] {
            words = format!("{words} {}", path(one));
        } else if !counted.is_empty() {
            let and = if words.is_empty() { "" } else { " and " };
            words += &format!("{and}{} of {}", counted.len(), common.join(" and "));
        }
        words.trim_start().to_owned()
    }

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
        writeln!(self.text, "{}", escape(&text.to_string())).expect("a String takes every text");
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// The most paths that a line of a screen names: eight take four rows of a terminal.
const SHOWN_PATHS: usize = 5;

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
