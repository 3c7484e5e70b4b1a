//! F-H7: `wrap` at a terminal is a job like any other. Whenever the command is stopped or has ended, the terminal
//! is the user's again.

use std::time::Duration;

use super::shell::Shell;
use crate::command::at_once;
use crate::direct::{Scratch, program};
use crate::docker::Docker;

/// The prefix of the command: nothing, or `wrap`.
fn both() -> [String; 2] {
    [String::new(), format!("{} wrap --", program())]
}

/// Prints which of an ordinary terminal's settings are on.
const COOKED: &str = "stty -a | tr ' ' '\\n' | grep -xE 'icanon|isig|echo' | sort | xargs";

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a6_a_command_is_stopped_and_goes_on_like_any_job() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    for before in both() {
        let mut shell = Shell::new(&scratch.dir("project"));
        let script = "echo rea''dy; read -r line; echo \"got <$line>\"; exit 7";
        shell.line(&format!(
            "{before} bash -c '{}'",
            script.replace("''", "\"\"")
        ));
        shell.wait_for("ready\r\n");
        shell.keys("\u{1a}");
        let shown = shell.wait_for("<prompt>");
        assert!(shown.contains("Stopped"), "{before}: {shown}");
        assert_eq!(shell.ask("echo $?"), "148\n<prompt>", "{before}");
        assert_eq!(shell.ask(COOKED), "echo icanon isig\n<prompt>", "{before}");
        shell.line("fg");
        shell.wait_for("read -r line");
        shell.line("typed");
        let shown = shell.wait_for("<prompt>");
        assert!(shown.contains("got <typed>"), "{before}: {shown}");
        assert_eq!(shell.ask("echo $?"), "7\n<prompt>", "{before}");
        assert_eq!(shell.ask(COOKED), "echo icanon isig\n<prompt>", "{before}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a6_one_interrupt_is_enough_and_reaches_the_whole_group() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    // With a pipe for one of the streams, the terminal's own signals reach `wrap`.
    for streams in ["", "</dev/null", "| cat", "2>/dev/null"] {
        for before in both() {
            let mut shell = Shell::new(&scratch.dir("project"));
            shell.line("set -o pipefail");
            shell.wait_for("<prompt>");
            let script = "sleep 60; echo rc $? >result; exit 9";
            let trap = "trap \"echo trapped >trap\" INT; echo \"rea\"dy; ";
            shell.line(&format!("{before} bash -c '{trap}{script}' {streams}"));
            shell.wait_for("ready\r\n");
            std::thread::sleep(Duration::from_millis(200));
            shell.keys("\u{3}");
            shell.wait_for("<prompt>");
            let read = |name: &str| std::fs::read_to_string(scratch.path(name)).unwrap_or_default();
            assert_eq!(read("project/trap"), "trapped\n", "{before} {streams}");
            assert_eq!(read("project/result"), "rc 130\n", "{before} {streams}");
            for name in ["project/trap", "project/result"] {
                std::fs::remove_file(scratch.path(name)).unwrap();
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a6_a_job_in_the_background_leaves_the_terminal_to_the_shell() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    for streams in ["", "2>/dev/null"] {
        let mut shell = Shell::new(&scratch.dir("project"));
        let wrap = format!("{} wrap --", program());
        shell.line(&format!(
            "{wrap} bash -c 'echo \"rea\"dy; sleep 2; read -r line; echo \"got <$line>\"' {streams} &"
        ));
        shell.wait_for("ready\r\n");
        // Each key goes to the shell.
        for _ in 0..5 {
            assert_eq!(shell.ask(COOKED), "echo icanon isig\n<prompt>");
        }
        shell.line("fg");
        shell.wait_for("bash -c");
        std::thread::sleep(Duration::from_millis(2500));
        shell.line("typed");
        let shown = shell.wait_for("<prompt>");
        assert!(shown.contains("got <typed>"), "{shown}");
    }
}

/// A shell's loop stops if its program ended by SIGINT, and goes on if the program exited with 130.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a6_an_interrupt_ends_a_loop_of_the_shell() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let landlock = format!("{} wrap --quiet --walls landlock --", program());
    for before in both().into_iter().chain([landlock]) {
        let mut shell = Shell::new(&scratch.dir("project"));
        let start = |shell: &mut Shell, script: &str| {
            shell.line(&format!(
                "for n in 1 2; do {before} bash -c '{script}'; echo went\"-\"on; done"
            ));
        };
        let interrupt = |shell: &mut Shell| {
            shell.wait_for("ready\r\n");
            std::thread::sleep(Duration::from_millis(200));
            shell.keys("\u{3}");
        };
        start(&mut shell, "echo \"rea\"dy; exec sleep 60");
        interrupt(&mut shell);
        let shown = shell.wait_for("<prompt>");
        assert!(!shown.contains("went-on"), "{before}: {shown}");
        assert_eq!(shell.ask("echo $?"), "130\n<prompt>", "{before}");
        // The control: a command that handles the signal.
        start(
            &mut shell,
            "trap \"exit 130\" INT; echo \"rea\"dy; sleep 60",
        );
        for _ in 0..2 {
            interrupt(&mut shell);
            shell.wait_for("went-on\r\n");
        }
        shell.wait_for("<prompt>");
    }
}

/// A search that takes longer than a second is one line of the terminal, which is gone before the next output.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_tells_at_a_terminal_how_far_a_long_search_is() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let project = scratch.dir("project");
    for number in 0..200 {
        scratch.dir(&format!("project/{number}"));
    }
    let slowly = format!(
        "strace -qq -o /dev/null -e inject=getdents64:delay_enter=10000 {}",
        program()
    );
    let line = "agentbox: searching \"/";
    let cases = [
        (&slowly, "wrap --dry-run -- true", true),
        (&slowly, "wrap --quiet --dry-run -- true", false),
        (&slowly, "wrap --dry-run -- true 2>&1 | cat", false),
    ];
    let is_told = |&(program, options, said): &(&String, &str, bool)| {
        let mut shell = Shell::new(&project);
        let seen = shell.ask(&format!("{program} {options}"));
        assert!(seen.contains("workspace"), "{options}: {seen}");
        assert_eq!(seen.contains(line), said, "{options}: {seen}");
        if let Some(at) = seen.rfind(line) {
            let (told, rest) = seen[at..].split_once("\u{1b}[K").unwrap();
            // On a busy machine the last line is one of the second look, shortened in the middle.
            let counts = [" entries", " directories"];
            let has_count = counts.iter().any(|count| told.contains(count));
            assert!(has_count && !told.contains('\n'), "{told}");
            assert!(rest.contains("workspace"), "{seen}");
        }
    };
    // Alone: on a busy machine this search is long too.
    is_told(&(&program(), "wrap --dry-run -- true", false));
    at_once(&cases, is_told);
}
