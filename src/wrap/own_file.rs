//! SHELL. Files of the user who runs `wrap`. Callers read with the user's rights ([`Person::looking`]): under sudo, a
//! path in the command line must not reveal files that only root reads.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use zeroize::Zeroizing;

use super::accounts;
use super::error::WrapRefusal;
use super::person::Person;
use crate::plan::passwd;
use crate::probe::has_no_access_list;
use crate::runtime::input::bundle::{open_regular, read_open};
use crate::runtime::unprivileged;

/// The text of a file that the user names, no matter who wrote it.
pub fn read(path: &Path) -> Result<String> {
    text(open_regular(path)?, path)
}

/// The same for a resolved path: a link that appeared since is an error.
pub fn read_resolved(path: &Path) -> Result<String> {
    text(open_resolved(path)?, path)
}

/// The text of a file that decides what the command may do: only the user and root may write it.
pub fn read_trusted(path: &Path, person: &Person) -> Result<String> {
    trusted_text(open_regular(path)?, path, person)
}

/// The text of the user's own settings, and what keeps other users from reading it, or why nothing does.
pub fn read_settings(path: &Path, person: &Person) -> Result<(String, Result<(), String>)> {
    let file = open_regular(path)?;
    let stat = file
        .metadata()
        .with_context(|| format!("look at {path:?}"))?;
    let private = check_private(&stat, person);
    Ok((trusted_text(file, path, person)?, private))
}

/// The content of a file that only the user can read or write, by no link.
pub fn read_private(path: &Path, person: &Person) -> Result<Zeroizing<Vec<u8>>> {
    let file = open_resolved(path)?;
    let stat = file
        .metadata()
        .with_context(|| format!("look at {path:?}"))?;
    if let Err(why) = check_private(&stat, person) {
        let path = path.to_owned();
        bail!(WrapRefusal::File { path, why });
    }
    Ok(Zeroizing::new(read_open(file, path)?))
}

fn check_private(stat: &std::fs::Metadata, person: &Person) -> Result<(), String> {
    let Access { uid, mode, .. } = Access::of(stat);
    if uid != person.uid {
        return Err(format!("belongs to user {uid}: it must be your own"));
    }
    if mode & 0o077 != 0 {
        let mode = mode & 0o7777;
        return Err(format!("has mode {mode:o}: chmod 600 it"));
    }
    match stat.nlink() {
        1 => Ok(()),
        names => Err(format!("has {names} names (hard links): leave it one")),
    }
}

/// The same for a resolved path.
pub fn read_trusted_resolved(path: &Path, person: &Person) -> Result<String> {
    trusted_text(open_resolved(path)?, path, person)
}

fn open_resolved(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), links);
    let file = File::from(opened.with_context(|| format!("open {path:?}"))?);
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file),
        _ => bail!(WrapRefusal::File {
            path: path.to_owned(),
            why: "is no regular file".to_owned(),
        }),
    }
}

fn trusted_text(file: File, path: &Path, person: &Person) -> Result<String> {
    let stat = file
        .metadata()
        .with_context(|| format!("look at {path:?}"))?;
    let refuse = |why: String| WrapRefusal::File {
        path: path.to_owned(),
        why,
    };
    let access = Access::of(&stat);
    if access.uid != person.uid && access.uid != 0 {
        bail!(refuse(format!(
            "belongs to user {}, but it decides about the walls: it must be your own file{}",
            access.uid,
            match unprivileged::inside() {
                Some(_) => " (without root's rights root's files cannot be told from a stranger's)",
                None => " or root's",
            }
        )));
    }
    if access.is_written_by_others(&file) {
        bail!(refuse(format!(
            "may be written by others (mode {:o}), but it decides about the walls: chmod go-w it",
            access.mode & 0o7777
        )));
    }
    text(file, path)
}

/// Who may write a file, by the node's numbers.
struct Access {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl Access {
    /// In the user namespace of a user without root's rights, the user's own ids are 0. All others appear as the
    /// overflow user, including root, so their files belong to no known user there.
    fn of(stat: &std::fs::Metadata) -> Self {
        let (uid, gid, mode) = (stat.uid(), stat.gid(), stat.mode());
        match unprivileged::inside() {
            Some(ids) => Self {
                uid: if uid == 0 { ids.uid } else { uid },
                gid: if gid == 0 { ids.gid } else { gid },
                mode,
            },
            None => Self { uid, gid, mode },
        }
    }

    /// A group counts as the owner if it has no other member. Many systems set users up so: the group's number is the
    /// user's, group(5) lists no member, and passwd(5) no other user of it. Members in a directory service are not known,
    /// and with an access list the group's bits are those of all whom it names.
    fn is_written_by_others(&self, file: &File) -> bool {
        if self.mode & 0o022 == 0 {
            return false;
        }
        if self.mode & 0o002 != 0 || self.gid != self.uid || !has_no_access_list(file) {
            return true;
        }
        let is_one = |path: &str, is_one: fn(&str, u32) -> bool| {
            let text = std::fs::read(path);
            text.is_ok_and(|text| is_one(&String::from_utf8_lossy(&text), self.gid))
        };
        let elsewhere = ["passwd", "group", "initgroups"];
        elsewhere.into_iter().any(accounts::has_directory)
            || !is_one("/etc/group", is_without_members)
            || !is_one("/etc/passwd", is_of_one_user)
    }
}

/// group(5) may have several lines of one number.
fn is_without_members(groups: &str, gid: u32) -> bool {
    let gid = gid.to_string();
    let lines = groups.lines().map(|line| line.split(':'));
    let mut members =
        lines.filter_map(|mut fields| (fields.nth(2) == Some(&gid)).then(|| fields.next()));
    members.next() == Some(Some("")) && members.all(|members| members == Some(""))
}

fn is_of_one_user(users: &str, gid: u32) -> bool {
    let mut of_group = passwd::lines(users).filter(|user| user.gid == gid);
    of_group.all(|user| user.uid == gid)
}

fn text(file: File, path: &Path) -> Result<String> {
    let bytes = read_open(file, path)?;
    String::from_utf8(bytes).map_err(|_| {
        let why = "is not UTF-8 text".to_owned();
        let path = path.to_owned();
        WrapRefusal::File { path, why }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_ones_own_has_no_member() {
        let groups = "root:x:0:\nme:x:1000:\nus:x:1001:me,you\nshort:x:1002\ntwo:x:1003:\nagain:x:1003:you\n";
        assert!(is_without_members(groups, 1000));
        for other in [1001, 1002, 1003, 100, 4] {
            assert!(!is_without_members(groups, other), "{other}");
        }
        let users = "me:x:1000:1000::/home/me:\nyou:x:1001:1001::/:\nthird:x:1002:1001::/:\n";
        assert!(is_of_one_user(users, 1000));
        assert!(!is_of_one_user(users, 1001));
    }
}
