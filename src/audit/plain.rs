//! PURE. Texts of a line: bounded, and harmless on a terminal.

use crate::policy::escape;

/// Characters of one text in a line; what is longer is cut.
pub const LONGEST: usize = 256;
/// Texts of one list in a line; what is more is left out, and `...` stands for it.
pub const MOST_ITEMS: usize = 64;
/// Bytes of one list in a line, with its escapes: a line of them is far shorter than what a writer reads to find the last one.
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
