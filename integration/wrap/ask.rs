//! `wrap --ask` at a terminal: what the user is asked, which answers count, and which do not.

use std::time::{Duration, Instant};

use super::account::Account;
use super::shell::Shell;
use crate::direct::program;
use crate::docker::Docker;
use crate::docker::allowlist::{arrived, internet, witness};

/// Reads one host per line, and prints the result of a request to each.
const READS: &str = "echo rea\"\"dy; while read -r host; do curl -sS --noproxy \"*\" --max-time 60 -o /dev/null \
    -w \"%{http_code} $host.\\n\" http://$host/ask || echo \"failed $host.\"; done";

/// How the command starts: by root for the user, or by the user alone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    Sudo,
    Alone,
}

/// A shell in the user's project that runs the script under `wrap`.
pub(super) fn start(person: &Account, way: Way, options: &str, script: &str) -> Shell {
    start_after(person, way, "true", (options, script))
}

/// The same, after another line in the shell.
pub(super) fn start_after(
    person: &Account,
    way: Way,
    before: &str,
    (options, script): (&str, &str),
) -> Shell {
    let mut shell = Shell::new(&person.project);
    shell.ask(before);
    let Account {
        name,
        uid,
        gid,
        home,
        ..
    } = person;
    match way {
        Way::Sudo => {
            shell.ask(&format!(
                "export SUDO_USER={name} SUDO_UID={uid} SUDO_GID={gid}"
            ));
        }
        Way::Alone => {
            shell.line(&format!(
                "exec env -u XDG_RUNTIME_DIR HOME={home} USER={name} setpriv --reuid {uid} --regid {gid} --init-groups bash --norc \
                 --noprofile --noediting -i"
            ));
            shell.wait_for("<prompt>");
        }
    }
    wrap(&mut shell, options, script);
    shell
}

fn wrap(shell: &mut Shell, options: &str, script: &str) {
    let program = program();
    shell.line(&format!(
        "{program} wrap --quiet {options} -- bash -c '{script}'"
    ));
    shell.wait_for("ready\r\n");
}

