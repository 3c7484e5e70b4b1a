//! Runs a program of the node, with a time limit, in a directory outside of every project.

use std::io::{self, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, kill_process_group};

use crate::plan::never::NeverList;
use crate::plan::passwd;
use crate::sys::procfs;
use crate::sys::program::{self, ProgramReach};

/// A slow index needs less.
const LIMIT: Duration = Duration::from_secs(60);

/// The answers of managers are shorter.
const MOST_BYTES: u64 = 16 << 20;

/// An empty directory that only this user can see, removed at the end.
#[derive(Debug)]
pub struct ToolRunner {
    path: PathBuf,
    home: PathBuf,
    // Dropped last: a signal ends this process when the directory is gone.
    held: HeldSignals,
}

impl ToolRunner {
    /// Makes it below `home`: in a public directory any user could add configuration that cargo and npm read.
    pub fn new(home: &Path) -> io::Result<Self> {
        let held = HeldSignals::new()?;
        let path = home.join(format!(".agentbox-presets-{}", std::process::id()));
        // Not recursive: an existing directory is an error.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let home = home.to_owned();
        Ok(Self { path, home, held })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first of these programs on PATH.
    ///
    /// PATH is the caller's, and an agent may have made its directories. So a program counts only if root alone can
    /// change it and no sandbox can write its directory.
    pub fn find(&self, programs: &[&str]) -> ManagerProgram {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let mut unsafe_one = None;
        for name in programs {
            for place in directories.iter().map(|directory| directory.join(name)) {
                if !place.is_absolute() || !place.is_file() {
                    continue;
                }
                match program::only_roots(&place).filter(|real| is_closed(real)) {
                    Some(real) => return ManagerProgram::Program(real),
                    None => unsafe_one = unsafe_one.or(Some(place)),
                }
            }
        }
        unsafe_one.map_or(ManagerProgram::Missing, ManagerProgram::Changeable)
    }

    /// A program's standard output, if it succeeds within the limit.
    pub fn ask(&self, program: &Path, arguments: &[&str]) -> Option<String> {
        self.run(self.command(program).args(arguments))
    }

    /// A command with the caller's settings of package managers, and nothing else of the caller's environment. It reads
    /// the files with these settings, and no code of the caller's, which a sandbox may have written.
    pub fn command(&self, program: &Path) -> Command {
        let named: Vec<String> = set().collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        let mut command = program::command(program, &named);
        command
            // The user's own modules would run in every Python.
            .env("PYTHONNOUSERSITE", "1")
            // Otherwise go fetches and runs the toolchain that a file of the user's names.
            .env("GOTOOLCHAIN", "local")
            .env("TMPDIR", &self.path)
            .env("PIP_NO_CACHE_DIR", "1")
            .env("npm_config_cache", self.path.join("npm"));
        command
    }

    /// The same for a prepared command.
    pub fn run(&self, command: &mut Command) -> Option<String> {
        // No file of the directory that the program writes: a link there would lead this process elsewhere.
        let mut output = std::fs::File::from(
            rustix::fs::memfd_create("agentbox-answer", MemfdFlags::CLOEXEC).ok()?,
        );
        let reach = ProgramReach {
            reads: SETTINGS.map(|file| self.home.join(file)).into(),
            writes: &self.path,
        };
        if let Err(error) = program::confine(command, &reach) {
            log::warn!("package managers are not asked, since nothing confines them: {error}");
            return None;
        }
        let mut child = command
            // Wide enough not to wrap text.
            .env("COLUMNS", "4000")
            .current_dir(&self.path)
            .stdout(output.try_clone().ok()?)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .ok()?;
        let succeeded = wait(&mut child, &self.held, LIMIT);
        // Also ends what it left running.
        end_group(&mut child);
        output.rewind().ok()?;
        succeeded.then(|| text_of(output)).flatten()
    }
}

/// Where users configure package managers, below the home. cargo's configuration is read here, and passed on as a copy.
const SETTINGS: [&str; 5] = [".config/pip", ".pip", ".npmrc", ".config/go", ".config/npm"];

/// The result of the search for a package manager.
#[derive(Debug, PartialEq, Eq)]
pub enum ManagerProgram {
    /// It is missing on this node.
    Missing,
    /// Its path without links.
    Program(PathBuf),
    /// It exists, and users other than root may change it: it is not executed.
    Changeable(PathBuf),
}

/// Whether no sandbox can write the directory of a program or of settings.
pub fn is_closed(program: &Path) -> bool {
    let directory = program.parent();
    directory.is_some_and(|directory| NeverList::builtin().is_closed(directory))
}

/// Variables that configure package managers. None of them names a program or a library.
fn is_setting(name: &str) -> bool {
    const NAMES: [&str; 12] = [
        "HOME",
        "LANG",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "GOPROXY",
        "GOSUMDB",
        "GONOPROXY",
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
    ];
    const OF_NPM: &str = "npm_config_";
    let upper = name.to_ascii_uppercase();
    let of_npm = || name.to_ascii_lowercase().starts_with(OF_NPM) && upper.ends_with("REGISTRY");
    NAMES.contains(&upper.as_str()) || of_npm()
}

/// Those that are set.
fn set() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| is_setting(name))
}

