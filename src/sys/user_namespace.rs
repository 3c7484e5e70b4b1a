#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! User namespaces with one user and one group (user_namespaces(7)), the only ones that an ordinary user can make alone.

use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::UnshareFlags;

use crate::sys::procfs;

/// kernel.overflowuid, as every distribution leaves it.
const OVERFLOW: u32 = 65534;

/// What uid_map said last, since it is asked for every file.
static ONLY: Mutex<Option<Option<IdMapLine>>> = Mutex::new(None);

/// What [`only_user`] found last, since each step of `create` asks it.
static USER: Mutex<Option<Option<Ids>>> = Mutex::new(None);

const UID_MAP: &str = "/proc/self/uid_map";

/// The one user and the one group of a user namespace, as the namespace above knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Moves the calling process, which must have one thread, to a new user namespace and a new mount namespace that belongs to
/// it. It has all capabilities there, and nobody is mapped yet.
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

/// The maps are others from now on.
fn forget() {
    *ONLY.lock().unwrap_or_else(PoisonError::into_inner) = None;
    *USER.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Maps one user and one group: `inside` are their numbers in the calling process's namespace, which has no map yet, and
/// `above` those of the namespace above, which are the caller's. setgroups(2) is given up first: the kernel wants that of
/// whoever has no capability above.
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

/// One write, as the kernel wants a map.
fn write(path: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    match rustix::io::write(file, text.as_bytes())? {
        length if length == text.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Whom root of the calling process's user namespace is above, if it is the only user there; `None` where the namespace has
/// other users, as the node's first one has all. Read once, and again after the calling process has made a user namespace.
pub fn only_user() -> io::Result<Option<Ids>> {
    let mut known = USER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(user) = *known {
        return Ok(user);
    }
    let uid = only(&procfs::text(UID_MAP)?);
    let gid = only(&procfs::text("/proc/self/gid_map")?);
    Ok(*known.insert(uid.zip(gid).map(|(uid, gid)| Ids { uid, gid })))
}

/// Whether a number stands for users of whom this user namespace knows nothing, and not for its own user of this number.
pub fn is_unmapped(shown: u32) -> bool {
    shown == OVERFLOW && procfs::text(UID_MAP).is_ok_and(|map| !maps(&map, OVERFLOW))
}

/// Whether a map (user_namespaces(7)) has a line for this number.
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

/// Who owns a file, as far as that can be told: in a user namespace with one user the kernel shows that person by the
/// number there, root's in [`unshare_with_mounts`]'s, and everybody else, root among them, as the overflow user (user_namespaces(7), "Unmapped user and group IDs"). Nobody's files are
/// taken for root's then, and the person's for the person's. What counts is that the person cannot have made it.
pub fn owner(shown: u32) -> u32 {
    // A user namespace is entered by one's own making alone, below.
    let mut known = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
    owner_in(
        shown,
        *known.get_or_insert_with(|| one(&procfs::text(UID_MAP).ok()?)),
    )
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

/// Whom root is above, where there is nobody else.
fn only(map: &str) -> Option<u32> {
    one(map).filter(|one| one.inside == 0).map(|one| one.above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_person_is_never_taken_for_root() {
        let me = one("0 1000 1");
        assert_eq!((owner_in(0, me), owner_in(OVERFLOW, me)), (1000, 0));
        let myself = one("1000 1000 1");
        assert_eq!(
            (owner_in(1000, myself), owner_in(OVERFLOW, myself)),
            (1000, 0)
        );
        // Without a namespace of one's own, and for root's own in one, numbers are what they are.
        for only in [None, one("0 0 1"), one("0 0 4294967295")] {
            assert_eq!((owner_in(0, only), owner_in(OVERFLOW, only)), (0, OVERFLOW));
        }
        assert_eq!(owner_in(7, me), 7);
    }

    #[test]
    fn only_a_map_of_root_alone_is_one_users() {
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
    fn the_nodes_own_namespace_maps_everybody() {
        assert!(maps("         0          0 4294967295\n", OVERFLOW));
        assert!(!maps("0 1000 1\n1 100000 65000\n", OVERFLOW));
        assert!(maps("0 1000 1\n1 100000 65536\n", OVERFLOW));
        assert!(!maps("", OVERFLOW));
    }
}
