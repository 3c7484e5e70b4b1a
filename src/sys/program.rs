#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! Programs of the node that agentbox itself executes: by an absolute path that only root can change, never by a search
//! along PATH, and only with the listed variables of the caller.
//!
//! PATH may have a directory that an agent wrote in an earlier run (an activated virtual environment in a workspace),
//! and these programs run with the caller's rights and without walls.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError,
};

use super::file_size;
use super::open_files;
use super::path::resolve_owned;

/// Where distributions install programs.
const DIRECTORIES: [&str; 7] = [
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    // NixOS has only this one.
    "/run/current-system/sw/bin",
];

/// The PATH of such a program, for programs that it starts.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The path of a system program.
///
/// # Errors
/// `NotFound` if no directory of [`DIRECTORIES`] has it as a file that only root can change.
pub fn find(name: &str) -> io::Result<PathBuf> {
    let mut places = DIRECTORIES
        .iter()
        .map(|directory| Path::new(directory).join(name));
    places
        .find_map(|place| only_roots(&place))
        .ok_or_else(|| missing(name))
}

/// The path without links, if it leads to a file that only root can change.
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

/// A command by the program's own path: without input, and with only these variables of the caller's environment.
pub fn command(program: &Path, variables: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).stdin(Stdio::null());
    for name in variables {
        if let Some(value) = std::env::var_os(OsStr::new(name)) {
            command.env(name, value);
        }
    }
    open_files::limit(&mut command);
    file_size::limit(&mut command);
    command
}

/// System directories that a confined program reads, and runs programs from.
const SYSTEM: [&str; 20] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/etc",
    "/proc",
    "/dev",
    "/run/current-system",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/cache/apt",
    "/root/.rustup",
    "/root/.cargo",
];

/// The additional files of a confined program.
pub struct ProgramReach<'a> {
    /// Files and directories that it may read.
    pub reads: Vec<PathBuf>,
    /// The directory that it may write.
    pub writes: &'a Path,
}

/// Lets the program, and all that it starts, read and run system files, read the listed files and write one directory,
/// nothing else (landlock(7)). It may connect: package managers query their index.
///
/// # Errors
/// The kernel has no Landlock.
pub fn confine(command: &mut Command, reach: &ProgramReach<'_>) -> io::Result<()> {
    let other = io::Error::other::<RulesetError>;
    let all = AccessFs::from_all(ABI::V1);
    let read = AccessFs::from_read(ABI::V1);
    let data = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .and_then(Ruleset::create)
        .map_err(other)?;
    let system = SYSTEM.map(|path| (PathBuf::from(path), read));
    let reads = reach.reads.iter().map(|path| (path.clone(), data));
    let own = [
        (reach.writes.to_owned(), all),
        ("/dev/null".into(), AccessFs::ReadFile | AccessFs::WriteFile),
    ];
    for (path, access) in system.into_iter().chain(reads).chain(own) {
        let Ok(opened) = PathFd::new(&path) else {
            continue;
        };
        let access = match path.is_dir() {
            true => access,
            false => access & AccessFs::from_file(ABI::V1),
        };
        ruleset = ruleset
            .add_rule(PathBeneath::new(opened, access))
            .map_err(other)?;
    }
    let mut ruleset = Some(ruleset);
    // SAFETY: the closure runs between fork and exec. This process has one thread when it executes programs, so no lock of the
    // allocator is held by another; it makes system calls alone (prctl, landlock_restrict_self).
    unsafe {
        command.pre_exec(move || match ruleset.take() {
            Some(ruleset) => ruleset
                .restrict_self()
                .map(drop)
                .map_err(io::Error::other::<RulesetError>),
            None => Err(io::ErrorKind::Unsupported.into()),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_system_programs_are_found() {
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
    fn a_confined_program_reads_the_system_and_writes_one_directory() {
        let base = std::env::temp_dir().join(format!("agentbox-confined-{}", std::process::id()));
        std::fs::create_dir_all(base.join("own")).unwrap();
        std::fs::write(base.join("read"), "read").unwrap();
        std::fs::write(base.join("secret"), "secret").unwrap();
        let script = format!(
            "cd {0}/own && echo x >made && cat ../read; cat ../secret; echo y >../written; ls {0}; cp /bin/sh own-sh && ./own-sh -c 'echo ran'",
            base.display()
        );
        let shell = find("sh").unwrap();
        let said = |confined: bool| {
            let mut command = command(&shell, &[]);
            command.args(["-c", &script]).stderr(Stdio::null());
            if confined {
                let own = base.join("own");
                let reach = ProgramReach {
                    reads: vec![base.join("read")],
                    writes: &own,
                };
                confine(&mut command, &reach).unwrap();
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        assert_eq!(said(true), "readran\n");
        assert!(base.join("own/made").exists() && !base.join("written").exists());
        // The control.
        assert!(said(false).starts_with("readsecret"));
        assert!(base.join("written").exists());
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn only_listed_variables_are_passed_on() {
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
