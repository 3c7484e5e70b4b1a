//! What the second look does in directories that were not, or not all, searched before the start.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::plan::git_config::WholeSettings;
use crate::plan::{FileKind, HiddenDirectory, MappedIds, ProgramMode, RepositoryTop};
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
        begun: Some(Duration::ZERO),
        is_read: Cell::new(false),
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

/// Git writes through links in its directory, and reads commits by what leads to replaced objects.
#[test]
fn what_git_would_write_or_read_through_is_moved_aside() {
    let scratch = TestDir::new("planted-links");
    let dir = &scratch.0;
    let git = dir.join(".git");
    repository(dir);
    for below in [
        "logs",
        "refs/heads",
        "refs/remotes/origin",
        "objects/info",
        "worktrees/w",
        "modules/s",
    ] {
        fs::create_dir_all(git.join(below)).unwrap();
    }
    let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, dir.join(at)).unwrap();
    let write = |at: &str, text: &str| fs::write(dir.join(at), text).unwrap();
    link("config", ".git/COMMIT_EDITMSG");
    link("/etc/passwd", ".git/logs/HEAD");
    link("/etc", ".git/worktrees/tree");
    link("../own", ".git/logs/own");
    write(".git/modules/s/HEAD", "ref: refs/heads/main\n");
    link("refs/heads/../../x", ".git/worktrees/w/HEAD");
    link("refs/heads/main", ".git/refs/remotes/origin/HEAD");
    link("..", ".git/worktrees/.#x");
    link("me@host.1:2", ".git/.#COMMIT_EDITMSG");
    link("config", "of-the-project");
    // A work tree in a bare repository.
    for below in [
        "bare/objects",
        "bare/refs",
        "bare/main/bin",
        "bare/logs/bin",
    ] {
        fs::create_dir_all(dir.join(below)).unwrap();
    }
    for top in ["bare/main", "bare/logs"] {
        write(&format!("{top}/.git"), "gitdir: ../worktrees/main");
        link("/etc", &format!("{top}/bin/tool"));
    }
    fs::create_dir_all(dir.join("bare/worktrees/main")).unwrap();
    write(".git/refs/heads/topic", "ref: refs/replace/0\n");
    write(".git/refs/heads/alias", "ref: refs/heads/main\n");
    write(".git/ORIG_HEAD", "ref: refs/replace/0\n");
    write(".git/worktrees/w/ORIG_HEAD", "ref: refs/replace/0\n");
    write(".git/HEAD", "ref: refs/heads/main\n");
    write(".git/objects/info/commit-graph", "CGPH");
    for (top, leads_to) in [
        ("in", "../.git/modules/s"),
        ("out", "/srv/evil.git"),
        ("gone", "../.git/modules/none"),
    ] {
        fs::create_dir(dir.join(top)).unwrap();
        write(&format!("{top}/.git"), &format!("gitdir: {leads_to}\n"));
    }
    let own = WholeSettings::Link(b"../own").hash(Path::new(".git/logs/own"));
    let (bind, watched) = (
        bind(dir),
        GuardedMount {
            known: [own].into(),
            ..watched(StartSearch::Complete)
        },
    );
    let mut quarantine = Quarantine::new(None, "id");
    clean(&[source(&bind, &watched)], &mut quarantine);
    let is_there = |at: &&str| dir.join(at).symlink_metadata().is_ok();
    for gone in [
        ".git/COMMIT_EDITMSG",
        ".git/logs/HEAD",
        ".git/worktrees/w/HEAD",
        ".git/refs/remotes/origin/HEAD",
        ".git/worktrees/.#x",
        ".git/worktrees/tree",
        ".git/refs/heads/topic",
        ".git/refs/heads/alias",
        ".git/ORIG_HEAD",
        ".git/worktrees/w/ORIG_HEAD",
        ".git/objects/info/commit-graph",
        "out/.git",
        "gone/.git",
        "bare/logs/bin/tool",
    ] {
        assert!(!is_there(&gone), "{gone}");
    }
    for kept in [
        ".git/logs/own",
        ".git/.#COMMIT_EDITMSG",
        ".git/HEAD",
        "of-the-project",
        "in/.git",
        "bare/main/bin/tool",
    ] {
        assert!(is_there(&kept), "{kept}");
    }
}

/// A hard link would be written in the place of the settings.
#[test]
fn settings_have_one_name() {
    let scratch = TestDir::new("planted-hard-link");
    repository(&scratch.0);
    let [config, other] =
        ["config", "COMMIT_EDITMSG"].map(|name| scratch.0.join(".git").join(name));
    fs::hard_link(&config, &other).unwrap();
    let bind = bind(&scratch.0);
    let own = WholeSettings::Text(OWN.as_bytes()).hash(Path::new(".git/config"));
    let watched = GuardedMount {
        known: [own].into(),
        ..watched(StartSearch::Complete)
    };
    clean(&[source(&bind, &watched)], &mut Quarantine::new(None, "id"));
    fs::write(&other, "evil").unwrap();
    assert_eq!(fs::read_to_string(config).unwrap(), OWN);
}

