//! The search: its results, its limits, and moves during it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::*;
use crate::plan::never::{NeverList, VisibleCredentials};
use crate::plan::{FileIdentity, FileKind, FoundProtected, RepositoryTop};
use crate::policy::SearchRule;
use crate::probe::TestDir;

fn searched(dir: &Path) -> SourceFacts {
    searched_for(dir, &VisibleCredentials::new())
}

/// Searches, with these credentials meant to be visible.
fn searched_for(dir: &Path, meant: &VisibleCredentials) -> SourceFacts {
    searched_but(dir, meant, &[])
}

/// The same, without the directories `passed`.
fn searched_but(dir: &Path, meant: &VisibleCredentials, passed: &[&str]) -> SourceFacts {
    let mut facts = SourceFacts::plain(dir.to_owned(), 0, 0, FileKind::Directory);
    let root = rustix::fs::open(dir, OFlags::PATH, Mode::empty()).unwrap();
    let budget = SearchBudget::of(SearchRule::Complete);
    search(
        &root,
        &HiddenNames::new(NeverList::builtin(), meant),
        budget,
        &MountView {
            passed: passed.iter().map(PathBuf::from).collect(),
            ..MountView::default()
        },
        &mut facts,
    );
    facts.inside.sort_by(|a, b| a.path.cmp(&b.path));
    facts
}

/// The paths of files that the user's tools run later.
fn protected(dir: &Path, unprotected: &[&str]) -> Vec<String> {
    let unprotected = unprotected.iter().map(|name| name.parse().unwrap());
    let unprotected = unprotected.collect();
    let mut facts = SourceFacts::plain(dir.to_owned(), 0, 0, FileKind::Directory);
    let meant = VisibleCredentials::new();
    search(
        &open(dir),
        &HiddenNames::new(NeverList::builtin(), &meant),
        SearchBudget::of(SearchRule::Complete),
        &MountView {
            unprotected: Some(&unprotected),
            ..MountView::default()
        },
        &mut facts,
    );
    assert_eq!(facts.unsearched, None);
    let mut all: Vec<String> = facts
        .protected
        .found
        .iter()
        .map(|one| {
            let meta = fs::symlink_metadata(dir.join(&one.path)).unwrap();
            let (dev, ino) = (meta.dev(), meta.ino());
            assert_eq!(one.file, FileIdentity { dev, ino }, "{one:?}");
            one.path.display().to_string()
        })
        .collect();
    all.sort();
    all
}

/// F37
#[test]
fn what_the_users_tools_run_is_found_at_the_tops_of_repositories_and_in_git_directories() {
    let scratch = TestDir::new("search-protected");
    let dir = &scratch.0;
    for git in [
        ".git",
        "a/b/.git",
        ".git/modules/x/y",
        "bare",
        "plain",
        "c/.Git",
    ] {
        let parts = match git {
            // It becomes a repository by the next `git init`.
            "c/.Git" => &["hooks"][..],
            // Another one names it as the common directory.
            "bare" => &["Objects", "refs", "hooks"],
            "plain" => &["objects", "hooks"],
            _ => &["objects", "refs", "hooks"],
        };
        for part in parts {
            fs::create_dir_all(dir.join(git).join(part)).unwrap();
        }
        if !matches!(git, "plain" | "bare" | "c/.Git") {
            fs::write(dir.join(git).join("HEAD"), "").unwrap();
        }
    }
    fs::create_dir_all(dir.join("src/hooks")).unwrap();
    fs::create_dir_all(dir.join("work")).unwrap();
    fs::write(dir.join("work/.git"), "gitdir: x").unwrap();
    for name in [".envrc", ".vscode/tasks.json", ".github/workflows/x.yml"] {
        for top in ["", "a/b", "work", "src", "a"] {
            let path = dir.join(top).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }
    for link in [".idea", ".claude", "src/.claude", "a/b/.Config"] {
        std::os::unix::fs::symlink("elsewhere", dir.join(link)).unwrap();
    }
    // A branch of this name is not a directory of hooks.
    fs::create_dir_all(dir.join(".git/refs/heads/hooks")).unwrap();
    let of_top =
        |top: &str| [".envrc", ".github/workflows", ".vscode"].map(|n| format!("{top}{n}"));
    let mut expected: Vec<String> = ["", "a/b/", "work/"]
        .iter()
        .flat_map(|top| of_top(top))
        .collect();
    let others = [
        ".claude",
        "a/b/.Config",
        "c/.Git/hooks",
        ".git/hooks",
        ".git/modules/x/y/hooks",
        ".idea",
        "a/b/.git/hooks",
        "bare/hooks",
        "work/.git",
    ];
    expected.extend(others.map(str::to_owned));
    expected.sort();
    assert_eq!(protected(dir, &[]), expected);
    let rest = protected(dir, &[".git/hooks", ".envrc", ".vscode", ".git"]);
    assert_eq!(
        rest,
        [
            ".claude",
            ".github/workflows",
            ".idea",
            "a/b/.Config",
            "a/b/.github/workflows",
            "work/.github/workflows"
        ]
    );
}

/// F37
#[test]
fn what_counted_at_the_start_is_found_by_name_at_the_end() {
    let scratch = TestDir::new("search-by-name");
    let dir = &scratch.0;
    let deep = ["d".repeat(250).as_str(); 16].join("/");
    let mut at = open(dir);
    for name in deep.split('/') {
        rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o700)).unwrap();
        at = rustix::fs::openat(&at, name, OFlags::PATH, Mode::empty()).unwrap();
    }
    rustix::fs::mkdirat(&at, "hooks", Mode::from_raw_mode(0o700)).unwrap();
    for git in [".git", "bare", "new"] {
        fs::create_dir_all(dir.join(git).join("hooks")).unwrap();
        fs::write(dir.join(git).join("config"), "").unwrap();
    }
    fs::create_dir_all(dir.join("sub/.github/workflows")).unwrap();
    std::os::unix::fs::symlink("elsewhere", dir.join("sub/.claude")).unwrap();
    fs::write(dir.join(".envrc"), "").unwrap();
    let tops = [RepositoryTop {
        path: "sub".into(),
        ino: 0,
    }];
    let gits = ["bare".into(), "gone".into(), deep.clone().into()];
    let now = by_name(&open(dir), (&tops, &gits), &BTreeSet::new());
    let paths = |found: &[FoundProtected]| {
        let paths = found.iter().map(|one| one.path.display().to_string());
        paths.collect::<BTreeSet<_>>()
    };
    let deep = format!("{deep}/hooks");
    let found = [
        ".envrc",
        ".git/hooks",
        "bare/hooks",
        deep.as_str(),
        "sub/.claude",
        "sub/.github/workflows",
    ];
    assert_eq!(paths(&now.found), found.map(str::to_owned).into());
    let settings = [".git/config", "bare/config"];
    assert_eq!(paths(&now.settings), settings.map(str::to_owned).into());
}

