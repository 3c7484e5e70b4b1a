//! Finds and executes the container's program, with runc's words for the errors.
//!
//! Docker and containerd parse the words: "executable file not found" and "no such file or directory" become exit code
//! 127, "permission denied" 126.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::error::{EnforceError, ExecveError, words};
use super::{privileges, verify};
use crate::sys::user_namespace::Ids;

/// The program that a process of a container executes.
#[derive(Debug, Default)]
pub enum ContainerProgram {
    /// The program that the spec names, a file of the container.
    #[default]
    Named,
    /// This program again, by a descriptor of the sealed mount that it runs from ([`crate::runtime::seal`]). The image
    /// needs no file for it, and the container cannot write it through the process (CVE-2019-5736).
    Own(OwnedFd),
    /// The first of these files, which the caller checked on the node. All of them must be the same files in the container, under
    /// the same paths: the others are executed for it, as the interpreter of a script is.
    Checked(Vec<ProgramFile>),
}

/// A file that a program needs to start, as it was on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    path: PathBuf,
    identity: (u64, u64),
    /// Size, and when it was written and changed: what an overlay shows of a file below it.
    state: [i64; 5],
}

impl ProgramFile {
    /// The file that a path leads to now.
    pub fn look(path: &Path) -> std::io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (found.dev(), found.ino()),
            state: [
                found.size().cast_signed(),
                found.mtime(),
                found.mtime_nsec(),
                found.ctime(),
                found.ctime_nsec(),
            ],
        })
    }

    /// Whether two paths lead to one file.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    /// Refuses a path that leads to another file now. An overlay has a device and inodes of its own. There the time of the last
    /// change counts, which no program can set (utimensat(2)).
    fn check(&self) -> Result<(), ExecveError> {
        let now = Self::look(&self.path).map_err(|error| ExecveError::Stat {
            name: self.path.display().to_string(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        let on_overlay = || {
            let found = rustix::fs::statfs(&self.path);
            found.is_ok_and(|found| found.f_type == libc::OVERLAYFS_SUPER_MAGIC)
        };
        match now.is_same(self) || (now.state == self.state && on_overlay()) {
            true => Ok(()),
            false => Err(ExecveError::Other(self.path.clone())),
        }
    }
}

impl ContainerProgram {
    /// The program that was checked; the one that the spec names if none was.
    pub fn checked(files: Vec<ProgramFile>) -> Self {
        match files.is_empty() {
            true => Self::Named,
            false => Self::Checked(files),
        }
    }

    /// The file to execute; for [`Self::Own`] only the name, since no file of the container is searched.
    pub fn find(&self, name: &str, env: &[String]) -> Result<PathBuf, EnforceError> {
        match self {
            Self::Named => find(name, env),
            Self::Own(_) => Ok(PathBuf::from(name)),
            Self::Checked(files) => {
                let checked = files.iter().try_for_each(ProgramFile::check);
                checked.map_err(|why| EnforceError::Program {
                    name: name.to_owned(),
                    why,
                })?;
                let program = files.first().map(|file| file.path.to_string_lossy());
                find(program.as_deref().unwrap_or(name), env)
            }
        }
    }

    /// The descriptor that is executed, if no path is.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Named | Self::Checked(_) => None,
            Self::Own(file) => Some(file.as_fd()),
        }
    }

    /// Keeps the container's processes from tracing this program after execve(2), if it is this one: by a borrowed group,
    /// which it gives back itself, or by a file that its user may not read. A user without root's rights has one group
    /// there; the capabilities to read the file anyway are dropped, and read back, after this.
    pub(super) fn hide_from_tracers(&self, person: Option<Ids>) -> Result<(), EnforceError> {
        let Self::Own(file) = self else {
            return Ok(());
        };
        match person {
            None => privileges::borrow_group(),
            Some(_) => verify::unreadable(file.as_fd()),
        }
    }

    /// Replaces the process. Returns only the reason why it could not.
    pub fn execute(&self, file: &Path, args: &[String], env: &[String]) -> EnforceError {
        match self {
            Self::Named | Self::Checked(_) => execute(file, args, env, ExecveFile::Path),
            Self::Own(descriptor) => execute(file, args, env, ExecveFile::Descriptor(descriptor)),
        }
    }
}

/// How execve(2) gets the file.
#[derive(Clone, Copy)]
enum ExecveFile<'a> {
    Path,
    Descriptor(&'a OwnedFd),
}

