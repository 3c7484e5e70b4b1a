//! A person's shell at a terminal, typed into by a test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::OpenptFlags;

/// How long anything may take to appear.
const WITHIN: Duration = Duration::from_secs(30);

/// An interactive bash with job control.
pub struct Shell {
    master: File,
    child: Child,
    /// What has been shown, up to where it was waited for.
    shown: String,
}

/// A terminal with nobody at it: its master and its slave.
pub fn terminal() -> (File, OwnedFd) {
    let master =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    (File::from(master), slave)
}

impl Shell {
    /// Starts it in a directory, and waits for its prompt.
    pub fn new(dir: &str) -> Self {
        let (master, slave) = terminal();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let bash = ["bash", "--norc", "--noprofile", "--noediting", "-i"];
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(bash);
        command.current_dir(dir).env("PS1", "<prompt>");
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        let child = command.spawn().unwrap();
        let shown = String::new();
        let mut shell = Self {
            master,
            child,
            shown,
        };
        shell.wait_for("<prompt>");
        shell
    }

    /// Types this, without a key for the end of a line.
    pub fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line.
    pub fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\n"));
    }

    /// Waits until this is shown after all that was waited for before; what was shown up to there.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            assert!(start.elapsed() < WITHIN, "no {text:?} in: {:?}", self.shown);
            self.read();
        }
    }

    /// Runs a line to its end; what it shows.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.line(line);
        // Without its echo.
        self.wait_for("\n");
        self.wait_for("<prompt>").replace('\r', "")
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        match self.master.read(&mut buffer) {
            Ok(length) => self
                .shown
                .push_str(&String::from_utf8_lossy(&buffer[..length])),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // With its terminal its jobs end too.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
