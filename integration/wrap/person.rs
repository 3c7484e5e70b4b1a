//! The command of root's `wrap` runs as the user who called, with their groups, home and PATH.

use std::collections::BTreeSet;
use std::process::Command;

use super::account::Account;
use crate::command::finish;
use crate::direct::{Scratch, program};
use crate::docker::Docker;

const POLICIES: [&str; 3] = ["strict", "standard", "permissive"];

/// The numbers that `id -G` prints.
fn numbers(text: &str) -> BTreeSet<u32> {
    text.split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_runs_as_the_person_behind_sudo_with_their_groups_and_no_others() {
    let _docker = Docker::connect();
    let person = Account::new();
    // In a directory that wrap makes visible.
    let company = format!("/opt/{}", person.name);
    std::fs::create_dir(&company).unwrap();
    for (name, group) in [("roots", 0), ("teams", person.team)] {
        use std::os::unix::fs::PermissionsExt;
        let path = format!("{company}/{name}");
        std::fs::write(&path, name).unwrap();
        std::os::unix::fs::chown(&path, Some(0), Some(group)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    let script = format!("id -u; id -g; id -G; cat {company}/*");
    for policy in POLICIES {
        let seen = person.wrap_by(policy, &script).stdout;
        let mut lines = seen.lines();
        assert_eq!(
            lines.next(),
            Some(person.uid.to_string().as_str()),
            "{seen}"
        );
        assert_eq!(
            lines.next(),
            Some(person.gid.to_string().as_str()),
            "{seen}"
        );
        let expected = BTreeSet::from([person.gid, person.team]);
        assert_eq!(numbers(lines.next().unwrap()), expected, "{policy}: {seen}");
        assert_eq!(lines.next(), Some("teams"), "{policy}: {seen}");
        assert_eq!(lines.next(), None, "{policy}: {seen}");
    }
    std::fs::remove_dir_all(company).unwrap();
    // The control: this process has root's group, and without walls the user has the same two.
    let own = numbers(&crate::command::run("id", &["-G"]).ok());
    assert!(own.contains(&0), "{own:?}");
    assert_eq!(
        numbers(&person.does("id -G")),
        BTreeSet::from([person.gid, person.team])
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_gives_the_person_a_home_that_they_own_and_the_path_of_their_login() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.program(".local/bin/mine", "#!/bin/sh\necho mine\n");
    let (name, home) = (&person.name, &person.home);
    let script = "echo $HOME:$USER:$LOGNAME:$SHELL; stat -c '%U %a' ~; stat -c %U ~/src; \
                  mkdir -p ~/.cache/x ~/src/other && touch ~/x; mine; touch new";
    for policy in POLICIES {
        let seen = person.wrap_by(policy, script).ok();
        let mode = if policy == "permissive" {
            person.does("stat -c %a ~")
        } else {
            "700\n".to_owned()
        };
        let expected = format!("{home}:{name}:{name}:/bin/bash\n{name} {mode}{name}\nmine\n");
        assert_eq!(seen, expected, "{policy}");
        let left = person.does("stat -c %U src/project/new; ls -A ~; ls ~/src; rm src/project/new");
        // Only the project is written.
        assert!(left.starts_with(&format!("{name}\n")), "{policy}: {left}");
        assert!(
            !left.contains("cache") && !left.contains("other"),
            "{policy}: {left}"
        );
    }
    let asked = person
        .wrap(&["--env", "PATH=/usr/bin:/bin"], "echo $PATH")
        .ok();
    assert_eq!(asked, "/usr/bin:/bin\n");
    // A PATH that sudo was told to keep stays.
    let kept = format!("{home}/bin:/usr/bin:/bin");
    let command = ["wrap", "--", "bash", "-c", "echo $PATH"];
    let mut sudo = person.sudo(&command);
    sudo.env("PATH", &kept);
    assert_eq!(finish(&mut sudo).ok(), format!("{kept}\n"));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_knows_the_person_behind_doas_pkexec_and_a_missing_group() {
    let _docker = Docker::connect();
    let person = Account::new();
    let uid = person.uid.to_string();
    let expected = format!("{uid} {}\n", person.gid);
    let called = |variables: &[(&str, &str)]| {
        let mut command = Command::new(program());
        command.args(["wrap", "--", "bash", "-c", "echo $(id -u) $(id -g)"]);
        command.envs(variables.iter().copied());
        command.current_dir(&person.project);
        finish(&mut command)
    };
    for variables in [
        &[("SUDO_UID", uid.as_str())][..],
        &[("SUDO_UID", uid.as_str()), ("SUDO_GID", "0")],
        &[("DOAS_USER", person.name.as_str())],
        &[("PKEXEC_UID", uid.as_str())],
        &[
            ("SUDO_UID", uid.as_str()),
            ("DOAS_USER", person.name.as_str()),
        ],
    ] {
        assert_eq!(called(variables).ok(), expected, "{variables:?}");
    }
    // Root itself, and root through sudo, stays root.
    assert_eq!(called(&[]).ok(), "0 0\n");
    assert_eq!(
        called(&[("SUDO_UID", "0"), ("SUDO_GID", "0")]).ok(),
        "0 0\n"
    );
    for (variables, word) in [
        (
            &[("SUDO_UID", "4000111")][..],
            "SUDO_UID=4000111 is not a user",
        ),
        (&[("SUDO_UID", "alice")], "SUDO_UID=alice is not a user"),
        (
            &[("DOAS_USER", "no-such-person")],
            "is not a user of this node",
        ),
        (
            &[("DOAS_USER", "daemon"), ("SUDO_UID", &uid)],
            "different users",
        ),
    ] {
        let refused = called(variables).failed();
        assert!(refused.contains(word), "{variables:?}: {refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_refuses_a_workspace_that_is_not_the_persons() {
    let _docker = Docker::connect();
    let (person, other) = (Account::new(), Account::new());
    other.does("mkdir ~/private; echo secret >~/private/notes; chmod 700 ~");
    let private = format!("{}/private", other.home);
    for workspace in [private.as_str(), "/root/.cache"] {
        let refused = person
            .wrap(&["--workspace", workspace], "cat notes")
            .failed();
        assert!(refused.contains(workspace), "{refused}");
        assert!(refused.contains(&person.name), "{refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
    for workspace in [
        person.home.as_str(),
        "/home",
        "/",
        "/usr/lib",
        "/etc",
        "/none/such",
        "/etc/passwd",
    ] {
        let refused = person.wrap(&["--workspace", workspace], "true").failed();
        assert!(refused.contains(workspace), "{refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
    // The control: without the walls of their home, world-readable files can be read.
    other.does("chmod 755 ~");
    person.wrap(&["--workspace", &private], "cat notes").ok();
}

/// No policy shows other users' files or the rest of the node.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_shows_neither_other_users_files_nor_the_rest_of_the_node() {
    let _docker = Docker::connect();
    let (person, other) = (Account::new(), Account::new());
    let scratch = Scratch::new();
    let notes = other.file("notes.txt", "the-secret-of-the-node");
    let elsewhere = scratch.file("data", "the-secret-of-the-node");
    let own = person.file("notes.txt", "own notes");
    let key = person.file(".ssh/id_ed25519", "the-secret-of-the-node");
    let script = format!(
        "cat {notes} {elsewhere} {key} /etc/hostname; ls /srv /home; touch ~/new /etc/new; cat {own}"
    );
    for policy in POLICIES {
        // Also as root, whom file modes do not stop.
        let mut command = Command::new(program());
        command.args(["wrap", "--policy", policy, "--", "bash", "-c", &script]);
        command
            .current_dir(&person.project)
            .env("HOME", &person.home);
        let root = finish(&mut command);
        let sudo = person.wrap_by(policy, &script);
        for seen in [root, sudo] {
            let all = seen.to_string();
            assert!(!all.contains("the-secret-of-the-node"), "{policy}: {all}");
            assert!(
                !all.contains(&other.name) || all.contains(&notes),
                "{policy}: {all}"
            );
            assert!(!seen.stdout.contains(&other.name), "{policy}: {all}");
            assert!(!seen.stdout.contains("direct-"), "{policy}: {all}");
            // `permissive` adds the whole home to the others.
            assert_eq!(
                seen.stdout.contains("own notes"),
                policy == "permissive",
                "{policy}: {all}"
            );
        }
        assert!(!std::path::Path::new(&person.home).join("new").exists());
    }
    // The control: without walls root can read all of it.
    let plain = crate::command::run("cat", &[&notes, &elsewhere, &key]).ok();
    assert_eq!(plain.matches("the-secret-of-the-node").count(), 3);
}

/// Dotfile managers replace it by a link. Credentials behind the link are hidden.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_linked_directory_of_settings_hides_no_credential_from_the_wall() {
    let _docker = Docker::connect();
    let person = Account::new();
    let settings = format!("{}/dotfiles/config", person.home);
    let secret = person.file("dotfiles/config/gcloud/credentials.db", "the-secret");
    person.file("dotfiles/config/tool/settings", "plain-word");
    person.file("dotfiles/netrc", "the-secret");
    let link = format!("{}/.config", person.home);
    person.does("ln -s dotfiles/config .config; ln -s dotfiles/netrc .netrc; ln -s nowhere .aws");
    let script = format!(
        "cat {link}/gcloud/credentials.db {secret} ~/.netrc ~/dotfiles/netrc; mv ~/.config ~/moved; cat ~/moved/gcloud/*; \
         mv ~/dotfiles/config/gcloud ~/there; cat ~/there/*; cat {settings}/tool/settings ~/moved/tool/settings"
    );
    let command = [
        "wrap",
        "--policy",
        "permissive",
        "--",
        "bash",
        "-c",
        &script,
    ];
    for seen in [
        person.wrap_by("permissive", &script),
        person.agentbox(&command),
    ] {
        assert_eq!(seen.stdout, "plain-wordplain-word", "{seen}");
    }
    // The controls: without walls each can be read; a directory in its place is hidden as well.
    assert!(
        person
            .tries(&script.replace("mv ", "true "))
            .stdout
            .matches("the-secret")
            .count()
            >= 4
    );
    person.does("rm .config && mv dotfiles/config .config");
    let seen = person.wrap_by(
        "permissive",
        &format!("cat {link}/gcloud/credentials.db; echo began"),
    );
    assert!(
        seen.stdout.contains("began") && !seen.stdout.contains("the-secret"),
        "{seen}"
    );
}