/// Waits for the question about a host, and until typed keys count.
#[track_caller]
fn question(shell: &mut Shell, host: &str) -> String {
    let shown = shell.wait_for(&format!(" connects to {host}:80, which no rule allows"));
    shell.wait_for(&format!("  {host}:80 > "));
    std::thread::sleep(Duration::from_millis(1300));
    shown
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_ask_lets_through_what_the_person_says_and_nothing_else() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    for way in [Way::Sudo, Way::Alone] {
        let person = Account::new();
        let mut shell = start(&person, way, "--ask", READS);
        // "once" allows one connection.
        for answer in ["once", "o"] {
            shell.line("api.example.test");
            let shown = question(&mut shell, "api.example.test");
            assert!(shown.contains("agentbox: curl (pid "), "{way:?}: {shown:?}");
            shell.line(answer);
            shell.wait_for("api.example.test:80 is allowed once");
            shell.wait_for("200 api.example.test.");
        }
        // "run" and "no" last for the whole run.
        shell.line("api.example.test");
        question(&mut shell, "api.example.test");
        shell.line("r");
        shell.wait_for("200 api.example.test.");
        let before = arrived(&["other.example.test"]);
        shell.line("other.example.test");
        question(&mut shell, "other.example.test");
        // An invalid answer is asked again.
        shell.line("yes");
        shell.wait_for("once, run, project, no or quiet: other.example.test:80 > ");
        shell.line("no");
        shell.wait_for("other.example.test:80 is denied in this run");
        shell.wait_for("403 other.example.test.");
        shell.line("api.example.test");
        shell.line("other.example.test");
        let shown = shell.wait_for("403 other.example.test.");
        assert!(shown.contains("200 api.example.test."), "{shown:?}");
        assert!(!shown.contains("which no rule"), "{shown:?}");
        // An interrupt at the question means no, and the program goes on.
        shell.line("files.example.test");
        question(&mut shell, "files.example.test");
        shell.keys("\u{3}");
        shell.wait_for("403 files.example.test.");
        // After "quiet" there are no more questions.
        shell.line("index.example.test");
        question(&mut shell, "index.example.test");
        shell.line("quiet");
        shell.wait_for("further hosts wait for `agentbox approve`");
        shell.wait_for("403 index.example.test.");
        assert_eq!(arrived(&["other.example.test"]), before, "{way:?}");
        shell.keys("\u{4}");
        shell.wait_for("<prompt>");
        let modes =
            shell.ask("stty -a | tr ' ' '\\n' | grep -xE 'icanon|isig|echo' | sort | xargs");
        assert_eq!(modes, "echo icanon isig\n<prompt>", "{way:?}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_ask_keeps_an_answer_for_the_project_and_for_no_other() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    for way in [Way::Sudo, Way::Alone] {
        let person = Account::new();
        let mut shell = start(&person, way, "--ask", READS);
        shell.line("api.example.test");
        question(&mut shell, "api.example.test");
        shell.line("project");
        shell.wait_for("200 api.example.test.");
        shell.keys("\u{4}");
        shell.wait_for("<prompt>");
        let kept = person.does("stat -c '%U %a %n' ~/.local/state/agentbox/allowed/*.toml");
        let expected = format!("{} 600 {}/", person.name, person.home);
        assert!(kept.starts_with(&expected), "{way:?}: {kept}");
        // The next run needs neither the option nor an answer, and says why.
        wrap(&mut shell, "", READS);
        shell.line("api.example.test");
        let shown = shell.wait_for("200 api.example.test.");
        assert!(!shown.contains("which no rule"), "{shown:?}");
        shell.keys("\u{4}");
        shell.wait_for("<prompt>");
        // A policy without a network reaches none of the kept hosts, unless this command line asks too.
        wrap(&mut shell, "--policy strict", READS);
        shell.line("api.example.test");
        shell.wait_for("failed api.example.test.");
        shell.keys("\u{4}");
        shell.wait_for("<prompt>");
        wrap(&mut shell, "--policy strict --ask", READS);
        shell.line("api.example.test");
        let shown = shell.wait_for("200 api.example.test.");
        assert!(!shown.contains("which no rule"), "{shown:?}");
        shell.keys("\u{4}");
        shell.wait_for("<prompt>");
        let program = program();
        let plan = shell.ask(&format!("{program} wrap --dry-run -- true"));
        assert!(
            plan.contains("lets be reached: \"api.example.test:80\""),
            "{plan}"
        );
        // The command neither reads nor writes the answers, so it cannot decide for its next run.
        let script = "echo rea\"\"dy; cat ~/.local/state/agentbox/allowed/*; echo allow=[] >~/.local/state/agentbox/allowed/x.toml";
        wrap(&mut shell, "", script);
        shell.wait_for("<prompt>");
        assert_eq!(
            person.does("ls ~/.local/state/agentbox/allowed | wc -l"),
            "1\n"
        );
        // Another project asks again.
        person.does("mkdir ~/src/other");
        shell.ask("cd ../other");
        wrap(&mut shell, "--ask", READS);
        shell.line("api.example.test");
        question(&mut shell, "api.example.test");
        shell.line("no");
        shell.wait_for("403 api.example.test.");
        shell.keys("\u{4}");
        shell.wait_for("<prompt>");
        // A file that others can write does not count.
        person.does("chmod g+w ~/.local/state/agentbox/allowed/*.toml");
        shell.ask("cd ../project");
        let refused = shell.ask(&format!("{program} wrap -- true"));
        assert!(refused.contains("chmod go-w it"), "{refused}");
    }
}

/// The program prints what it likes and types what it can, before the question and during it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_ask_is_answered_by_no_program_and_by_no_key_from_before() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    person.does("cp /usr/bin/curl \"$HOME/src/project/\"$'c\\e[2Jrl'");
    let script = "echo rea\"\"dy; read -r go; (sleep 2; printf \"once\\r\\n\"; printf \"once\\r\\n\" >/dev/tty; echo LA\"\"TE) & \
        printf \"\\033]0;\"; ./c*rl -sS --noproxy \"*\" --max-time 60 -o /dev/null -w \"%{http_code} it.\\n\" \
        http://other.example.test/ask; read -t 2 -r rest; echo \"got <$rest>\"";
    let mut shell = start(&person, Way::Sudo, "--ask", script);
    let before = arrived(&["other.example.test"]);
    // The second line is for the program. Keys typed together with the question go nowhere.
    shell.line("go");
    let shown = shell.wait_for(" connects to other.example.test:80, which no rule allows");
    shell.keys("once\nrun\n");
    // An unfinished escape sequence of the program is ended, and its name moves no cursor.
    let begun = shown.rfind("\u{1b}]0;").unwrap();
    let said = &shown[begun + 4..];
    assert!(said.starts_with("\u{18}\u{1b}\\"), "{shown:?}");
    assert!(
        !said.contains("\u{1b}[2J") && said.contains("[2Jrl"),
        "{shown:?}"
    );
    std::thread::sleep(Duration::from_millis(3500));
    shell.line("no");
    let shown = shell.wait_for("403 it.");
    let refused = shown.find("is denied in this run").unwrap();
    assert!(!shown.contains("allowed"), "{shown:?}");
    let late = shown.find("LATE");
    assert!(late.is_none_or(|late| late > refused), "{shown:?}");
    // The program received none of the keys.
    let shown = shell.wait_for("got <");
    let rest = shell.wait_for(">");
    assert_eq!(rest, ">", "{shown:?}");
    assert_eq!(arrived(&["other.example.test"]), before);
}

