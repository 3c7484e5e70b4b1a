//! What the second look does in directories that were not, or not all, searched before the start.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::plan::{FileKind, HiddenDirectory, MappedIds, ProgramMode};
use crate::probe::TestDir;

const OWN: &str = "[core]\n\thooksPath = .husky\n[alias]\n\tx = !make\n";

fn bind(dir: &Path) -> BindMount {
    let meta = fs::metadata(dir).unwrap();
    BindMount {
        source: dir.to_owned(),
        judged: SourceIdentity {
            dev: meta.dev(),
            ino: meta.ino(),
            kind: FileKind::Directory,
        },
        access: BindAccess::ReadWrite,
        programs: ProgramMode::Run,
        ids: MappedIds::Node,
    }
}

fn watched(searched: StartSearch) -> GuardedMount {
    GuardedMount {
        destination: "/w".into(),
        searched,
        ..GuardedMount::default()
    }
}

fn source<'a>(bind: &'a BindMount, watched: &'a GuardedMount) -> CleanedSource<'a> {
    let (root, file) = open_as_judged(bind).unwrap();
    CleanedSource {
        root,
        source: bind.source.clone(),
        file,
        watched,
        free: const { &BTreeSet::new() },
    }
}

fn repository(dir: &Path) {
    fs::create_dir_all(dir.join(".git/hooks")).unwrap();
    fs::write(dir.join(".git/config"), OWN).unwrap();
    fs::write(dir.join(".git/hooks/pre-commit"), "#!/bin/sh\n").unwrap();
}

/// Whether the settings and hooks of a repository are as they were.
fn is_kept(dir: &Path) -> bool {
    let config = fs::read_to_string(dir.join(".git/config")).unwrap();
    let hook = dir.join(".git/hooks/pre-commit").exists();
    assert_eq!(config == OWN, hook, "{config}");
    hook
}

/// Cleans a directory with a repository at its top and one below, and returns which of them are kept.
fn kept(dir: &Path, watched: &GuardedMount) -> (bool, bool) {
    for top in [dir.to_owned(), dir.join("sub")] {
        repository(&top);
    }
    let bind = bind(dir);
    let mut quarantine = Quarantine::new(None, "id");
    clean(&[source(&bind, watched)], &mut quarantine);
    (is_kept(dir), is_kept(&dir.join("sub")))
}

#[test]
fn what_only_the_last_search_finds_is_not_called_new() {
    let scratch = TestDir::new("planted-partial");
    let kept = |searched| kept(&scratch.0, &watched(searched));
    assert_eq!(kept(StartSearch::Stopped), (true, true));
    // The top was looked at, and had none of this.
    assert_eq!(kept(StartSearch::ByName), (false, true));
    // The control.
    assert_eq!(kept(StartSearch::Complete), (false, false));
}

#[test]
fn what_lies_in_a_hidden_directory_is_not_called_new() {
    let scratch = TestDir::new("planted-hidden");
    let sub = scratch.0.join("sub");
    fs::create_dir_all(&sub).unwrap();
    let hidden = |dev, ino| GuardedMount {
        hidden: vec![HiddenDirectory {
            path: "sub".into(),
            file: FileIdentity { dev, ino },
        }],
        ..watched(StartSearch::Complete)
    };
    let meta = fs::metadata(&sub).unwrap();
    let (dev, ino) = (meta.dev(), meta.ino());
    assert_eq!(kept(&scratch.0, &hidden(dev, ino)), (false, true));
    // Another directory has taken its place, or one of another subvolume with the same number.
    assert_eq!(kept(&scratch.0, &hidden(dev, ino + 1)), (false, false));
    assert_eq!(kept(&scratch.0, &hidden(dev + 1, ino)), (false, false));
}

#[test]
fn a_source_below_a_searched_one_is_not_searched_again() {
    let scratch = TestDir::new("planted-twice");
    let below = scratch.0.join("below");
    fs::create_dir_all(&below).unwrap();
    let (all, part) = (bind(&scratch.0), bind(&below));
    let (whole, partial) = (watched(StartSearch::Complete), watched(StartSearch::ByName));
    let shows = |one: (&BindMount, &GuardedMount), other: &BindMount| {
        source(one.0, one.1).shows(&source(other, &whole))
    };
    assert!(shows((&all, &whole), &all) && shows((&all, &whole), &part));
    assert!(!shows((&part, &whole), &all) && !shows((&all, &partial), &part));
    let hides = GuardedMount {
        hidden: vec![HiddenDirectory {
            path: "below".into(),
            file: open_as_judged(&part).unwrap().1,
        }],
        ..watched(StartSearch::Complete)
    };
    assert!(!shows((&all, &hides), &part));
    // Another mount of the node is at its path.
    let held = CleanedSource {
        file: open_as_judged(&all).unwrap().1,
        ..source(&part, &whole)
    };
    assert!(!source(&all, &whole).shows(&held));
}