/// A search that stops knows nevertheless what the top and the found repositories have.
#[test]
fn what_a_stopped_search_did_not_reach_is_looked_up_by_name() {
    let scratch = TestDir::new("search-stopped");
    let dir = &scratch.0;
    for git in [".git", "sub/.git"] {
        fs::create_dir_all(dir.join(git).join("hooks")).unwrap();
        fs::write(dir.join(git).join("config"), "[core]\nhooksPath = x\n").unwrap();
    }
    let none = BTreeSet::new();
    let look = |entries: usize, bytes: u64| {
        let mut facts = SourceFacts::plain(dir.to_owned(), 0, 0, FileKind::Directory);
        let budget = SearchBudget {
            entries,
            bytes,
            ..SearchBudget::of(SearchRule::Partial)
        };
        let view = MountView {
            unprotected: Some(&none),
            ..MountView::default()
        };
        let meant = VisibleCredentials::new();
        let unwanted = HiddenNames::new(NeverList::builtin(), &meant);
        search(&open(dir), &unwanted, budget, &view, &mut facts);
        let found = facts.protected.found.iter();
        let found: BTreeSet<_> = found.map(|one| one.path.display().to_string()).collect();
        let known = facts.protected.known.len();
        assert_eq!(facts.protected.unread, None);
        (facts.unsearched.is_some(), found, known)
    };
    let both: BTreeSet<String> = [".git/hooks", "sub/.git/hooks"].map(str::to_owned).into();
    // Of each file: all of it, and its setting.
    assert_eq!(look(1000, 1 << 20), (false, both.clone(), 4));
    // No budget was left for the comparison.
    assert_eq!(look(1000, 1), (true, both, 4));
    assert_eq!(
        look(1, 1 << 20),
        (true, [".git/hooks".to_owned()].into(), 2)
    );
}

fn open(dir: &Path) -> OwnedFd {
    rustix::fs::open(dir, OFlags::PATH, Mode::empty()).unwrap()
}

fn found(facts: &SourceFacts) -> Vec<&str> {
    let paths = facts.inside.iter().filter_map(|i| i.path.to_str());
    paths.collect()
}

