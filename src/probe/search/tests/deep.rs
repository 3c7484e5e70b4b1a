//! MEDIUM-4 (F23): directories deeper than a path can name, which an agent makes with one loop.

use super::*;

/// Makes nested directories as an agent would. Returns the deepest.
fn nest(dir: &Path, name: &str, depth: usize) -> OwnedFd {
    let mut at = open(dir);
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, name, OFlags::PATH, Mode::empty()).unwrap();
    }
    at
}

/// A directory that `rm` removes: `remove_dir_all` needs a descriptor for each level.
struct DeepDir(TestDir);

impl Drop for DeepDir {
    fn drop(&mut self) {
        std::process::Command::new("rm")
            .args(["-rf"])
            .arg(&self.0.0)
            .status()
            .unwrap();
    }
}

#[test]
fn a_credential_too_deep_for_a_path_is_hidden_with_a_directory_above() {
    let scratch = DeepDir(TestDir::new("search-deep"));
    let dir = &scratch.0.0;
    for name in ["plain", "hides"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    nest(&dir.join("plain"), "dd", 3000);
    let facts = searched(dir);
    assert_eq!((facts.unsearched, facts.inside), (None, Vec::new()));
    let deepest = nest(&dir.join("hides"), "dd", 3000);
    for name in [".aws", ".ssh"] {
        rustix::fs::mkdirat(&deepest, name, Mode::from_raw_mode(0o755)).unwrap();
    }
    let facts = searched(dir);
    assert_eq!(facts.unsearched, None);
    let [inside] = facts.inside.as_slice() else {
        panic!("{} are hidden", facts.inside.len());
    };
    // The path fits a mount, and is as long as such a path may be.
    assert!((2990..=3000).contains(&inside.path.as_os_str().len()));
    assert!(inside.path.starts_with("hides/dd"));
    assert!(inside.why.contains("deeper"));
}

/// The number of opens for a directory does not depend on its depth or the order: by its parent, and on the way back.
#[test]
fn a_deep_tree_with_branches_is_walked_in_steps() {
    let scratch = DeepDir(TestDir::new("search-branches"));
    let dir = &scratch.0.0;
    let mut at = open(dir);
    for _ in 0..400 {
        for name in ["a", "d", "z"] {
            rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)).unwrap();
        }
        for name in ["a", "z"] {
            rustix::fs::mkdirat(&at, format!("{name}/.aws"), Mode::from_raw_mode(0o755)).unwrap();
        }
        at = rustix::fs::openat(&at, "d", OFlags::PATH, Mode::empty()).unwrap();
    }
    let root = open(dir);
    let (never, meant, view) = (
        NeverList::builtin(),
        VisibleCredentials::new(),
        MountView::default(),
    );
    let unwanted = HiddenNames::new(never, &meant);
    let mut search = Search::new(
        &root,
        &unwanted,
        &view,
        SearchBudget::of(SearchRule::Complete),
    );
    search.bases = vec![PathBuf::new()];
    search.until_still().unwrap();
    assert_eq!(search.inside.len(), 800);
    // Twice for the two looks at each of the 1,201, with room for repeated listings.
    assert!(search.walk.steps < 12_000, "{}", search.walk.steps);
}
