//! SHELL. Links that the command of an earlier run may have planted. A command can replace any file that it may write
//! by a link. The user's own call would then read or write another file than the named one.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};

use super::person::Person;
use super::settings::places;
use crate::sys::path;

/// Resolves links, as far as the path exists. A link in one of the `written` places (themselves without links) is an
/// error: the command could have made it.
pub fn real(path: &Path, written: &[PathBuf]) -> Result<PathBuf> {
    path::resolve(path, |step| {
        let by_command = written
            .iter()
            .any(|place| step.directory.starts_with(place));
        if step.found.is_symlink() && by_command {
            let link = step.path;
            return Err(Error::other(format!(
                "{link:?} is a link that a command could have made: name the file that it leads to"
            )));
        }
        Ok(())
    })
}

/// Resolves links in a requested path, as far as it exists. A link counts only in a directory that no sandbox writes,
/// since earlier runs had other workspaces.
pub fn named(path: &Path, person: &Person) -> Result<PathBuf> {
    path::resolve(path, |step| {
        if !step.found.is_symlink() || places::no_sandbox_writes(person, step.directory) {
            return Ok(());
        }
        let link = step.path;
        Err(Error::other(format!(
            "{link:?} is a link that a command could have made: name the file that it leads to"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_of_the_persons_is_followed_and_one_that_a_command_could_make_is_not() {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        let base = nix::unistd::mkdtemp(&base).unwrap().canonicalize().unwrap();
        let project = base.join("project");
        std::fs::create_dir_all(project.join("sub")).unwrap();
        std::fs::write(base.join("secret"), "").unwrap();
        symlink("project", base.join("own")).unwrap();
        symlink("../secret", project.join("planted")).unwrap();
        symlink(&base, project.join("sub/up")).unwrap();
        symlink("missing", project.join("dangling")).unwrap();
        let written = [project.clone()];
        let real = |path: &str| real(&base.join(path), &written);
        assert_eq!(real("own/sub/new").unwrap(), project.join("sub/new"));
        assert_eq!(real("own/sub/../../secret").unwrap(), base.join("secret"));
        for planted in [
            "project/planted",
            "own/planted",
            "own/sub/up/secret",
            "project/dangling",
        ] {
            let error = real(planted).unwrap_err().to_string();
            assert!(
                error.contains("a command could have made"),
                "{planted}: {error}"
            );
        }
        std::fs::remove_dir_all(base).unwrap();
    }
}
