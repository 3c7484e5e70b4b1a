//! The files below `integration/golden/`: compared, or rewritten.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use super::difference::between;
use crate::fixtures;

/// The files of one folder.
pub struct Folder {
    path: PathBuf,
    seen: BTreeSet<PathBuf>,
    differences: Vec<String>,
}

impl Folder {
    pub fn new(name: &str) -> Self {
        Self {
            path: fixtures::path("golden").join(name),
            seen: BTreeSet::new(),
            differences: Vec::new(),
        }
    }

    /// Compares a file with the expected text, or writes it.
    pub fn check(&mut self, name: &str, text: &str) {
        let path = self.path.join(format!("{name}.txt"));
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        if before != text && is_blessing() {
            std::fs::create_dir_all(&self.path).unwrap();
            std::fs::write(&path, text).unwrap();
        } else if before != text {
            let difference = difference(&before, text);
            self.differences
                .push(format!("--- {}\n{difference}", path.display()));
        }
        self.seen.insert(path);
    }

    /// Fails on differences, and on files that no test produces any more.
    pub fn finish(self) {
        let files = std::fs::read_dir(&self.path).unwrap();
        let mut stale: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
        stale.retain(|file| !self.seen.contains(file));
        if is_blessing() {
            stale.iter().for_each(|f| std::fs::remove_file(f).unwrap());
            return;
        }
        let advice = "AGENTBOX_BLESS=1 writes the golden files; then review their diff";
        let all = self.differences;
        let shown = all.iter().take(5).cloned().collect::<String>();
        assert!(
            all.is_empty(),
            "{} files differ; {advice}\n{shown}",
            all.len()
        );
        assert!(stale.is_empty(), "left over: {stale:?}; {advice}");
    }
}

fn is_blessing() -> bool {
    std::env::var_os("AGENTBOX_BLESS").is_some()
}

/// The changes in a file, at most 60 lines.
fn difference(before: &str, after: &str) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let changes = between(&lines(before), &lines(after));
    let all: String = changes.iter().map(ToString::to_string).collect();
    let mut shown: String = all
        .lines()
        .take(60)
        .map(|line| format!("{line}\n"))
        .collect();
    let rest = all.lines().count().saturating_sub(60);
    if rest > 0 {
        writeln!(shown, "... {rest} more").unwrap();
    }
    shown
}

#[test]
fn no_folder_is_left_over() {
    let entries = std::fs::read_dir(fixtures::path("golden")).unwrap();
    let folders = entries
        .map(|entry| entry.unwrap())
        .filter(|e| e.path().is_dir());
    let names: BTreeSet<_> = folders.map(|folder| folder.file_name()).collect();
    assert_eq!(names, ["containers".into(), "exec".into()].into());
}
