//! Programs of the node that agentbox itself executes: by an absolute path that only root can change, never by a search along PATH,
//! with no variable of the caller's but those that are named.
//!
//! PATH may hold a directory that an agent wrote in an earlier run (an activated virtual environment in a workspace), and what is
//! executed here has the caller's rights and no walls.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::path::resolve_owned;

/// Where a distribution installs its programs.
const DIRECTORIES: [&str; 7] = [
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    // NixOS has no other.
    "/run/current-system/sw/bin",
];

/// PATH of such a program, in which it finds others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The path of a system's program.
///
/// # Errors
/// `NotFound` where no directory of [`DIRECTORIES`] has it as a file that only root can change.
pub fn find(name: &str) -> io::Result<PathBuf> {
    let mut places = DIRECTORIES
        .iter()
        .map(|directory| Path::new(directory).join(name));
    places
        .find_map(|place| only_roots(&place))
        .ok_or_else(|| missing(name))
}

/// A path without links if it leads to a file that only root can change.
pub fn only_roots(path: &Path) -> Option<PathBuf> {
    let real = resolve_owned(path, 0).ok()?;
    real.is_file().then_some(real)
}

fn missing(name: &str) -> io::Error {
    let places = DIRECTORIES.join(", ");
    let why = format!(
        "{name} is not in {places}, or others than root may change it there (PATH is not searched)"
    );
    io::Error::new(io::ErrorKind::NotFound, why)
}

/// A call of a program by its own path: no input, and of the caller's environment only these variables.
pub fn command(program: &Path, variables: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).stdin(Stdio::null());
    for name in variables {
        if let Some(value) = std::env::var_os(OsStr::new(name)) {
            command.env(name, value);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_system_is_found_and_no_other() {
        let shell = find("sh").unwrap();
        assert!(shell.is_absolute() && !shell.is_symlink(), "{shell:?}");
        let error = find("no-such-program").unwrap_err().to_string();
        assert!(error.contains("PATH is not searched"), "{error}");
        let own = std::env::temp_dir().join(format!("agentbox-program-{}", std::process::id()));
        std::fs::write(&own, "#!/bin/sh\n").unwrap();
        let others = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&own, others).unwrap();
        assert_eq!(only_roots(&own), None);
        std::fs::remove_file(&own).unwrap();
    }

    #[test]
    fn nothing_of_the_environment_is_handed_on_unless_it_is_named() {
        let shell = find("sh").unwrap();
        let said = |variables: &[&str]| {
            let mut command = command(&shell, variables);
            let output = command
                .args(["-c", "echo \"$PATH,$CARGO_PKG_NAME\""])
                .output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        assert_eq!(said(&[]), format!("{PATH},\n"));
        assert_eq!(said(&["CARGO_PKG_NAME"]), format!("{PATH},agentbox\n"));
    }
}