/// Those that are set and may choose hosts. A project's file may have set them. So may it another HOME than passwd(5) has, and
/// with it other files of settings.
pub fn variables(home: &Path) -> Vec<String> {
    let is_empty = |name: &String| std::env::var_os(name).is_none_or(|value| value.is_empty());
    let chosen = set().filter(|name| chooses_host(name) && !is_empty(name));
    let users = procfs::lossy("/etc/passwd").unwrap_or_default();
    let uid = rustix::process::geteuid().as_raw();
    let home = is_other_home(home, &users, uid).then(|| "HOME".to_owned());
    let mut names: Vec<String> = chosen.chain(home).collect();
    names.sort();
    names
}

/// Whether a HOME without links is not the one in these lines of passwd(5). A user of a directory service has no line, and counts
/// as having the right one.
fn is_other_home(home: &Path, users: &str, uid: u32) -> bool {
    let user = passwd::lines(users).find(|user| user.uid == uid);
    user.is_some_and(|user| Path::new(user.home).canonicalize().ok().as_deref() != Some(home))
}

fn chooses_host(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let by_end = ["INDEX_URL", "REGISTRY"]
        .iter()
        .any(|end| upper.ends_with(end));
    is_setting(name) && (by_end || matches!(&*upper, "GOPROXY" | "GOSUMDB"))
}

impl Drop for ToolRunner {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            log::warn!("remove {:?}: {error}", self.path);
        }
    }
}

/// Signals by which a user ends this process. They wait until this is dropped.
#[derive(Debug)]
struct HeldSignals {
    before: SigSet,
    fd: SignalFd,
}

impl HeldSignals {
    fn new() -> io::Result<Self> {
        let held = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
        let held = SigSet::from_iter(held);
        let fd = SignalFd::with_flags(&held, SfdFlags::SFD_CLOEXEC)?;
        let before = held.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { before, fd })
    }

    /// Waits for one of them for a time, and leaves it pending.
    fn has_come(&self, within: Timespec) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&within)).is_ok_and(|ready| ready > 0)
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        if let Err(error) = self.before.thread_set_mask() {
            log::warn!("restore the signal mask: {error}");
        }
    }
}

/// Whether it succeeded within the limit, and before a signal.
fn wait(child: &mut Child, signals: &HeldSignals, limit: Duration) -> bool {
    const TURN: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    let end = Instant::now() + limit;
    while Instant::now() < end {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if signals.has_come(TURN) => return false,
            Ok(None) => {}
            Err(_) => return false,
        }
    }
    false
}

