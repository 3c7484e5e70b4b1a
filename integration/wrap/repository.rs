//! git works at once in a repository's directory, a work tree and a submodule. A crafted `.git` shows nothing.

use super::account::{Account, GIT};
use crate::command::{Finished, finish};
use crate::docker::Docker;

const POLICIES: [&str; 3] = ["strict", "standard", "permissive"];

/// `wrap` below a directory of the user's home.
fn wrap_in(person: &Account, directory: &str, policy: &str, script: &str) -> Finished {
    let mut command = person.sudo(&["wrap", "--policy", policy, "--", "bash", "-c", script]);
    command.current_dir(format!("{}/{directory}", person.home));
    finish(&mut command)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_commits_from_a_subdirectory_a_work_tree_and_a_submodule() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file(
        ".gitconfig",
        "[credential]\n\thelper = store\n[user]\n\tname = The Person\n\temail = p@example.org\n",
    );
    person.does(&format!(
        "{GIT} cd ~/src/project; git init -q; mkdir -p a/b; echo 1 >a/b/f; git add .; git commit -qm one; \
         git worktree add -q ~/src/tree; git init -q ~/src/sub; cd ~/src/sub; git commit -q --allow-empty -m s; \
         cd ~/src/project; git -c protocol.file.allow=always submodule --quiet add ~/src/sub sub; git commit -qm sub"
    ));
    let script = "pwd; git rev-parse --show-toplevel; echo x >>new-$$; git add . && git commit -qm inside && git log -1 --format='%an <%ae>'; \
                  git config --get-all credential.helper; true";
    for policy in POLICIES {
        for (directory, top) in [
            ("src/project/a/b", "src/project"),
            ("src/project", "src/project"),
            ("src/tree", "src/tree"),
            ("src/tree/a", "src/tree"),
            ("src/project/sub", "src/project/sub"),
        ] {
            let seen = wrap_in(&person, directory, policy, script);
            let home = &person.home;
            let helper = if policy == "permissive" {
                "store\n"
            } else {
                ""
            };
            let expected =
                format!("{home}/{directory}\n{home}/{top}\nThe Person <p@example.org>\n{helper}");
            assert_eq!(seen.stdout, expected, "{policy} {directory}: {seen}");
            // The control: the commit from inside is there.
            let said = person.does(&format!("cd {directory}; git log -1 --format=%s"));
            assert_eq!(said, "inside\n", "{policy} {directory}");
        }
    }
    // An agent in a work tree plants nothing that the repository's git would run.
    let plant = "c=$(git rev-parse --git-common-dir); echo x >$c/hooks/post-commit; git config core.hooksPath /tmp; mv $c/hooks $c/h; \
                 test -w $c/objects && echo writable";
    let seen = wrap_in(&person, "src/tree", "standard", plant);
    assert_eq!(seen.stdout, "writable\n", "{seen}");
    // Git also trusts these: another common directory, another configuration, a submodule's configuration.
    let believe = "c=$(git rev-parse --git-common-dir); for f in commondir config.worktree modules/sub/config; do \
                   mkdir -p $c/modules/sub; echo x >$c/$f && echo planted; done";
    let seen = wrap_in(&person, "src/tree", "standard", believe);
    assert_eq!(seen.stdout, "", "{seen}");
    assert!(seen.stderr.contains("Read-only file system"), "{seen}");
    let left = person.does("cd ~/src/project; ls .git/hooks; git config core.hooksPath || true");
    assert!(
        !left.lines().any(|l| l == "post-commit" || l == "/tmp"),
        "{left}"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_brings_nothing_for_a_crafted_git_file() {
    let _docker = Docker::connect();
    let (person, other) = (Account::new(), Account::new());
    let secret = "the-secret-of-the-node";
    for account in [&person, &other] {
        account.does(&format!("{GIT} git init -q ~/other; cd ~/other; echo {secret} >.git/notes; git commit -q --allow-empty -m s; chmod 755 ~"));
    }
    let (home, theirs) = (&person.home, &other.home);
    for (target, shown) in [
        (
            format!("{home}/other/.git"),
            format!("{home}/other/.git/notes"),
        ),
        (
            format!("{theirs}/other/.git"),
            format!("{theirs}/other/.git/notes"),
        ),
        (home.clone(), format!("{home}/other/.git/notes")),
        ("/".to_owned(), format!("{theirs}/other/.git/notes")),
        (
            "../../other/.git".to_owned(),
            format!("{home}/other/.git/notes"),
        ),
        ("/etc".to_owned(), "/etc/shadow".to_owned()),
    ] {
        person.file("src/project/.git", &format!("gitdir: {target}\n"));
        for policy in ["strict", "standard"] {
            let seen = wrap_in(
                &person,
                "src/project",
                policy,
                &format!("cat {shown}; true"),
            );
            assert_eq!(seen.code, 0, "{target}: {seen}");
            assert!(
                !seen.stdout.contains(secret) && !seen.stdout.contains("root:"),
                "{target}: {seen}"
            );
        }
    }
    // A git directory in the workspace whose common directory is another repository's.
    person.does("rm -rf ~/src/project/.git; mkdir -p ~/src/project/g; cd ~/src/project; echo 'gitdir: g' >.git; \
                 echo ~/other/.git >g/commondir; echo $PWD/.git >g/gitdir; cp ~/other/.git/HEAD g");
    let seen = wrap_in(
        &person,
        "src/project",
        "standard",
        "cat ~/other/.git/notes; true",
    );
    assert!(!seen.stdout.contains(secret), "{seen}");
    // The control: the user can read the file.
    assert!(person.does("cat ~/other/.git/notes").contains(secret));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_takes_no_home_for_a_repository() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.does(&format!("{GIT} git init -q ~; echo x >~/src/beside"));
    let seen = wrap_in(
        &person,
        "src/project",
        "standard",
        "pwd; touch new; ls ~/src; echo x >../planted; true",
    );
    assert_eq!(
        seen.stdout,
        format!("{}\nproject\n", person.project),
        "{seen}"
    );
    assert!(!person.does("ls ~/src ~/src/project").contains("planted"));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_says_that_gpg_does_not_sign_inside() {
    let _docker = Docker::connect();
    let person = Account::new();
    let said = "your git signs commits by gpg";
    let config = "[commit]\n\tgpgsign = true\n";
    person.file(".gitconfig", config);
    // Not where there is no repository.
    let seen = person.wraps(&[], "true");
    assert!(!seen.stderr.contains(said), "{seen}");
    person.does("git init -q ~/src/project");
    for seen in [person.wraps(&[], "true"), person.wrap(&[], "true")] {
        assert!(seen.stderr.contains(said), "{seen}");
        assert!(seen.stderr.contains("--ssh-agent"), "{seen}");
    }
    // Landlock's walls allow no agent.
    let seen = person.wraps(&["--walls", "landlock"], "true");
    assert!(
        seen.stderr.contains(said) && !seen.stderr.contains("--ssh-agent"),
        "{seen}"
    );
    // Nor where it was asked to be quiet, or an SSH key signs.
    let seen = person.wraps(&["--quiet"], "true");
    assert!(!seen.stderr.contains(said), "{seen}");
    person.file(".gitconfig", &format!("{config}[gpg]\n\tformat = ssh\n"));
    let seen = person.wraps(&[], "true");
    assert!(!seen.stderr.contains(said), "{seen}");
    // The repository's own settings count too, by words of their own: a run may have written them. No key that they name is
    // suggested, and nothing for other repositories.
    person.file(".gitconfig", "");
    person.does("git -C ~/src/project config commit.gpgsign true");
    let seen = person.wraps(&["--unprotect", ".git/config"], "true");
    let own = "this repository's .git/config makes git sign by gpg";
    assert!(
        seen.stderr.contains(own) && !seen.stderr.contains("--global"),
        "{seen}"
    );
    let own = "git -C ~/src/project config gpg.format ssh; git -C ~/src/project config user.signingkey ~/.ssh/other.pub";
    person.does(own);
    for seen in [person.wraps(&[], "true"), person.wrap(&[], "true")] {
        let cure = "this repository's .git/config makes git sign, and this run's git does not: if you want that, --ssh-agent=KEY";
        assert!(seen.stderr.contains(cure), "{seen}");
        assert!(!seen.stderr.contains(said), "{seen}");
    }
}