/// A run whose question finds the user typing for the program, and then in the middle of `word`. Returns how many connections had
/// arrived before it. A busy machine may stop this test for so long that a part of the word comes after a pause, and counts: such
/// a run is no test, and is made anew.
fn typed_evenly(person: &Account, script: &str, word: &str) -> (Shell, usize) {
    for _ in 0..5 {
        let mut shell = start(person, Way::Sudo, "--ask", script);
        let before = arrived(&["other.example.test"]);
        let mut longest = Duration::ZERO;
        let mut type_key = |shell: &mut Shell, key: &str| {
            let last = Instant::now();
            shell.keys(key);
            std::thread::sleep(Duration::from_millis(150));
            longest = longest.max(last.elapsed());
        };
        for _ in 0..400 {
            type_key(&mut shell, "-");
            if shell.shows("other.example.test:80 > ") {
                break;
            }
        }
        for key in word.chars() {
            type_key(&mut shell, &key.to_string());
        }
        if longest < Duration::from_millis(400) {
            return (shell, before);
        }
    }
    panic!("this machine stopped the test in the middle of {word:?}, five times");
}

/// The program connects while the user is typing slowly for it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_ask_takes_no_word_that_was_begun_before_the_question() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    let script = "echo rea\"\"dy; read -rsn 1; curl -sS --noproxy \"*\" --max-time 60 -o /dev/null -w \"%{http_code} it.\\n\" \
        http://other.example.test/ask";
    for word in [
        "hello go once\n",
        "a new one to run\n",
        "help me to find the p\n",
    ] {
        let (mut shell, before) = typed_evenly(&person, script, word);
        // The control: a word counts once the user has paused. The lasting answer needs its whole word.
        std::thread::sleep(Duration::from_millis(1300));
        shell.line("p");
        let shown = shell.wait_for("once, run, project, no or quiet: other.example.test:80 > ");
        assert!(!shown.contains("allowed"), "{word:?}: {shown:?}");
        assert_eq!(arrived(&["other.example.test"]), before, "{word:?}");
        shell.line("once");
        shell.wait_for("200 it.");
        shell.wait_for("<prompt>");
    }
}

/// If two programs read keys, agentbox cannot know which one a key is for.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_ask_does_not_ask_a_user_whose_keys_another_program_reads() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    for way in [Way::Sudo, Way::Alone] {
        let person = Account::new();
        let reads =
            "bash -c 'exec 4</dev/tty; echo rea\"\"ding; cat >/dev/null; sleep 2; echo end'";
        let connects =
            "curl -sS --noproxy '*' --max-time 4 -o /dev/null http://other.example.test/ask; true";
        let wrap = format!("{} wrap --quiet --ask -- bash -c \"{connects}\"", program());
        let mut shell = start(&person, way, "", "echo rea\"\"dy");
        shell.wait_for("<prompt>");
        for other in [reads.to_owned(), wrap.clone()] {
            let shown = shell.ask(&format!("{wrap} | {other}"));
            assert!(
                !shown.contains("which no rule allows"),
                "{way:?} {other}: {shown:?}"
            );
        }
        // The control: programs that read no keys do not prevent it, and neither does a script's only command.
        let beside = match way {
            Way::Sudo => "| tee /dev/null",
            Way::Alone => "",
        };
        shell.line(&format!(
            "sh -c '{}; true' {beside}",
            wrap.replace("'*'", "*")
        ));
        question(&mut shell, "other.example.test");
        shell.line("no");
        shell.wait_for("<prompt>");
    }
}
