//! Settings files and `agentbox trust`: which ones count, who decides, and that the command cannot.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use super::account::Account;
use super::shell::Shell;
use crate::command::{Finished, finish};
use crate::direct::{Scratch, program};
use crate::docker::Docker;

impl Account {
    /// Runs `sudo agentbox WORDS...` in the project.
    fn by_sudo(&self, words: &[&str]) -> Finished {
        finish(&mut self.sudo(words))
    }

    /// The output of `wrap --dry-run` with these options.
    fn plan(&self, options: &[&str]) -> Finished {
        self.by_sudo(&[&["wrap", "--dry-run"], options, &["--", "true"]].concat())
    }

    fn own_settings(&self, text: &str) -> String {
        self.file(".config/agentbox/config.toml", text)
    }

    fn projects_settings(&self, text: &str) -> String {
        self.file("src/project/.agentbox.toml", text)
    }
}

/// A field's origin in the output. Fields with one origin have one line.
fn origin(said: &str, field: &str) -> String {
    let lines = said.lines().filter_map(|line| line.strip_prefix("  "));
    let mut origins = lines.filter_map(|line| line.split_once(": "));
    let found = origins.find(|(fields, _)| fields.split(", ").any(|one| one == field));
    found
        .unwrap_or_else(|| panic!("{field}: {said}"))
        .1
        .to_owned()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_of_the_person_lie_below_the_projects_and_the_command_line() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("data/table", "a table");
    let own = person.own_settings(
        "policy = \"strict\"\nallow = [\"mine.test\"]\nread = [\"~/data\"]\nenv = [\"WHO=mine\", \"BOTH=mine\"]\n\
         [set]\nnetwork.upload = \"1MiB\"\nnetwork.hosts = 7\n",
    );
    let said = person.plan(&[]).ok();
    assert!(
        said.contains("policy 'strict', chosen by setting policy of"),
        "{said}"
    );
    assert_eq!(
        origin(&said, "network.allow"),
        format!("setting allow of {own}")
    );
    let line = format!("{own:?} shows, read-only: \"{}/data\"", person.home);
    assert!(said.contains(&line), "{said}");
    let project = person.projects_settings(
        "policy = \"standard\"\nallow = [\"project.test\"]\nhide = [\"hidden\"]\nenv = [\"BOTH=project\"]\n[set]\nnetwork.upload = \"2MiB\"\n",
    );
    person.file("src/project/hidden", "secret");
    person.by_sudo(&["trust", "--yes"]).ok();
    let said = person
        .plan(&["--allow", "line.test", "--set", "network.hosts=9"])
        .ok();
    assert!(
        said.contains("policy 'standard', chosen by setting policy of"),
        "{said}"
    );
    assert!(said.contains("line.test mine.test project.test"), "{said}");
    assert_eq!(
        origin(&said, "network.upload"),
        format!("setting set.network.upload of {project}")
    );
    assert_eq!(origin(&said, "network.hosts"), "option --set network.hosts");
    let said = person.plan(&["--policy", "permissive"]).ok();
    assert!(
        said.contains("policy 'permissive', chosen by --policy"),
        "{said}"
    );
    // They take effect: what the command sees, with sudo and without.
    let script = "echo $WHO $BOTH $LINE; cat ~/data/table; echo \" [$(cat hidden)]\"";
    let options = [
        "--set",
        "network.mode=none",
        "--set",
        "network.allow=",
        "-e",
        "LINE=line",
    ];
    for seen in [
        person.wrap(&options, script),
        person.wraps(&options, script),
    ] {
        assert_eq!(seen.stdout, "mine project line\na table []\n", "{seen}");
    }
    // The node's ceiling limits both files.
    person.own_settings("[set]\nfilesystem.scratch = \"64GiB\"\n");
    let said = person.plan(&[]).failed();
    assert!(
        said.contains("exceeds the ceiling") && said.contains("setting set.filesystem.scratch of"),
        "{said}"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_of_a_project_count_as_they_were_trusted_and_no_further() {
    let _docker = Docker::connect();
    let person = Account::new();
    let file = person.projects_settings("allow = [\"project.test\"]\n");
    let counts = |seen: &Finished| {
        assert_eq!(seen.code, 0, "{seen}");
        let notices = seen
            .stderr
            .lines()
            .filter(|line| line.contains(".agentbox.toml"))
            .count();
        let counts = seen.stdout.contains("project.test");
        assert_eq!(notices, usize::from(!counts), "{seen}");
        counts
    };
    let untrusted = person.plan(&[]);
    assert!(!counts(&untrusted), "{untrusted}");
    assert!(
        untrusted.stderr.contains("is not trusted") && untrusted.stderr.contains("agentbox trust")
    );
    let quiet = person.agentbox(&["wrap", "--quiet", "--dry-run", "--", "true"]);
    assert_eq!(quiet.code, 0, "{quiet}");
    assert!(!quiet.stderr.contains("is not trusted"), "{quiet}");
    // Without a terminal there is no consent, and a pipe is not a terminal.
    let said = person.by_sudo(&["trust"]).failed();
    assert!(said.contains("--yes"), "{said}");
    assert!(!counts(&person.plan(&[])));
    let shown = person.by_sudo(&["trust", "--yes"]).ok();
    assert!(
        shown.contains("allow = [\"project.test\"]") && shown.contains("lets be reached"),
        "{shown}"
    );
    assert!(counts(&person.plan(&[])));
    // The same user without sudo, with Landlock, and below the top.
    assert!(counts(&person.agentbox(&[
        "wrap",
        "--dry-run",
        "--",
        "true"
    ])));
    assert!(counts(
        &person.agentbox(&["explain", "--walls", "landlock"])
    ));
    let stored = person.does("cd ~/.local/state/agentbox && stat -c '%a %U' . trusted trusted/*");
    let name = &person.name;
    assert_eq!(stored, format!("700 {name}\n700 {name}\n600 {name}\n"));
    // This makes no other user trust it, and no other project trusted.
    let said = finish(&mut person.sudo(&["explain"])).ok();
    assert!(said.contains("project.test"));
    let mut other = person.sudo(&["explain"]);
    other
        .env_remove("SUDO_UID")
        .env_remove("SUDO_GID")
        .env_remove("SUDO_USER");
    assert!(!counts(&finish(&mut other)));
    person.file("src/other/.agentbox.toml", "allow = [\"project.test\"]\n");
    let elsewhere = format!("{}/src/other", person.home);
    assert!(!counts(&person.plan(&["--workspace", &elsewhere])));
    // One changed byte, then changed back.
    person.projects_settings("allow = [\"project.test\"] \n");
    let changed = person.plan(&[]).failed();
    assert!(
        changed.contains("changed since you trusted it"),
        "{changed}"
    );
    let listed = person.by_sudo(&["trust", "--list"]).ok();
    assert_eq!(
        listed,
        format!(
            "{file}  changed, or a file that it names did: nothing runs there until you review it\n"
        )
    );
    person.projects_settings("allow = [\"project.test\"]\n");
    assert!(counts(&person.plan(&[])));
    person.by_sudo(&["trust", "--remove"]).ok();
    assert!(!counts(&person.plan(&[])));
    assert_eq!(person.by_sudo(&["trust", "--list"]).ok(), "");
    // Control characters are shown as text, and a file that cannot be parsed is not trusted.
    person.projects_settings("# \u{202e}nothing here\n");
    let shown = person.by_sudo(&["trust", "--yes"]).ok();
    assert!(
        !shown.contains('\u{202e}') && shown.contains("\\u{202e}"),
        "{shown:?}"
    );
    person.projects_settings("# \u{1b}[2Jnothing here\n");
    let said = person.by_sudo(&["trust", "--yes"]);
    assert!(
        said.code != 0 && !said.to_string().contains('\u{1b}'),
        "{said}"
    );
    person.projects_settings("alow = [\"project.test\"]\n");
    let said = person.by_sudo(&["trust", "--yes"]).failed();
    assert!(said.contains("unknown field `alow`"), "{said}");
}

/// The store counts only if no other user can write it. A run without what may be trusted might lack walls: it does not begin.
#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_are_not_trusted_by_another_users_entry() {
    let _docker = Docker::connect();
    let (person, stranger) = (Account::new(), Account::new());
    person.projects_settings("allow = [\"project.test\"]\n");
    person.by_sudo(&["trust", "--yes"]).ok();
    let store = format!("{}/.local/state/agentbox/trusted", person.home);
    let entry = std::fs::read_dir(&store)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let counts = || person.plan(&[]).ok().contains("project.test");
    let is_refused = |path: &Path| {
        let said = person.plan(&[]).failed();
        assert!(said.contains("may be trusted, but "), "{path:?}: {said}");
    };
    assert!(counts());
    for path in [Path::new(&store), &entry] {
        let mode = std::fs::metadata(path).unwrap().permissions();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode.mode() | 0o022)).unwrap();
        is_refused(path);
        std::fs::set_permissions(path, mode).unwrap();
        chown(path, Some(stranger.uid), None).unwrap();
        is_refused(path);
        chown(path, Some(person.uid), None).unwrap();
    }
    assert!(counts());
    // An entry of another path does not count for this one.
    let text = std::fs::read_to_string(&entry).unwrap();
    std::fs::write(&entry, text.replace("/src/project/", "/src/other/")).unwrap();
    assert!(!counts());
}

