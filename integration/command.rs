//! Runs a program to its end, with a time limit, and keeps its output.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Debug)]
pub struct Finished {
    /// The command line, for messages.
    pub line: String,
    /// The exit code; 128 + N for signal N, as shells say it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// The standard output of a program that succeeded; any other end fails the test.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self}");
        self.stdout
    }

    /// The standard error of a program that failed; success fails the test.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_ne!(self.code, 0, "{self}\nshould have failed");
        self.stderr
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            line,
            code,
            stdout,
            stderr,
        } = self;
        write!(
            f,
            "`{line}` ended with {code}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }
}

/// A program that runs longer than this hangs. A busy machine makes honest ones slow.
pub const HANGS: Duration = Duration::from_secs(180);

/// Fails a test that could not be carried out: neither did an attack get through, nor was it refused. hack/test repeats such a
/// test alone, by this word.
#[track_caller]
pub fn undecided(why: &str) -> ! {
    panic!("undecided: {why}");
}

/// What `look` finds, as soon as it finds it. `Err` is what there is meanwhile, for the message.
#[track_caller]
pub fn awaited<T, S: std::fmt::Display>(what: &str, mut look: impl FnMut() -> Result<T, S>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if start.elapsed() > HANGS => {
                undecided(&format!("{what}: not in {HANGS:?}: {seen}"))
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The same for what is so or not.
#[track_caller]
pub fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    awaited(what, || is_so().then_some(()).ok_or("it is not so"));
}

/// Runs a program to its end. One that hangs fails the test.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Finished {
    finish(Command::new(program).args(arguments))
}

/// Runs `command` to its end. One that hangs fails the test.
pub fn finish(command: &mut Command) -> Finished {
    run_for(HANGS, command)
}

/// Runs `command` to its end. If it outlives `limit`, it is killed and the test fails.
pub fn run_for(limit: Duration, command: &mut Command) -> Finished {
    let line = format!("{command:?}");
    let start = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    let pid = child.id();
    // A separate thread waits, because the pipes must be read meanwhile and the wait needs a limit.
    let waiter = std::thread::spawn(move || child.wait_with_output());
    while !waiter.is_finished() {
        if start.elapsed() > limit {
            // The child is not yet waited for, so the pid is still its own.
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .status();
            undecided(&format!("`{line}` was still running after {limit:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = waiter
        .join()
        .expect("the waiting thread does not panic")
        .unwrap();
    Finished {
        line,
        code: code_of(output.status),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs the cases of a test beside one another: most of their time is waiting.
pub fn at_once<T: Sync>(cases: &[T], case: impl Fn(&T) + Sync) {
    let case = &case;
    std::thread::scope(|scope| {
        for one in cases {
            scope.spawn(move || case(one));
        }
    });
}

/// The same for cases with nothing in common.
pub fn all_at_once(cases: &[&(dyn Fn() + Sync)]) {
    at_once(cases, |case| case());
}

/// Kills a process, and waits until it has ended or is a zombie: a busy machine ends it some time after SIGKILL.
#[track_caller]
pub fn kill_and_wait(pid: &str) {
    run("kill", &["-KILL", pid]).ok();
    let start = Instant::now();
    while lives(pid) {
        assert!(start.elapsed() < HANGS, "{pid} lives");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process has neither ended nor become a zombie.
pub fn lives(pid: impl std::fmt::Display) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.is_empty() && !stat.contains(") Z "))
}

fn code_of(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().expect("no code, so a signal"))
}