#[test]
fn sockets_and_credentials_are_found_at_any_depth_and_links_are_not_followed() {
    let scratch = TestDir::new("search-depth");
    let dir = &scratch.0;
    fs::create_dir_all(dir.join("a/b/c/d")).unwrap();
    fs::create_dir_all(dir.join("user/.ssh")).unwrap();
    let sockets = ["s", "a/s", "a/b/s", "a/b/c/s", "a/b/c/d/s"];
    let _held = sockets.map(|name| UnixListener::bind(dir.join(name)).unwrap());
    fs::create_dir(dir.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("a", dir.join("elsewhere/link")).unwrap();
    let facts = searched(dir);
    assert_eq!(
        found(&facts),
        ["a/b/c/d/s", "a/b/c/s", "a/b/s", "a/s", "s", "user/.ssh"]
    );
    assert!(facts.unsearched.is_none());
}

#[test]
fn only_packages_of_a_toolchain_are_not_searched() {
    let scratch = TestDir::new("search-passed");
    let dir = &scratch.0;
    for name in [
        "versions/3.12/.ssh",
        "other/versions/.ssh",
        "versions2/.ssh",
        "a/b/.ssh",
    ] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    let seen = |passed: &[&str]| {
        let facts = searched_but(dir, &VisibleCredentials::new(), passed);
        found(&facts).join(" ")
    };
    let others = "a/b/.ssh other/versions/.ssh versions2/.ssh";
    assert_eq!(seen(&["versions"]), others);
    assert_eq!(
        seen(&["versions", "a/b"]),
        "other/versions/.ssh versions2/.ssh"
    );
    assert_eq!(seen(&[""]), "");
    assert!(seen(&["3.12"]).contains("versions/3.12/.ssh"));
}

#[test]
fn a_credential_is_recognised_by_the_directories_above_the_mount() {
    let scratch = TestDir::new("search-above");
    let home = scratch.0.canonicalize().unwrap();
    for file in [
        ".config/gh/hosts.yml",
        ".config/git/credentials",
        ".config/plain",
        ".cargo/credentials.toml",
        ".codex/auth.json",
        ".codex/config.toml",
        ".local/share/keyrings/login",
        "project/auth.json",
    ] {
        let path = home.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    for (mount, expect) in [
        (".config", &["gh", "git/credentials"][..]),
        (".config/git", &["credentials"]),
        (".cargo", &["credentials.toml"]),
        (".codex", &["auth.json"]),
        (".local", &["share/keyrings"]),
        (".local/share", &["keyrings"]),
        ("project", &[]),
    ] {
        assert_eq!(found(&searched(&home.join(mount))), expect, "{mount}");
    }
    // Recognised by another name of the source as well. A meant credential is not hidden.
    let dir = home.join(".codex");
    let root = rustix::fs::open(&dir, OFlags::PATH, Mode::empty()).unwrap();
    let never = NeverList::builtin();
    let look = |meant: &VisibleCredentials| {
        let mut facts = SourceFacts::plain("/volumes/v/_data".into(), 0, 0, FileKind::Directory);
        facts.names.insert(dir.clone());
        let budget = SearchBudget::of(SearchRule::Complete);
        search(
            &root,
            &HiddenNames::new(never, meant),
            budget,
            &MountView::default(),
            &mut facts,
        );
        facts.inside.len()
    };
    assert_eq!(look(&VisibleCredentials::new()), 1);
    assert_eq!(
        look(&VisibleCredentials::from([".codex/auth.json".into()])),
        0
    );
}

#[test]
fn a_meant_credential_is_searched_for_sockets() {
    let scratch = TestDir::new("search-meant");
    fs::create_dir(scratch.0.join(".ssh")).unwrap();
    let _held = UnixListener::bind(scratch.0.join(".ssh/agent")).unwrap();
    let facts = searched_for(&scratch.0, &VisibleCredentials::from([".ssh".into()]));
    assert_eq!(found(&facts), [".ssh/agent"]);
}

#[test]
fn links_and_names_that_are_not_text_do_not_stop_the_search() {
    let scratch = TestDir::new("search-odd");
    let odd = scratch.0.join(OsStr::from_bytes(b"\xff\n\\"));
    fs::create_dir_all(odd.join(".aws")).unwrap();
    for name in [".ssh", ".npmrc", "dangling"] {
        std::os::unix::fs::symlink("/nowhere", scratch.0.join(name)).unwrap();
    }
    let facts = searched(&scratch.0);
    let paths: Vec<_> = facts.inside.iter().map(|i| i.path.as_os_str()).collect();
    assert_eq!(paths, [OsStr::from_bytes(b"\xff\n\\/.aws")]);
    assert_eq!(facts.unsearched, None);
}

#[test]
fn the_search_says_why_it_stopped() {
    let scratch = TestDir::new("search-many");
    for number in 0..50 {
        fs::create_dir_all(scratch.0.join(format!("{number}/below"))).unwrap();
    }
    let root = rustix::fs::open(&scratch.0, OFlags::PATH, Mode::empty()).unwrap();
    let (never, meant) = (NeverList::builtin(), VisibleCredentials::new());
    let look = |entries: usize, time: Duration| {
        let (unwanted, view) = (HiddenNames::new(never, &meant), MountView::default());
        let budget = SearchBudget {
            entries,
            bytes: 1 << 20,
            time,
            rounds: 0,
            room: 64,
        };
        let mut search = Search::new(&root, &unwanted, &view, budget);
        search.all()
    };
    let minute = Duration::from_secs(60);
    assert_eq!(look(100, minute), Ok(()));
    assert!(look(99, minute).unwrap_err().contains("more than 99"));
    assert!(
        look(100, Duration::ZERO)
            .unwrap_err()
            .contains("entries in 0 s")
    );
}

mod bounds;
mod deep;
mod keys;
mod moving;
mod repositories;