/// Each way for a program to change a file; `$1` is the file.
const ATTACKS: &str = r#"
f=.agentbox.toml
tries() { name=$1; shift; if "$@" 2>/dev/null; then echo "$name done"; else echo "$name refused"; fi; }
tries append sh -c 'echo x >>.agentbox.toml'
tries truncate truncate -s 0 $f
tries mode chmod 600 $f
tries times touch $f
echo new >other
tries replace mv -f other $f
tries away mv $f away
tries exchange python3 -c 'import ctypes, os, sys
c = ctypes.CDLL(None); open("third", "w").close()
sys.exit(c.syscall(316, -100, b"third", -100, b".agentbox.toml", 2))'
tries remove rm -f $f
tries link ln $f linked
tries mount mount --bind other $f
tries unmount umount $f
tries directory mv ../project ../moved
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_of_a_project_are_not_written_replaced_or_moved_from_inside() {
    let _docker = Docker::connect();
    let person = Account::new();
    let text = "allow = [\"project.test\"]\n";
    let file = person.projects_settings(text);
    let words = ["wrap", "--", "bash", "-c", ATTACKS];
    for trusted in [false, true] {
        if trusted {
            person.by_sudo(&["trust", "--yes"]).ok();
        }
        for seen in [person.by_sudo(&words), person.agentbox(&words)] {
            let seen = seen.ok();
            assert_eq!(seen.lines().count(), 12, "{seen}");
            assert!(
                seen.lines().all(|line| line.ends_with(" refused")),
                "{seen}"
            );
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }
    // Also by root inside, who owns all of it.
    chown(&file, Some(0), Some(0)).unwrap();
    let mut root = person.sudo(&words);
    root.env_remove("SUDO_UID")
        .env_remove("SUDO_GID")
        .env_remove("SUDO_USER");
    let seen = finish(&mut root).ok();
    assert!(
        seen.lines().all(|line| line.ends_with(" refused")),
        "{seen}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    chown(&file, Some(person.uid), Some(person.gid)).unwrap();
    // The control: without walls each works, except mounts, which need a capability, and files that are gone.
    let seen = person.does(&format!("cd src/project; {ATTACKS}"));
    for name in [
        "append",
        "truncate",
        "mode",
        "times",
        "replace",
        "away",
        "directory",
    ] {
        assert!(seen.contains(&format!("{name} done")), "{name}: {seen}");
    }
}

/// Landlock rules grant a directory as a whole, and a missing file cannot have a mount. So settings that the command
/// writes do not count.
#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_that_the_command_writes_do_not_count() {
    let _docker = Docker::connect();
    let person = Account::new();
    let write = "echo 'allow = [\"project.test\"]' >.agentbox.toml && echo written";
    let does_not_count = || {
        let seen = person.agentbox(&["wrap", "--dry-run", "--", "true"]);
        assert!(seen.stderr.contains("the run goes on without it"), "{seen}");
        assert!(
            seen.code == 0 && !seen.stdout.contains("project.test"),
            "{seen}"
        );
    };
    let seen = person.wraps(&["--walls", "landlock"], write);
    assert_eq!(seen.stdout, "written\n", "{seen}");
    does_not_count();
    person.does("rm src/project/.agentbox.toml");
    assert_eq!(person.wraps(&[], write).stdout, "written\n");
    does_not_count();
    // Nor do they replace trusted settings. Then no run starts, since those may have set walls.
    person.projects_settings("quiet = true\n");
    person.agentbox(&["trust", "--yes"]).ok();
    assert_eq!(
        person.wraps(&["--walls", "landlock"], write).stdout,
        "written\n"
    );
    let stopped = || {
        let seen = person.agentbox(&["wrap", "--", "echo", "ran"]);
        assert!(!seen.stdout.contains("ran"), "{seen}");
        seen.failed()
    };
    assert!(stopped().contains("changed since you trusted it"));
    person.wraps(
        &["--walls", "landlock", "--workspace", &person.home],
        "true",
    );
    person.does("rm src/project/.agentbox.toml");
    assert!(stopped().contains("are gone"));
    person.projects_settings("allow = [\"project.test\"]\n");
    // The control: trusted by the user, the same content counts.
    person.agentbox(&["trust", "--yes"]).ok();
    let seen = person.agentbox(&["wrap", "--dry-run", "--", "true"]).ok();
    assert!(seen.contains("project.test"), "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_of_the_person_are_theirs_alone_or_nothing_runs() {
    let _docker = Docker::connect();
    let (person, stranger) = (Account::new(), Account::new());
    let file = person.own_settings("allow = [\"mine.test\"]\n");
    person.plan(&[]).ok();
    let refused = |word: &str| {
        for seen in [
            person.plan(&[]),
            person.plan(&["--walls", "landlock"]),
            person.agentbox(&["wrap", "--dry-run", "--", "true"]),
        ] {
            let said = seen.failed();
            assert!(
                said.contains(word) && said.contains("config.toml"),
                "{word}: {said}"
            );
        }
    };
    chown(&file, Some(stranger.uid), None).unwrap();
    refused("belongs to user");
    chown(&file, Some(person.uid), None).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    refused("chmod go-w");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    for (text, word) in [
        (&b"\xff = 1"[..], "UTF-8"),
        (&[b'#'; 10 << 20], "longer than 64 KiB"),
        (b"alow = []", "unknown field `alow`"),
        (b"\n\nallow = 3", "line 3"),
        (b"read = [\"data\"]", "relative"),
    ] {
        std::fs::write(&file, text).unwrap();
        refused(word);
    }
    person.does("rm ~/.config/agentbox/config.toml; mkfifo ~/.config/agentbox/config.toml");
    refused("not a regular file");
    // A link of the user's leads to their dotfiles, and is judged there.
    person.file("dotfiles/agentbox.toml", "allow = [\"mine.test\"]\n");
    person.does("ln -sf ~/dotfiles/agentbox.toml ~/.config/agentbox/config.toml");
    assert!(person.plan(&[]).ok().contains("mine.test"));
    let theirs = stranger.file("agentbox.toml", "allow = [\"mine.test\"]\n");
    person.does(&format!("ln -sf {theirs} ~/.config/agentbox/config.toml"));
    refused("belongs to user");
}

/// An agent can make anything of a project's file, so no content stops a run.
#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_of_a_project_that_are_no_text_are_told_and_left_out() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("elsewhere.toml", "allow = [\"project.test\"]\n");
    for (make, word) in [
        ("ln -s ~/elsewhere.toml", "is a link"),
        ("mkfifo", "is no file"),
        ("mkdir", "is no file"),
        (
            "head -c 10M /dev/zero | tr '\\0' '#' >",
            "longer than 64 KiB",
        ),
        ("printf '\\377' >", "not UTF-8"),
    ] {
        person.does(&format!(
            "rm -rf src/project/.agentbox.toml; {make} src/project/.agentbox.toml"
        ));
        for seen in [
            person.wrap(&[], "echo ran"),
            person.wraps(&[], "echo ran"),
            person.wraps(&["--walls", "landlock"], "echo ran"),
        ] {
            assert_eq!(seen.stdout, "ran\n", "{make}: {seen}");
            assert!(seen.stderr.contains(word), "{make}: {seen}");
        }
        let said = person.by_sudo(&["trust", "--yes"]).failed();
        assert!(said.contains(word), "{said}");
    }
}

/// A run cannot write files that the next run trusts without asking.
#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_and_what_is_trusted_lie_outside_of_what_is_written() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.does("mkdir -p ~/.config ~/.local/state/agentbox ~/dotfiles/agentbox");
    let state = format!("{}/.local/state", person.home);
    let config = format!("{}/.config", person.home);
    let within = format!("{}/.local/state/agentbox", person.home);
    for options in [
        ["--write", state.as_str()],
        ["--write", within.as_str()],
        ["--workspace", config.as_str()],
    ] {
        for walls in ["namespaces", "landlock"] {
            let seen = person.wraps(&[&options[..], &["--walls", walls]].concat(), "echo ran");
            assert_ne!(seen.code, 0, "{options:?}: {seen}");
            let own = seen.stderr.contains("by which later runs go");
            assert!(
                own || seen.stderr.contains("decides about later runs"),
                "{seen}"
            );
        }
    }
    // Also through a link, and with the XDG variables.
    person.does("rmdir ~/.config; ln -s ~/dotfiles ~/.config");
    let dotfiles = format!("{}/dotfiles", person.home);
    let seen = person.wraps(&["--workspace", &dotfiles], "echo ran");
    assert!(seen.stderr.contains("decides about later runs"), "{seen}");
    let program = program();
    let words = [program.as_str(), "wrap", "--", "echo", "ran"];
    let mut inside = person.alone(&words);
    inside.env("XDG_CONFIG_HOME", format!("{}/xdg", person.project));
    let seen = finish(&mut inside);
    assert!(seen.stderr.contains("decides about later runs"), "{seen}");
    // A link on the way lies in the workspace, or leads to a path that could be made there.
    for way in [
        "mkdir -p ~/realconf ~/dots; ln -s ~/realconf ~/dots/conf; ln -s ~/dots/conf ~/.config",
        "ln -s ~/dots/absent ~/.config",
    ] {
        person.does(&format!("rm ~/.config; {way}"));
        let dots = format!("{}/dots", person.home);
        let seen = person.wraps(&["--workspace", &dots], "echo ran");
        assert!(
            seen.stderr.contains("decides about later runs"),
            "{way}: {seen}"
        );
    }
    person.does("rm ~/.config; ln -s ~/dotfiles ~/.config");
    // Reading them is harmless, and so is a project beside them.
    let read = [
        "--workspace",
        &dotfiles,
        "--set",
        "filesystem.workspace=read-only",
    ];
    assert_eq!(person.wraps(&read, "echo ran").stdout, "ran\n");
    assert_eq!(person.wraps(&[], "echo ran").stdout, "ran\n");
    // XDG_CONFIG_HOME decides if it is set, for a user without sudo.
    person.file("xdg/agentbox/config.toml", "env = [\"WHO=xdg\"]\n");
    let mut outside = person.alone(&[&program, "wrap", "--", "sh", "-c", "echo $WHO"]);
    outside.env("XDG_CONFIG_HOME", format!("{}/xdg", person.home));
    assert_eq!(finish(&mut outside).ok(), "xdg\n");
    let mut sudo = person.sudo(&["wrap", "--", "sh", "-c", "echo [$WHO]"]);
    sudo.env("XDG_CONFIG_HOME", format!("{}/xdg", person.home));
    assert_eq!(finish(&mut sudo).ok(), "[]\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_are_trusted_at_a_terminal_by_a_yes_and_nothing_else() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let project = scratch.dir("home/project");
    scratch.file("home/project/.agentbox.toml", "env = [\"WHO=project\"]\n");
    let (home, program) = (scratch.path("home"), program());
    let mut shell = Shell::new(&project);
    shell.ask(&format!("export HOME={home}"));
    for (answer, who) in [
        ("", "[]"),
        ("n", "[]"),
        ("yes please", "[]"),
        ("y", "[project]"),
    ] {
        shell.line(&format!("{program} trust"));
        let shown = shell.wait_for("[y/N] ");
        assert!(shown.contains("WHO=project"), "{shown}");
        shell.line(answer);
        shell.wait_for("<prompt>");
        let seen = shell.ask(&format!(
            "{program} wrap -- sh -c 'echo [$WHO]' 2>/dev/null"
        ));
        assert_eq!(seen, format!("{who}\n<prompt>"), "{answer:?}");
    }
}

/// Files that trusted settings name are trusted with their shown content, and paths with their shown targets. Each of
/// these once let a command give itself more in the next run.
#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_name_nothing_that_the_command_can_make_another() {
    let _docker = Docker::connect();
    for (settings, before, attack) in [
        (
            "env-file = [\"vars\"]\n",
            "echo PLAIN=1 >vars",
            "rm -f vars; echo SECRET >vars",
        ),
        (
            "policy = \"./mine.toml\"\n",
            "echo 'base = \"strict\"' >mine.toml",
            "rm -f mine.toml; echo 'base = \"permissive\"' >mine.toml",
        ),
        (
            "read = [\"data\"]\n",
            "mkdir data",
            "rmdir data; ln -s ~/Documents data",
        ),
        (
            "write = [\"out\"]\n",
            "mkdir out",
            "rmdir out; ln -s ~/Documents out",
        ),
        (
            "hide = [\"conf/private\"]\n",
            "mkdir -p conf/private; echo key >conf/private/key",
            "mv conf conf2; mkdir -p conf/private",
        ),
    ] {
        let person = Account::new();
        person.does("mkdir ~/Documents; echo diary >~/Documents/diary");
        person.projects_settings(settings);
        person.does(&format!("cd src/project; {before}"));
        let runs = || {
            person.agentbox(&[
                "wrap",
                "--",
                "sh",
                "-c",
                "echo ran; cat data/diary conf2/private/key; env",
            ])
        };
        let shown = person.agentbox(&["trust", "--yes"]).ok();
        assert!(runs().ok().contains("ran"), "{settings}");
        assert!(
            !settings.contains("policy") || shown.contains("base = \"strict\""),
            "{shown}"
        );
        // Inside, named files and paths of `read` cannot be written.
        let written = person.wraps(&[], attack);
        let named = ["policy", "env-file", "read"];
        let is_closed = named.iter().any(|named| settings.starts_with(named));
        assert_eq!(
            written.stderr.contains("Read-only"),
            is_closed,
            "{settings}: {written}"
        );
        let listed = person.agentbox(&["trust", "--list"]).ok();
        // The directories above a hidden path are held.
        assert_eq!(
            listed.contains("as you trusted it"),
            is_closed || settings.starts_with("hide"),
            "{settings}: {listed}"
        );
        // Without that mount, as under Landlock, the next run does not start.
        person.does(&format!(
            "cd src/project; {{ {attack}; }} 2>/dev/null || true"
        ));
        let seen = runs();
        assert!(!seen.stdout.contains("ran"), "{settings}: {seen}");
        assert!(seen.failed().contains("agentbox trust"), "{settings}");
        person.agentbox(&["trust", "--remove"]).ok();
        let seen = runs();
        assert!(seen.stdout.contains("ran"), "{settings}: {seen}");
        assert!(!seen.stdout.contains("diary"), "{settings}: {seen}");
    }
}

