//! Runs a test in a process of its own, with its own network, mount and pid namespaces: nothing reaches the machine,
//! and leftover processes die with it.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

/// Set for the copy of this program that runs one test inside.
const INSIDE: &str = "AGENTBOX_TEST_ALONE";

/// Runs `body`, a closure written in the test itself, alone and single-threaded.
pub fn alone<F: FnOnce()>(body: F) {
    if env::var_os(INSIDE).is_some() {
        return in_one_thread(body);
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: making namespaces needs root");
        return;
    }
    // The closure's type is named after the test: `integration::module::test::{{closure}}`.
    let path = std::any::type_name::<F>();
    let name = path.split_once("::").map_or(path, |(_, rest)| rest);
    let name = name.trim_end_matches("::{{closure}}");
    let output = Command::new("timeout")
        .args([
            "--kill-after=5",
            "60",
            "unshare",
            "--net",
            "--mount",
            "--pid",
        ])
        .args(["--fork", "--mount-proc", "--propagation", "private"])
        .arg(env::current_exe().unwrap())
        .args([
            name,
            "--exact",
            "--nocapture",
            "--test-threads=1",
            "--include-ignored",
        ])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    // A name that matches no test would succeed too.
    assert!(said.contains("1 passed"), "{name}: {said}");
    print!("{said}");
}

/// libtest keeps a thread of its own; a forked copy has only the one that called fork.
#[expect(
    unsafe_code,
    reason = "fork; the runtime's code insists on a single thread"
)]
#[expect(clippy::exit, reason = "the copy may not return into the harness")]
fn in_one_thread(body: impl FnOnce()) {
    // SAFETY: libtest's other thread only waits for this one, so it holds no lock that the copy
    // could miss.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let outcome = catch_unwind(AssertUnwindSafe(body));
        std::process::exit(i32::from(outcome.is_err()));
    }
    let child = rustix::process::Pid::from_raw(pid).unwrap();
    let ended = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
    let (_, status) = ended.unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}
