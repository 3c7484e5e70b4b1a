//! PURE. Texts of a line: bounded, and harmless on a terminal.

use crate::text::escape;

/// Most characters of one text in a line; the rest is cut.
pub const LONGEST: usize = 256;
/// Most texts of one list in a line; `...` stands for the rest.
pub const MOST_ITEMS: usize = 64;
/// Most bytes of one list in a line, with escapes. Such a line is far shorter than the part of a file that writers read
/// to find the last line.
pub const LONGEST_LIST: usize = MOST_ITEMS * LONGEST;

pub(super) fn plain(text: &str) -> String {
    let cut: String = text.chars().take(LONGEST).collect();
    match text.len() > cut.len() {
        true => escape(&cut) + "...",
        false => escape(&cut),
    }
}

pub(super) fn plain_list(texts: Vec<String>) -> Vec<String> {
    let mut left = LONGEST_LIST;
    let all = texts.len();
    let mut list: Vec<String> = texts
        .iter()
        .take(MOST_ITEMS)
        .map(|text| plain(text))
        .take_while(|text| {
            let rest = left.checked_sub(text.len());
            left = rest.unwrap_or(0);
            rest.is_some()
        })
        .collect();
    if list.len() < all {
        list.push("...".to_owned());
    }
    list
}
