//! Asking a program of the node, with a time limit, in a directory where no project has a say.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// More than a slow index needs.
const LIMIT: Duration = Duration::from_secs(60);

/// More than any manager says.
const MOST_BYTES: u64 = 16 << 20;

/// An empty directory that only this user can see, removed in the end.
#[derive(Debug)]
pub struct ToolRunner(PathBuf);

impl ToolRunner {
    /// Makes it below `home`: above a directory for everybody anybody could put configuration that cargo and npm read.
    pub fn new(home: &Path) -> io::Result<Self> {
        let path = home.join(format!(".agentbox-presets-{}", std::process::id()));
        // Not recursive: one that is there already is an error.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The first of these programs that the node has.
    pub fn find(&self, programs: &[&'static str]) -> Option<&'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let has = |program: &&&str| std::env::split_paths(&path).any(|d| d.join(program).is_file());
        programs.iter().find(has).copied()
    }

    /// The standard output of a program that succeeded within the limit.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> Option<String> {
        self.run(Command::new(program).args(arguments))
    }

    /// The same for a command with an environment of its own.
    pub fn run(&self, command: &mut Command) -> Option<String> {
        let output = self.0.join("stdout");
        let mut child = command
            // Wide enough that no text is wrapped.
            .env("COLUMNS", "4000")
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&output).ok()?)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .ok()?;
        let succeeded = wait(&mut child, LIMIT);
        // With all that it left running.
        end_group(&mut child);
        succeeded.then(|| read(&output)).flatten()
    }
}

impl Drop for ToolRunner {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            log::warn!("remove {:?}: {error}", self.0);
        }
    }
}

/// Whether it ended well within the limit.
fn wait(child: &mut Child, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
    false
}

fn end_group(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group
        && let Err(error) = kill_process_group(group, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        log::debug!("end the process group {group:?}: {error}");
    }
    if let Err(error) = child.wait() {
        log::debug!("wait for {}: {error}", child.id());
    }
}

fn read(path: &Path) -> Option<String> {
    let length = std::fs::metadata(path).ok()?.len();
    (length <= MOST_BYTES)
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn what_takes_too_long_is_ended() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "sleep 1000; true"])
            .process_group(0)
            .spawn()
            .unwrap();
        assert!(!wait(&mut child, Duration::from_millis(50)));
        end_group(&mut child);
        let status = child.try_wait().unwrap().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn an_answer_is_the_output_of_a_success() {
        let home = std::env::temp_dir().join(format!("agentbox-tool-{}", std::process::id()));
        std::fs::create_dir(&home).unwrap();
        let tools = ToolRunner::new(&home).unwrap();
        let shell = |script: &str| tools.ask("/bin/sh", &["-c", script]);
        assert_eq!(shell("echo yes; echo no >&2").as_deref(), Some("yes\n"));
        assert_eq!(shell("echo yes; exit 1"), None);
        assert_eq!(shell("printf '\\377'"), None);
        assert_eq!(shell("cat").as_deref(), Some(""));
        assert_eq!(tools.ask("/nonexistent/tool", &[]), None);
        let here = shell("pwd").unwrap();
        assert!(Path::new(here.trim()).starts_with(&home), "{here}");
        drop(tools);
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
        std::fs::remove_dir(&home).unwrap();
    }
}
