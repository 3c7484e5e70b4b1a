#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! User namespaces with one user and one group (user_namespaces(7)), the only kind that an ordinary user can make
//! alone.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::UnshareFlags;

use crate::sys::{netns, procfs};

/// `NS_GET_USERNS` of linux/nsfs.h.
const GET_USER_NAMESPACE: libc::Ioctl = 0xb701;
/// `NS_GET_PARENT` of linux/nsfs.h; libc does not have it.
const GET_PARENT: libc::Ioctl = 0xb702;
/// `NS_GET_OWNER_UID` of linux/nsfs.h.
const GET_OWNER_UID: libc::Ioctl = 0xb704;

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

/// Moves the calling process, which must have one thread, to an existing user namespace, and to a new mount namespace
/// that belongs to it. It has all capabilities there; the kernel allows that to the namespace's owner.
pub fn join_with_mounts(namespace: BorrowedFd<'_>) -> io::Result<()> {
    forget();
    netns::enter_user(namespace)?;
    unshare(UnshareFlags::NEWNS)
}

/// The user namespace above one that is below the calling process's own, or its own (ioctl_ns(2)). The kernel refuses
/// one of which it cannot see the parent.
pub fn parent(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    related(namespace, GET_PARENT)
}

fn related(namespace: BorrowedFd<'_>, which: libc::Ioctl) -> io::Result<OwnedFd> {
    // SAFETY: both requests take no argument and return a new descriptor or -1.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), which) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us (close-on-exec, see `open_related_ns` in fs/nsfs.c), so nobody
    // else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The user namespace to which a namespace of another kind belongs (ioctl_ns(2)).
pub fn owner_of(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    related(namespace, GET_USER_NAMESPACE)
}

/// The user who made a user namespace, as the calling process's namespace numbers users (ioctl_ns(2)).
pub fn maker(namespace: BorrowedFd<'_>) -> io::Result<u32> {
    let mut uid: libc::uid_t = u32::MAX;
    // SAFETY: NS_GET_OWNER_UID writes one uid_t to the address, which is this variable's.
    match unsafe { libc::ioctl(namespace.as_raw_fd(), GET_OWNER_UID, &raw mut uid) } {
        0 => Ok(uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The user namespace of a process, by its pid; of the calling process by `self`. The kernel opens it only to those who
/// may trace the process (namespaces(7)).
pub fn of_process(process: impl std::fmt::Display) -> io::Result<OwnedFd> {
    open(process, "user")
}

/// The mount namespace of a process; the kernel opens it as above.
pub fn mounts_of_process(process: impl std::fmt::Display) -> io::Result<OwnedFd> {
    open(process, "mnt")
}

fn open(process: impl std::fmt::Display, kind: &str) -> io::Result<OwnedFd> {
    let path = format!("/proc/{process}/ns/{kind}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Whether two descriptors are of one namespace (namespaces(7), "The /proc/pid/ns/ directory").
pub fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let identity =
        |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    Ok(identity(one.as_fd())? == identity(other.as_fd())?)
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
    fn a_namespace_has_itself_and_no_visible_parent_from_inside() {
        let own = of_process("self").unwrap();
        let again = of_process(std::process::id()).unwrap();
        assert!(is_same(own.as_fd(), again.as_fd()).unwrap());
        // Of the calling process's own namespace the kernel does not show what is above.
        assert!(parent(own.as_fd()).is_err());
        let network = std::fs::File::open("/proc/self/ns/net").unwrap();
        assert!(!is_same(own.as_fd(), network.as_fd()).unwrap());
        assert!(maker(network.as_fd()).is_err());
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