/// A sandbox beside exchanges directories between the search and the move.
#[test]
fn what_was_protected_at_the_start_is_not_moved_in_place_of_another_file() {
    let scratch = TestDir::new("planted-exchanged");
    let identity = |name: &str| {
        let meta = fs::metadata(scratch.0.join(name)).unwrap();
        let (dev, ino) = (meta.dev(), meta.ino());
        FileIdentity { dev, ino }
    };
    let bind = bind(&scratch.0);
    for is_own in [true, false] {
        repository(&scratch.0);
        fs::write(scratch.0.join(".envrc"), "mine").unwrap();
        let files = [".envrc", ".git/hooks"].map(identity);
        let watched = GuardedMount {
            files: files.into_iter().filter(|_| is_own).collect(),
            ..watched(StartSearch::Complete)
        };
        let source = source(&bind, &watched);
        for name in [".envrc", ".git/hooks"] {
            let what = FoundProtected {
                path: name.into(),
                name: name.to_owned(),
                held: 1,
                file: FileIdentity { dev: 0, ino: 1 },
            };
            let mut quarantine = Quarantine::new(None, "id");
            source.file(&what).take(&mut quarantine);
        }
        let there = [".envrc", ".git/hooks/pre-commit"].map(|name| scratch.0.join(name).exists());
        assert_eq!(there, [is_own, is_own]);
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The first look by name moves a hook beside itself where the quarantine is on another file system. The search found it
/// there, moved it again, and the log had a place that was gone.
#[test]
fn what_was_moved_beside_itself_is_moved_once_and_the_log_leads_to_it() {
    let scratch = TestDir::new("planted-once");
    // A path as long as homes have it: the log cuts texts of 256 characters.
    let dir = scratch.0.join("d".repeat(100));
    let hooks = dir.join(".git/hooks");
    repository(&dir);
    // A name of this form that the workload chose is moved like any other.
    let forged = "pre-push.agentbox-0123456789ab-0123456789abcdef";
    fs::write(hooks.join(forged), "#!/bin/sh\n").unwrap();
    let (bind, watched) = (bind(&dir), watched(StartSearch::Complete));
    let id = "0123456789ab".repeat(6);
    let mut quarantine = Quarantine::new(None, &id);
    clean(&[source(&bind, &watched)], &mut quarantine);
    let names = names_in(&hooks);
    let [hook, pushed] = &names[..] else {
        panic!("{names:?}");
    };
    let once = |name: &str, of: &str| {
        let rest = name.strip_prefix(of).unwrap();
        rest.strip_prefix(".agentbox-0123456789ab-")
            .unwrap_or_else(|| panic!("{name}"))
            .len()
    };
    assert_eq!(once(hook, "pre-commit"), 16, "{hook}");
    assert!(pushed.len() > forged.len(), "{pushed}");
    let lines: Vec<String> = quarantine
        .events()
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    let of_hook = lines.iter().filter(|line| line.contains("pre-commit"));
    let of_hook: Vec<&String> = of_hook.collect();
    let [line] = of_hook[..] else {
        panic!("{lines:#?}");
    };
    let path = hooks.join("pre-commit");
    assert!(
        line.contains(&format!("{:?}", path.display().to_string())),
        "{line}"
    );
    assert!(
        line.contains(&format!("moved to {hook} beside it: ")),
        "{line}"
    );
}

/// A sandbox beside can rename and replace what was moved.
#[test]
fn only_the_very_file_that_was_moved_is_skipped() {
    let scratch = TestDir::new("planted-skipped");
    let (dir, other) = (scratch.0.join("a"), scratch.0.join("b"));
    let open_dir = |dir: &Path| {
        fs::create_dir_all(dir).unwrap();
        OwnedFd::from(fs::File::open(dir).unwrap())
    };
    let (here, there) = (open_dir(&dir), open_dir(&other));
    let hook = dir.join("pre-commit");
    fs::write(&hook, "evil").unwrap();
    let mut quarantine = Quarantine::new(None, "id");
    let at = quarantine
        .take(&here, OsStr::new("pre-commit"), &hook)
        .unwrap();
    let name = at.file_name().unwrap().to_owned();
    assert!(quarantine.has_made(&here, &name), "the control");
    assert!(!Quarantine::new(None, "id").has_made(&here, &name));
    // Another name for it, another directory, another file of its name.
    fs::hard_link(&at, &hook).unwrap();
    assert!(!quarantine.has_made(&here, OsStr::new("pre-commit")));
    fs::hard_link(&at, other.join(&name)).unwrap();
    assert!(!quarantine.has_made(&there, &name));
    let beside = dir.join("beside");
    fs::write(&beside, "evil").unwrap();
    fs::rename(&beside, &at).unwrap();
    assert!(!quarantine.has_made(&here, &name));
}