/// A checkout may bring a git directory whose settings git would obey, were a `.git` to lead there.
#[test]
fn a_work_tree_of_a_checkouts_git_directory_is_moved() {
    let scratch = TestDir::new("planted-fixture");
    let dir = &scratch.0;
    let write = |at: &str, text: &str| {
        let at = dir.join(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    };
    let program = "[core]\n\tfsmonitor = x\n";
    let mut known = BTreeSet::new();
    for (git, config) in [
        ("plain.git", "[core]\n\tbare = true\n"),
        ("evil", program),
        (".git/modules/own", program),
        ("common", program),
        ("hooked", ""),
        ("l/.bare", program),
        (".git", ""),
    ] {
        for part in ["objects/x", "refs/x"] {
            write(&format!("{git}/{part}"), "");
        }
        write(&format!("{git}/HEAD"), "ref: refs/heads/main\n");
        write(&format!("{git}/config"), config);
        let path = format!("{git}/config");
        known.insert(WholeSettings::Text(config.as_bytes()).hash(Path::new(&path)));
    }
    write("common/worktrees/w/HEAD", "ref: refs/heads/main\n");
    write("common/worktrees/w/commondir", "../..\n");
    write("fix/a/w/HEAD", "ref: refs/heads/main\n");
    write("fix/a/w/commondir", "../../../evil\n");
    write("hooked/hooks/pre-commit", "");
    write("l/.git", "gitdir: ./.bare\n");
    write("l/.bare/worktrees/w/HEAD", "ref: refs/heads/main\n");
    write("l/.bare/worktrees/w/commondir", "../..\n");
    let own = ["hooked/hooks", "l/.git", "fix/a/w/commondir"];
    let own = own.map(|at| file_of(&rustix::fs::stat(dir.join(at)).unwrap()));
    let leads = [
        "plain.git",
        "evil",
        ".git/modules/own",
        "common/worktrees/w",
        "hooked",
        "fix/a/w",
        "l/.bare/worktrees/w",
        ".git",
    ];
    for (number, leads_to) in leads.iter().enumerate() {
        write(
            &format!("t{number}/.git"),
            &format!("gitdir: ../{leads_to}\n"),
        );
    }
    let watched = GuardedMount {
        known,
        files: own.into(),
        tops: vec![RepositoryTop {
            path: "l".into(),
            ino: 0,
        }],
        gits: vec![
            "plain.git".into(),
            "evil".into(),
            "common".into(),
            "hooked".into(),
            "l/.bare".into(),
            "fix/a/w".into(),
        ],
        ..watched(StartSearch::Complete)
    };
    let bind = bind(dir);
    clean(&[source(&bind, &watched)], &mut Quarantine::new(None, "id"));
    let stays = |number: &usize| dir.join(format!("t{number}/.git")).exists();
    let stay: Vec<usize> = (0..leads.len()).filter(stays).collect();
    assert_eq!(stay, [2, 6]);
    assert_eq!(
        fs::read_to_string(dir.join("evil/config")).unwrap(),
        program
    );
}

/// Nothing in an agent's home is the user's, and the agent's own settings there stay.
#[test]
fn repositories_of_an_agents_home_are_cleaned_alone() {
    let scratch = TestDir::new("planted-home");
    let dir = &scratch.0;
    repository(&dir.join("evil"));
    fs::write(dir.join("evil/.git/hooks/x.sample"), "").unwrap();
    for own in [".mcp.json", "opencode.json", "evil/.envrc"] {
        fs::write(dir.join(own), "{}").unwrap();
    }
    fs::create_dir(dir.join("tree")).unwrap();
    fs::create_dir(dir.join("led")).unwrap();
    fs::write(
        dir.join("tree/.git"),
        "gitdir: /other/.git/worktrees/tree\n",
    )
    .unwrap();
    fs::write(dir.join("led/.git"), "gitdir: /other/fixture\n").unwrap();
    let (bind, watched) = (bind(dir), GuardedMount::of_repositories("/w".into()));
    let mut quarantine = Quarantine::new(None, "id");
    clean(&[source(&bind, &watched)], &mut quarantine);
    assert!(!is_kept(&dir.join("evil")));
    for own in [
        ".mcp.json",
        "opencode.json",
        "evil/.envrc",
        "tree/.git",
        "evil/.git/hooks/x.sample",
    ] {
        assert!(dir.join(own).exists(), "{own}");
    }
    assert!(!dir.join("led/.git").exists());
    assert_eq!(quarantine.events().len(), 3);
    // No user looks there.
    quarantine.attend(GuardedPart::All);
    assert_eq!(quarantine.said(), [""; 0]);
}