/// Links in paths of the command line, which are in no settings.
#[test]
#[ignore = "needs the rig: hack/test"]
fn what_the_line_names_is_followed_through_no_link_of_the_command() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.does("mkdir ~/Documents; echo diary >~/Documents/diary; echo 'base = \"permissive\"' >~/wide.toml");
    let plant = "ln -s ~/Documents data; ln -s ~/wide.toml mine.toml";
    person.wraps(&[], plant).ok();
    for options in [
        ["--read", "data"],
        ["--write", "data"],
        ["--hide", "data"],
        ["--policy", "./mine.toml"],
    ] {
        for walls in ["namespaces", "landlock"] {
            let options = [&options[..], &["--walls", walls]].concat();
            let seen = person.wraps(&options, "echo ran; cat data/diary");
            assert!(seen.stdout.is_empty(), "{options:?}: {seen}");
            let said = seen.failed();
            assert!(
                said.contains("a command could have made"),
                "{options:?}: {said}"
            );
        }
    }
    // The control: a link that no command could make.
    person.does("ln -s Documents ~/papers");
    let papers = format!("{}/papers", person.home);
    let seen = person
        .wraps(&["--read", &papers], "cat ~/papers/diary")
        .ok();
    assert_eq!(seen, "diary\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn settings_above_a_repository_of_the_commands_making_are_told() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.projects_settings("policy = \"strict\"\n");
    person.does("cd src/project; git init -q .; mkdir sub");
    person.agentbox(&["trust", "--yes"]).ok();
    person.wraps(&[], "cd sub; git init -q .").ok();
    let sub = format!("{}/sub", person.project);
    let seen = person.does(&format!("cd {sub}; {} wrap -- echo ran 2>&1", program()));
    assert!(
        seen.contains("does not hold in") && seen.contains("--workspace"),
        "{seen}"
    );
    // `trust` without a directory is about the workspace that `wrap` would choose there.
    person.does(&format!(
        "echo 'policy = \"strict\"' >{sub}/.agentbox.toml; rm -rf {sub}/.git"
    ));
    let shown = person.does(&format!("cd {sub}; {} trust --yes", program()));
    assert!(shown.contains("src/project/.agentbox.toml says"), "{shown}");
}

