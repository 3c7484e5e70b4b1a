//! No hidden file looks to git like a change.

use super::*;

fn hidden(path: &str, git: GitState) -> FoundCredential {
    FoundCredential {
        git,
        ..FoundCredential::hidden(path.into(), "it holds credentials".into(), 1)
    }
}

fn untracked(exclude: &str, name: &str) -> GitState {
    GitState::Untracked(UntrackedFile {
        exclude: exclude.into(),
        name: name.into(),
    })
}

#[test]
fn git_ignores_hidden_files_of_writable_mounts() {
    let inside = [
        hidden(".netrc", untracked(".git/info/exclude", ".netrc")),
        hidden("x/.ssh", untracked(".git/info/exclude", "x/.ssh")),
        hidden(
            "tree/.netrc",
            untracked("/main/.git/info/exclude", ".netrc"),
        ),
        hidden("agent.sock", GitState::Nothing),
    ];
    let plan = |options: &[&str]| {
        let case = under("standard").bind("/srv/project", "/work").cwd("/work");
        let case = case.options(options).found(|f| f.inside = inside.to_vec());
        case.plan().filesystem
    };
    let told = plan(&[]).excludes;
    let exclude = |file: &str, names: &[&str]| Exclude {
        file: file.into(),
        names: names.iter().map(PathBuf::from).collect(),
    };
    let expect = [
        exclude("/main/.git/info/exclude", &[".netrc"]),
        exclude("/work/.git/info/exclude", &[".netrc", "x/.ssh"]),
    ];
    assert_eq!(told, expect);
    let read_only = plan(&["ro"]);
    assert!(read_only.excludes.is_empty() && read_only.found.len() == 4);
}

#[test]
fn a_hidden_file_that_git_would_commit_as_empty_is_refused_if_writable() {
    for (git, expect) in [
        (GitState::Changed, "--skip-worktree"),
        (GitState::Untold("run this".into()), "run this"),
    ] {
        let case = |options: &[&str]| {
            let case = under("standard").bind("/srv/project", "/work").cwd("/work");
            let case = case.options(options);
            case.found(|f| f.inside = vec![hidden("a/.netrc", git.clone())])
        };
        let message = case(&[]).refused();
        assert!(
            message.contains("a/.netrc") && message.contains(expect),
            "{message}"
        );
        case(&["ro"]).plan();
    }
}

/// Of a whole home directory, only the working directory is writable.
#[test]
fn another_project_in_the_home_does_not_matter() {
    let home = |changed: &str| {
        let part = SourceFacts::plain("/home/me/project".into(), 1, 77, FileKind::Directory);
        let case = under("standard").bind("/home/me", "/home/me");
        case.cwd("/home/me/project").found(|f| {
            f.home = Some(Home {
                working: Some(Box::new(part)),
            });
            f.inside = vec![hidden(changed, GitState::Changed)];
        })
    };
    home("other/.netrc").plan();
    assert!(home("project/.netrc").refused().contains("project/.netrc"));
}

/// H3: a credential directory is masked once; git's own files stay visible, and a file that git would miss is refused.
#[test]
fn gits_files_stay_visible_in_a_hidden_directory() {
    let file = VisibleFile {
        path: "config".into(),
        what: VisibleKind::File { dev: 1, ino: 2 },
    };
    let directory = FoundCredential {
        seen: vec![file.clone()],
        ..hidden("x/.aws", GitState::Nothing)
    };
    let changed = FoundCredential {
        covered: true,
        ..hidden("x/.aws/credentials", GitState::Changed)
    };
    let case = |options: &[&str]| {
        let case = under("standard").bind("/srv/project", "/work").cwd("/work");
        let inside = vec![directory.clone(), changed.clone()];
        case.options(options).found(|f| f.inside = inside)
    };
    let plan = case(&["ro"]).plan().filesystem;
    assert_eq!(plan.found, ["/work/x/.aws".into()].into());
    assert!(!plan.masked.contains(&"/work/x/.aws/credentials".into()));
    let seen = VisibleFiles {
        directory: "/work/x/.aws".into(),
        files: vec![file],
    };
    assert_eq!(plan.seen, [seen]);
    let message = case(&[]).refused();
    assert!(message.contains("x/.aws/credentials"), "{message}");
}
