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
use crate::sys::user_namespace::Ids;

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
    let is_group_shared = |gid| !has_no_access_list(&file) || has_other_members(gid);
    let why = Access::of(&stat).doubt(person, unprivileged::inside(), is_group_shared);
    match why {
        Some(why) => bail!(WrapRefusal::File {
            path: path.to_owned(),
            why,
        }),
        None => text(file, path),
    }
}

/// Who may write a file, by the node's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl Access {
    fn of(stat: &std::fs::Metadata) -> Self {
        let (uid, gid, mode) = (stat.uid(), stat.gid(), stat.mode());
        Self { uid, gid, mode }.seen_from(unprivileged::inside())
    }

    /// In the user namespace of a user without root's rights, the user's own ids are 0. All others appear as the
    /// overflow user, including root, so their files belong to no known user there.
    fn seen_from(self, inside: Option<Ids>) -> Self {
        let Some(ids) = inside else {
            return self;
        };
        let Self { uid, gid, mode } = self;
        Self {
            uid: if uid == 0 { ids.uid } else { uid },
            gid: if gid == 0 { ids.gid } else { gid },
            mode,
        }
    }

    /// Why others than the user and root may have written a file that decides about the walls; `None` if none has.
    fn doubt(
        self,
        person: &Person,
        inside: Option<Ids>,
        is_group_shared: impl FnOnce(u32) -> bool,
    ) -> Option<String> {
        if self.uid != person.uid && self.uid != 0 {
            return Some(format!(
                "belongs to user {}, but it decides about the walls: it must be your own file{}",
                self.uid,
                match inside {
                    Some(_) =>
                        " (without root's rights root's files cannot be told from a stranger's)",
                    None => " or root's",
                }
            ));
        }
        self.is_written_by_others(is_group_shared).then(|| {
            format!(
                "may be written by others (mode {:o}), but it decides about the walls: chmod go-w it",
                self.mode & 0o7777
            )
        })
    }

    /// A group counts as the owner if its number is the owner's and nobody else is in it.
    fn is_written_by_others(self, is_group_shared: impl FnOnce(u32) -> bool) -> bool {
        let by_group = self.mode & 0o020 != 0;
        self.mode & 0o002 != 0 || by_group && (self.gid != self.uid || is_group_shared(self.gid))
    }
}

/// Whether a user's own group has another member. Many systems set users up without: the group's number is the user's,
/// group(5) lists no member, and passwd(5) no other user of it. Members in a directory service are not known, and with an
/// access list the group's bits are those of all whom it names.
fn has_other_members(gid: u32) -> bool {
    let is_one = |path: &str, is_one: fn(&str, u32) -> bool| {
        let text = std::fs::read(path);
        text.is_ok_and(|text| is_one(&String::from_utf8_lossy(&text), gid))
    };
    let elsewhere = ["passwd", "group", "initgroups"];
    elsewhere.into_iter().any(accounts::has_directory)
        || !is_one("/etc/group", is_without_members)
        || !is_one("/etc/passwd", is_of_one_user)
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
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::probe::TestDir;
    use crate::wrap::person::Environment;

    fn person(uid: u32) -> Person {
        Person {
            uid,
            gid: uid,
            groups: Vec::new(),
            account: None,
            environment: Environment::Changed,
        }
    }

    fn access(uid: u32, gid: u32, mode: u32) -> Access {
        Access { uid, gid, mode }
    }

    #[test]
    fn a_file_that_decides_about_the_walls_is_written_by_its_user_and_root_alone() {
        let alice = person(1000);
        for (uid, gid, mode, expected) in [
            (1000, 1000, 0o100644, None),
            (1000, 100, 0o100644, None),
            (0, 0, 0o100644, None),
            (1001, 1001, 0o100600, Some("belongs to user 1001")),
            (65534, 65534, 0o100600, Some("belongs to user 65534")),
            (
                1000,
                1000,
                0o100646,
                Some("may be written by others (mode 646)"),
            ),
            (0, 0, 0o100666, Some("may be written by others (mode 666)")),
            // By a group that is not the owner's own.
            (
                1000,
                100,
                0o100664,
                Some("may be written by others (mode 664)"),
            ),
            (
                0,
                1000,
                0o100664,
                Some("may be written by others (mode 664)"),
            ),
        ] {
            let why = access(uid, gid, mode).doubt(&alice, None, |_| false);
            match (&why, expected) {
                (Some(why), Some(expected)) => assert!(why.starts_with(expected), "{why}"),
                (why, expected) => assert_eq!(why.as_deref(), expected, "{uid} {gid} {mode:o}"),
            }
        }
        // The user's own group, if nobody else is in it.
        for (is_shared, expected) in [(false, true), (true, false)] {
            let why = access(1000, 1000, 0o100664).doubt(&alice, None, |gid| {
                assert_eq!(gid, 1000);
                is_shared
            });
            assert_eq!(why.is_none(), expected, "{why:?}");
        }
    }

    #[test]
    fn without_roots_rights_roots_file_is_a_strangers() {
        let inside = Some(Ids {
            uid: 1000,
            gid: 100,
        });
        for (seen, expected) in [
            // The user's own ids, and those of all others.
            (access(0, 0, 0o644), access(1000, 100, 0o644)),
            (access(65534, 65534, 0o644), access(65534, 65534, 0o644)),
            (access(0, 65534, 0o664), access(1000, 65534, 0o664)),
        ] {
            assert_eq!(seen.seen_from(inside), expected);
            assert_eq!(seen.seen_from(None), seen);
        }
        let (own, roots) = (access(1000, 100, 0o644), access(65534, 65534, 0o644));
        assert_eq!(own.doubt(&person(1000), inside, |_| true), None);
        let why = roots.doubt(&person(1000), inside, |_| false).unwrap();
        assert!(
            why.ends_with("root's files cannot be told from a stranger's)"),
            "{why}"
        );
    }

    #[test]
    fn a_private_file_is_the_users_alone_and_has_one_name() {
        let base = TestDir::unique();
        let (path, second) = (base.0.join("secret"), base.0.join("second"));
        fs::write(&path, "value").unwrap();
        let own = person(rustix::process::geteuid().as_raw());
        let why = |person: &Person| check_private(&fs::metadata(&path).unwrap(), person).err();
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for good in [0o600, 0o400, 0o700] {
            mode(good);
            assert_eq!(why(&own), None, "{good:o}");
        }
        for bad in [0o640, 0o620, 0o604, 0o602, 0o610] {
            mode(bad);
            let expected = format!("has mode {bad:o}: chmod 600 it");
            assert_eq!(why(&own), Some(expected));
        }
        mode(0o600);
        let stranger = why(&person(own.uid + 1)).unwrap();
        assert!(stranger.ends_with("it must be your own"), "{stranger}");
        fs::hard_link(&path, &second).unwrap();
        let expected = "has 2 names (hard links): leave it one";
        assert_eq!(why(&own).as_deref(), Some(expected));
    }

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
