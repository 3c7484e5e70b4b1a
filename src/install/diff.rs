//! PURE. A unified diff of two texts. `similar::TextDiff` makes the same (a test), and brings six algorithms, which are
//! a fortieth of the program; this has one.

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::udiff::UnifiedHunkHeader;

/// Equal lines around a change.
const AROUND: usize = 3;

/// What changes from one text to the other, under these names; empty if nothing does.
pub(super) fn unified([before, after]: [&str; 2], names: &[String; 2]) -> String {
    let [old, new] = [before, after].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let (old, new) = (old.as_slice(), new.as_slice());
    let mut found = Compact::new(Replace::new(Capture::new()), old, new);
    let Ok(()) = myers::diff(&mut found, old, 0..old.len(), new, 0..new.len());
    let groups = found.into_inner().into_inner().into_grouped_ops(AROUND);
    let mut shown = String::new();
    for group in groups.iter().filter(|group| !group.is_empty()) {
        if shown.is_empty() {
            shown = format!("--- {}\n+++ {}\n", names[0], names[1]);
        }
        shown.push_str(&format!("{}\n", UnifiedHunkHeader::new(group)));
        for change in group.iter().flat_map(|part| part.iter_changes(old, new)) {
            let line: &str = change.value();
            shown.push_str(&format!("{}{line}", change.tag()));
            if !line.ends_with('\n') {
                shown.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_whole_library_says() {
        let names = ["a/x".to_owned(), "/dev/null".to_owned()];
        let long: String = (0..40).map(|n| format!("{n}\n")).collect();
        let changed = long.replace("7\n", "seven\n").replace("30\n", "30\n31a\n");
        let texts = [
            "",
            "a\n",
            "a",
            "a\nb\nc\n",
            "a\nc\nb",
            "{\n  \"a\": 1\n}\n",
            "{\n  \"a\": 1,\n  \"b\": 2\n}\n",
            &long,
            &changed,
        ];
        for before in texts {
            for after in texts {
                let whole = similar::TextDiff::from_lines(before, after)
                    .unified_diff()
                    .header(&names[0], &names[1])
                    .to_string();
                assert_eq!(unified([before, after], &names), whole);
            }
        }
    }
}