fn end_group(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group
        && let Err(error) = kill_process_group(group, rustix::process::Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        log::debug!("end the process group {group:?}: {error}");
    }
    if let Err(error) = child.wait() {
        log::debug!("wait for {}: {error}", child.id());
    }
}

/// A file's text, if it is a regular one of at most 16 MiB. A pipe is not waited for.
pub fn read(path: &Path) -> Option<String> {
    text_of(procfs::open_regular(path).ok()??)
}

fn text_of(file: std::fs::File) -> Option<String> {
    let text = procfs::at_most(file, MOST_BYTES + 1).ok()?;
    let text = (text.len() as u64 <= MOST_BYTES).then_some(text)?;
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_proxy_chooses_no_host_of_a_manager() {
        for name in [
            "PIP_INDEX_URL",
            "npm_config_registry",
            "NPM_CONFIG_@x:registry",
            "GOPROXY",
        ] {
            assert!(chooses_host(name), "{name}");
        }
        for name in ["HTTPS_PROXY", "NO_PROXY", "GONOPROXY", "HOME"] {
            assert!(!chooses_host(name), "{name}");
        }
    }

    #[test]
    fn a_home_that_passwd_does_not_name_may_have_other_settings() {
        let users = "me:x:1000:1000::/usr:/bin/sh\ngone:x:1001:1001::/no/such/home:/bin/sh\n";
        let is_other = |home: &str, uid| is_other_home(Path::new(home), users, uid);
        assert!(!is_other("/usr", 1000));
        assert!(is_other("/etc", 1000));
        assert!(is_other("/etc", 1001));
        assert!(!is_other("/etc", 1002));
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let mut child = program::command(Path::new("/bin/sh"), &[])
            .args(["-c", "sleep 1000; true"])
            .process_group(0)
            .spawn()
            .unwrap();
        let held = HeldSignals::new().unwrap();
        assert!(!wait(&mut child, &held, Duration::from_millis(50)));
        end_group(&mut child);
        let status = child.try_wait().unwrap().unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    }

    /// ^C left the directory in the user's home.
    #[test]
    fn a_signal_ends_a_program_and_waits_for_the_directory() {
        let child = std::thread::spawn(|| {
            let held = HeldSignals::new().unwrap();
            let mut child = program::command(Path::new("/bin/sleep"), &[])
                .arg("1000")
                .process_group(0)
                .spawn()
                .unwrap();
            nix::sys::signal::raise(Signal::SIGINT).unwrap();
            let begin = Instant::now();
            assert!(!wait(&mut child, &held, LIMIT));
            end_group(&mut child);
            assert!(begin.elapsed() < LIMIT);
            // It is pending still; taken here, so that it does not end the tests.
            assert_eq!(held.fd.read_signal().unwrap().unwrap().ssi_signo, 2);
        });
        child.join().unwrap();
    }

    #[test]
    fn an_answer_is_the_output_of_a_success() {
        let home = std::env::temp_dir().join(format!("agentbox-tool-{}", std::process::id()));
        std::fs::create_dir(&home).unwrap();
        let tools = ToolRunner::new(&home).unwrap();
        let ManagerProgram::Program(sh) = tools.find(&["sh"]) else {
            panic!("the system has a shell");
        };
        let shell = |script: &str| tools.ask(&sh, &["-c", script]);
        assert_eq!(shell("echo yes; echo no >&2").as_deref(), Some("yes\n"));
        assert_eq!(shell("echo yes; exit 1"), None);
        assert_eq!(shell("printf '\\377'"), None);
        assert_eq!(shell("cat").as_deref(), Some(""));
        assert_eq!(tools.ask(Path::new("/nonexistent/tool"), &[]), None);
        let here = shell("pwd").unwrap();
        assert!(Path::new(here.trim()).starts_with(&home), "{here}");
        drop(tools);
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
        std::fs::remove_dir(&home).unwrap();
    }
}
