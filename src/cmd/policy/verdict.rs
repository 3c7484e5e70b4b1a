//! The JSON form of `policy check`.

use serde::Serialize;

/// The answer as JSON.
#[derive(Debug, Serialize)]
pub struct SaidVerdict<'a> {
    /// The version of this form.
    version: u32,
    /// Whether the connection or request is allowed.
    allowed: bool,
    /// The verdict and its reason.
    verdict: &'a str,
    /// Further lines: the missing rule, what may add it.
    notes: Vec<&'a str>,
}

impl<'a> SaidVerdict<'a> {
    /// From the text for people: its first line is the verdict.
    pub fn of(allowed: bool, text: &'a str) -> Self {
        let mut lines = text.lines();
        Self {
            version: 1,
            allowed,
            verdict: lines.next().unwrap_or_default(),
            notes: lines.collect(),
        }
    }
}
