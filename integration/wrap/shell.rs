//! A user's shell at a terminal, with a test typing into it.

use crate::command::HANGS;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::OpenptFlags;

/// An interactive bash with job control.
pub struct Shell {
    master: File,
    child: Child,
    /// The output after the last text that was waited for.
    shown: String,
}

/// An unused terminal: its master and its slave.
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

    /// Types keys, without the end of a line.
    pub fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line.
    pub fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\n"));
    }

    /// Whether a text has come after the last one that was waited for.
    pub fn shows(&mut self, text: &str) -> bool {
        self.read();
        self.shown.contains(text)
    }

    /// Waits for a text after the last one that was waited for. Returns the output up to it.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            assert!(start.elapsed() < HANGS, "no {text:?} in: {:?}", self.shown);
            self.read();
        }
    }

    /// Runs a line to its end. Returns its output.
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
        // Closing its terminal ends its jobs too.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