/// An error about a path said `--read`, which nobody had typed.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_path_that_a_file_of_settings_has_is_told_with_that_file() {
    let _docker = Docker::connect();
    let person = Account::new();
    for (text, option) in [
        ("read = [\"~/missing\"]\n", "--read"),
        ("write = [\"~/missing\"]\n", "--write"),
        ("env-file = [\"~/missing\"]\n", "open"),
        ("summary = \"~/missing/summary.md\"\n", "--summary"),
    ] {
        let own = person.own_settings(text);
        let said = person.agentbox(&["wrap", "--", "true"]).failed();
        assert!(said.contains(&own) && said.contains(option), "{said}");
    }
    // The control: an option's path is told alone.
    let own = person.own_settings("");
    let typed = ["wrap", "--read", "/none/such", "--", "true"];
    let said = person.agentbox(&typed).failed();
    assert!(said.contains("--read") && !said.contains(&own), "{said}");
    // A rule whose end is past is told before the command starts, once.
    let past = "a.test until 2020-01-01T00:00:00Z";
    let typed = ["wrap", "--allow", past, "--", "true"];
    let seen = person.agentbox(&typed);
    let line = format!("agentbox: rules that have expired: {past}; give a later end");
    assert_eq!(seen.code, 0, "{seen}");
    assert_eq!(seen.stderr.matches(&line).count(), 1, "{seen}");
    let seen = person.agentbox(&[&["wrap", "-q"], &typed[1..]].concat());
    assert!(!seen.stderr.contains("expired"), "{seen}");
}

/// sudo -E and su -m keep another user's HOME.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_says_that_home_is_another_users() {
    let _docker = Docker::connect();
    let person = Account::new();
    let project = person.project.clone();
    let finished = person
        .with(("HOME", "/root"), &project, &[], &["true"])
        .failed();
    assert!(
        finished.contains("cannot be entered: set HOME to your own"),
        "{finished}"
    );
    person
        .with(("HOME", &person.home), &project, &[], &["true"])
        .ok();
}
