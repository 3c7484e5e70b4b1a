//! SHELL. Links that a command of an earlier run may have planted. What it writes it may also make a link of, and the person's own
//! call would then read or write another file than the one that it names.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{Error, ErrorKind, Result};
use std::path::{Component, Path, PathBuf};

/// As the kernel's MAXSYMLINKS.
const MOST_LINKS: usize = 40;

/// The path without links, as far as there is something. A link that lies in one of the `written` places, which are
/// without links themselves, is an error: the command could have made it.
pub fn real(path: &Path, written: &[PathBuf]) -> Result<PathBuf> {
    let mut rest: VecDeque<OsString> = names(&std::path::absolute(path)?);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let target = match std::fs::symlink_metadata(&next) {
            Ok(meta) if meta.is_symlink() => std::fs::read_link(&next)?,
            // Nothing is there to lead elsewhere.
            Err(error) if error.kind() == ErrorKind::NotFound && !rest.contains(&"..".into()) => {
                return Ok(rest.into_iter().fold(next, |path, name| path.join(name)));
            }
            Err(error) => return Err(error),
            Ok(_) => {
                at = next;
                continue;
            }
        };
        if written.iter().any(|place| at.starts_with(place)) {
            let why = format!(
                "{next:?} is a link that a command could have made: name the file that it leads to"
            );
            return Err(Error::other(why));
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(rustix::io::Errno::LOOP.into());
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            rest.push_front(name);
        }
    }
    Ok(at)
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
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
        symlink("loop", base.join("loop")).unwrap();
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
        assert!(real("loop").is_err() && real("own/none/../new").is_err());
        std::fs::remove_dir_all(base).unwrap();
    }
}