/// Resolves `name`: itself if it has a slash, else the first match on the container's PATH.
pub fn find(name: &str, env: &[String]) -> Result<PathBuf, EnforceError> {
    let error = |why| EnforceError::Program {
        name: name.to_owned(),
        why,
    };
    if name.contains('/') {
        return match check(Path::new(name)) {
            Ok(()) => Ok(PathBuf::from(name)),
            Err(Errno::ACCESS) => Err(error(ExecveError::Denied)),
            Err(errno) => {
                let name = name.to_owned();
                Err(error(ExecveError::Stat { name, errno }))
            }
        };
    }
    let path = env
        .iter()
        .rev()
        .find_map(|e| e.strip_prefix("PATH="))
        .unwrap_or("");
    let mut denied = false;
    for dir in path.split(':') {
        let candidate = Path::new(if dir.is_empty() { "." } else { dir }).join(name);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(e) => denied |= e == Errno::ACCESS,
        }
    }
    Err(error(if denied {
        ExecveError::Denied
    } else {
        ExecveError::NotOnPath
    }))
}

/// Enters the working directory. Magic links are not followed: /proc/self/fd/N would lead out of the container
/// (CVE-2024-21626). The words are runc's.
pub fn enter(cwd: &Path) -> Result<(), EnforceError> {
    let failed = |e: Errno| EnforceError::Cwd {
        cwd: cwd.to_owned(),
        why: words(e),
    };
    let directory = rustix::fs::openat2(
        CWD,
        cwd,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(failed)?;
    rustix::process::fchdir(&directory).map_err(failed)?;
    // A directory outside of the container's root has no name there (getcwd(2)).
    let name = rustix::process::getcwd(Vec::new()).map_err(failed)?;
    if name.to_bytes().starts_with(b"/") {
        Ok(())
    } else {
        Err(failed(Errno::ACCESS))
    }
}

/// An executable regular file.
fn check(path: &Path) -> Result<(), Errno> {
    let stat = rustix::fs::stat(path)?;
    let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    // Any of the three bits, as runc does: execve decides which one counts.
    if regular && stat.st_mode & 0o111 != 0 {
        Ok(())
    } else {
        Err(Errno::ACCESS)
    }
}

fn execute(file: &Path, args: &[String], env: &[String], by: ExecveFile<'_>) -> EnforceError {
    let name = args.first().cloned().unwrap_or_default();
    let strings = |list: &[String]| {
        list.iter()
            .map(|s| CString::new(s.as_str()))
            .collect::<Result<Vec<_>, _>>()
    };
    let (Ok(path), Ok(args), Ok(env)) = (
        CString::new(file.as_os_str().as_encoded_bytes()),
        strings(args),
        strings(env),
    ) else {
        return EnforceError::Program {
            name,
            why: ExecveError::Nul,
        };
    };
    crate::sys::signal::reset();
    let Err(errno) = match by {
        ExecveFile::Path => nix::unistd::execve(&path, &args, &env),
        ExecveFile::Descriptor(file) => nix::unistd::fexecve(file.as_raw_fd(), &args, &env),
    };
    EnforceError::Program {
        name,
        why: ExecveError::Execve(Errno::from_raw_os_error(errno as i32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_reported_in_the_engines_words() {
        let env = vec!["PATH=/nonexistent:/usr/bin".to_owned()];
        let text = |name: &str| find(name, &env).expect_err("it is missing").to_string();
        assert_eq!(
            text("no-such-program"),
            "exec: \"no-such-program\": executable file not found in $PATH"
        );
        assert_eq!(
            text("/no/such"),
            "exec: \"/no/such\": stat /no/such: no such file or directory"
        );
        assert_eq!(
            text("/etc/passwd"),
            "exec: \"/etc/passwd\": permission denied"
        );
        assert_eq!(text("/etc"), "exec: \"/etc\": permission denied");
    }

    #[test]
    fn a_checked_program_is_the_same_file_or_none() {
        let base =
            nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap();
        let (program, other) = (base.join("program"), base.join("interpreter"));
        for path in [&program, &other] {
            std::fs::copy("/bin/true", path).unwrap();
        }
        let files = || [&program, &other].map(|path| ProgramFile::look(path).unwrap());
        let checked = ContainerProgram::checked(files().into());
        // PATH has no say.
        let env = vec!["PATH=/bin".to_owned()];
        assert_eq!(checked.find("true", &env).unwrap(), program);
        // Of a program without a check it has.
        let named = ContainerProgram::checked(Vec::new());
        assert_eq!(named.find("true", &env).unwrap(), Path::new("/bin/true"));
        for replaced in [&other, &program] {
            let checked = ContainerProgram::checked(files().into());
            let copy = base.join("copy");
            std::fs::copy("/bin/true", &copy).unwrap();
            std::fs::rename(&copy, replaced).unwrap();
            let why = checked.find("true", &env).unwrap_err().to_string();
            assert!(why.contains("another file"), "{why}");
        }
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn the_path_of_the_container_is_searched_in_order() {
        let env = vec!["PATH=/nonexistent:/bin".to_owned()];
        assert_eq!(find("sh", &env).expect("sh is there"), Path::new("/bin/sh"));
        assert!(find("sh", &[]).is_err(), "without PATH nothing is found");
    }
}
