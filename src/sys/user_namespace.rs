#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! User namespaces with one user and one group (user_namespaces(7)), the only kind that an ordinary user can make
//! alone.

use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::UnshareFlags;

use crate::sys::procfs;

/// kernel.overflowuid, the default of every distribution.
const OVERFLOW: u32 = 65534;

/// What the maps say, read once: it is needed for every file and at each step of `create`.
static KNOWN: Mutex<Option<KnownMaps>> = Mutex::new(None);

const UID_MAP: &str = "/proc/self/uid_map";

/// What the maps of this process's user namespace say.
#[derive(Debug, Clone, Copy)]
struct KnownMaps {
    /// The only line of the uid_map, if it maps one id.
    only: Option<IdMapLine>,
    /// See [`only_user`].
    user: Option<Ids>,
    /// See [`maps_everyone`].
    everyone: bool,
}

impl KnownMaps {
    fn of(uid_map: &str, gid_map: &str) -> Self {
        let user = only(uid_map).zip(only(gid_map));
        Self {
            only: one(uid_map),
            user: user.map(|(uid, gid)| Ids { uid, gid }),
            everyone: uid_map
                .split_whitespace()
                .any(|field| field == "4294967295"),
        }
    }
}

/// Read again after this process has made a user namespace; only the functions below enter one.
fn known() -> io::Result<KnownMaps> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(maps) = *known {
        return Ok(maps);
    }
    let uid_map = procfs::text(UID_MAP)?;
    let gid_map = procfs::text("/proc/self/gid_map")?;
    Ok(*known.insert(KnownMaps::of(&uid_map, &gid_map)))
}

/// The only user and the only group of a user namespace, by their ids in the parent namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Moves the calling process, which must have one thread, to a new user namespace and a new mount namespace that
/// belongs to it. It has all capabilities there, and no user is mapped yet.
pub fn unshare_with_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
}

/// Moves the calling process, which must have one thread, to a new user namespace below its own.
pub fn unshare_user() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    forget();
    // SAFETY: `unshare_unsafe` is unsafe because CLONE_FILES would leave other threads with another descriptor table than this
    // one; only NEWUSER and NEWNS get here, which leave memory and descriptors as they are.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// The maps have changed.
fn forget() {
    *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Maps one user and one group: `inside` are their ids in the calling process's namespace, which has no map yet, and
/// `above` those in the parent namespace, which are the caller's. Gives up setgroups(2) first, as the kernel requires
/// from callers without a capability in the parent.
pub fn map_one(inside: Ids, above: Ids) -> io::Result<()> {
    forget();
    write("/proc/self/setgroups", "deny")?;
    write(
        "/proc/self/uid_map",
        &format!("{} {} 1\n", inside.uid, above.uid),
    )?;
    write(
        "/proc/self/gid_map",
        &format!("{} {} 1\n", inside.gid, above.gid),
    )
}

/// Writes a map in one write, as the kernel requires.
fn write(path: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    match rustix::io::write(file, text.as_bytes())? {
        length if length == text.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Who root of this user namespace is in the parent, if it is the only user; `None` if the namespace has other users,
/// as the initial one has all.
pub fn only_user() -> io::Result<Option<Ids>> {
    Ok(known()?.user)
}

/// Whether every user id has a user here, as in the initial user namespace.
pub fn maps_everyone() -> io::Result<bool> {
    Ok(known()?.everyone)
}

/// Whether an id stands for users whom this user namespace does not map, and not for its own user of this id.
pub fn is_unmapped(shown: u32) -> bool {
    shown == OVERFLOW && procfs::text(UID_MAP).is_ok_and(|map| !maps(&map, OVERFLOW))
}

/// Whether a map (user_namespaces(7)) has a line for this id.
fn maps(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
        match (number(), number(), number()) {
            (Some(first), Some(_), Some(count)) => {
                (first..first.saturating_add(count)).contains(&u64::from(id))
            }
            _ => false,
        }
    })
}

/// A file's owner, as far as it can be told. In a user namespace with one user the kernel shows that user's id there
/// (root's in [`unshare_with_mounts`]'s), and all other users, also root, as the overflow user (user_namespaces(7),
/// "Unmapped user and group IDs"). Then the overflow user counts as root, and the mapped id as the user. What matters
/// is that the user cannot have made the file.
pub fn owner(shown: u32) -> u32 {
    owner_in(shown, known().ok().and_then(|maps| maps.only))
}

fn owner_in(shown: u32, only: Option<IdMapLine>) -> u32 {
    match only {
        Some(one) if shown == one.inside => one.above,
        Some(IdMapLine { above: 1.., .. }) if shown == OVERFLOW => 0,
        _ => shown,
    }
}

/// The only line of a map, for one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IdMapLine {
    inside: u32,
    above: u32,
}

fn one(map: &str) -> Option<IdMapLine> {
    let mut lines = map.lines();
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let numbers: Vec<u32> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    match numbers[..] {
        [inside, above, 1] => Some(IdMapLine { inside, above }),
        _ => None,
    }
}

/// Who root is in the parent, if it is the only user.
fn only(map: &str) -> Option<u32> {
    one(map).filter(|one| one.inside == 0).map(|one| one.above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_never_taken_for_root() {
        let me = one("0 1000 1");
        assert_eq!((owner_in(0, me), owner_in(OVERFLOW, me)), (1000, 0));
        let myself = one("1000 1000 1");
        assert_eq!(
            (owner_in(1000, myself), owner_in(OVERFLOW, myself)),
            (1000, 0)
        );
        // Without a user namespace, and in one of root's own, ids are unchanged.
        for only in [None, one("0 0 1"), one("0 0 4294967295")] {
            assert_eq!((owner_in(0, only), owner_in(OVERFLOW, only)), (0, OVERFLOW));
        }
        assert_eq!(owner_in(7, me), 7);
    }

    #[test]
    fn only_a_map_with_root_alone_has_one_user() {
        assert_eq!(only("         0       1000          1\n"), Some(1000));
        for other in [
            "",
            "0 0 4294967295\n",
            "0 100000 65536\n",
            "1000 0 1\n",
            "0 1000 1\n1 100000 65536\n",
            "0 x 1\n",
        ] {
            assert_eq!(only(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_nodes_namespace_maps_every_user() {
        let everyone = |map: &str| KnownMaps::of(map, map).everyone;
        assert!(everyone("         0          0 4294967295\n"));
        for fewer in [
            "",
            "0 1000 1\n",
            "0 100000 65536\n",
            "0 1000 1\n1 100000 65536\n",
        ] {
            assert!(!everyone(fewer), "{fewer}");
        }
        assert!(maps("         0          0 4294967295\n", OVERFLOW));
        assert!(!maps("0 1000 1\n1 100000 65000\n", OVERFLOW));
        assert!(maps("0 1000 1\n1 100000 65536\n", OVERFLOW));
        assert!(!maps("", OVERFLOW));
    }
}
