//! N57: `wrap --ask --ssh-agent`. The user confirms each signature at the terminal; without a terminal or an answer nothing
//! signs, and the log says why.

use std::time::Duration;

use super::account::Account;
use super::ask::{Way, start_after};
use super::shell::Shell;
use super::ssh_agent::{Agent, python, sign};
use crate::docker::Docker;

/// Signs data for the purpose in each line that it reads, with the key beside it.
const SIGNS: &str = "echo hello >m; echo rea\"\"dy; while read -r what key; do rm -f m.sig; \
    ssh-keygen -q -Y sign -n $what -f $key.pub m 2>/dev/null && echo \"signed $what.\" || echo \"failed $what.\"; done";

/// Waits for a question, and until typed keys count.
#[track_caller]
fn question(shell: &mut Shell, line: &str) -> String {
    let shown = shell.wait_for(&format!("  {line} > "));
    std::thread::sleep(Duration::from_millis(1300));
    shown
}

fn begin(person: &Account, agent: &Agent<'_>, way: Way, options: &str) -> Shell {
    let before = format!("export SSH_AUTH_SOCK={}", agent.socket);
    let options = format!("--ask --ssh-agent=listed@home {options}");
    start_after(person, way, &before, (&options, SIGNS))
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_the_user_confirms_each_signature_at_the_terminal() {
    let _docker = Docker::connect();
    for way in [Way::Sudo, Way::Alone] {
        let person = Account::new();
        let agent = Agent::new(&person);
        let key = agent.fingerprint("listed");
        let mut shell = begin(&person, &agent, way, "");
        for (answer, result) in [("once", "signed"), ("no", "failed"), ("o", "signed")] {
            shell.line("git listed");
            let shown = question(&mut shell, "sign for \"git\"");
            let named = format!("SSH key listed@home ({key}), of data for \"git\"");
            assert!(shown.contains(&named), "{way:?}: {shown:?}");
            // Another word is asked again, and another answer's word is none.
            shell.line("project");
            shell.wait_for("once, run, no or quiet: sign for \"git\" > ");
            shell.line(answer);
            shell.wait_for(&format!("{result} git."));
        }
        // The rest of the run, for this purpose alone.
        shell.line("git listed");
        question(&mut shell, "sign for \"git\"");
        shell.line("run");
        shell.wait_for("signed git.");
        shell.line("git listed");
        let shown = shell.wait_for("signed git.");
        assert!(!shown.contains("agentbox:"), "{shown:?}");
        shell.line("file listed");
        question(&mut shell, "sign for \"file\"");
        // An interrupt means no.
        shell.keys("\u{3}");
        shell.wait_for("failed file.");
        shell.line("file listed");
        question(&mut shell, "sign for \"file\"");
        shell.line("quiet");
        shell.wait_for("nothing else signs in this run");
        shell.wait_for("failed file.");
        // After "quiet" nothing signs, also what was allowed.
        shell.line("git listed");
        let shown = shell.wait_for("failed git.");
        assert!(!shown.contains("Sign?"), "{shown:?}");
        shell.keys("\u{4}");
        shell.wait_for("<prompt>");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_nothing_signs_under_ask_without_a_terminal_or_an_answer() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let option = "--ssh-agent=listed@home";
    // The control: without --ask the key signs.
    for (by, said) in agent.wraps(&[option], &sign("listed")) {
        assert_eq!(said.ok(), "1\n", "{by}");
    }
    let script = python(
        r#"
stream = connect()
print(ask(stream, message("listed", b"git"))[:1].hex(), ask(stream, login("listed", b"git"))[:1].hex())
"#,
    );
    let name = ["--ask", option, "--name", "unasked"];
    for (by, said) in agent.wraps(&name, &script) {
        assert_eq!(said.stdout, "05 05\n", "{by}: {said}");
        let told = said
            .stderr
            .matches("--ask could not ask: run it in a terminal")
            .count();
        assert_eq!(told, 2, "{by}: {said}");
    }
    let log = person.does(&format!(
        "{} audit --json unasked",
        crate::direct::program()
    ));
    assert!(
        log.contains("not-asked") && log.contains("there is no terminal"),
        "{log}"
    );
    let dry = ["--ask", option, "--dry-run"];
    for (by, said) in agent.wraps(&dry, "true") {
        let said = said.ok();
        assert!(
            said.contains("each confirmed by you at the terminal and logged"),
            "{by}: {said}"
        );
    }
    // No answer in time, and one that comes too late.
    let mut shell = begin(&person, &agent, Way::Alone, "--set network.ask-seconds=3");
    shell.line("git listed");
    question(&mut shell, "sign for \"git\"");
    shell.wait_for("refused, no answer in time");
    shell.line("once");
    shell.wait_for("failed git.");
    shell.keys("\u{4}");
    shell.keys("\u{4}");
    shell.wait_for("<prompt>");
}

/// The program chooses names, and how often it asks.
#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_a_program_neither_answers_nor_floods_the_question() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let flood = python(
        r#"
import threading, time
print("rea" + "dy", flush=True)
input()
begin = time.time()
said = []
def one(purpose):
    stream = connect()
    for _ in range(5):
        said.append(ask(stream, message("listed", purpose))[:1].hex())
threads = [threading.Thread(target=one, args=(b'x" > once\' \xe2\x80\x94' + bytes([65 + i]),)) for i in range(8)]
[thread.start() for thread in threads]
# What it prints, and keys that it would like to be typed, are no answer.
for _ in range(30):
    print("once\r\nonce\r", flush=True)
    time.sleep(0.1)
time.sleep(5)
print("signed", said.count("0e"), "of", len(said), "fl" + "ood.", flush=True)
import os
os._exit(0)
"#,
    );
    let script = person.program(
        "src/project/flood.sh",
        &format!(
            "#!/bin/bash\nexec {}",
            flood.replacen("python3 - <<'END'", "python3 /dev/fd/3 3<<'END'", 1)
        ),
    );
    let _made = script;
    let before = format!("export SSH_AUTH_SOCK={}", agent.socket);
    let options = "--ask --ssh-agent=listed@home";
    let mut shell = start_after(&person, Way::Alone, &before, (options, "./flood.sh"));
    shell.line("go");
    let shown = shell.wait_for("Sign?");
    // A quote of the program's does not end the quotes.
    assert!(shown.contains("for \"x\\\" > once"), "{shown:?}");
    std::thread::sleep(Duration::from_millis(1300));
    shell.line("no");
    let shown = shell.wait_for("flood.");
    assert!(shown.contains("signed 0 of"), "{shown:?}");
    // The pause after a refusal doubles: few questions in eight seconds.
    let questions = shown.matches("Sign?").count();
    assert!(questions <= 3, "{questions}: {shown:?}");
}
