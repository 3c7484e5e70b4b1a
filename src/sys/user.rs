//! The ids of the calling thread, and joining a user namespace as one of its users.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, WaitOptions, waitpid};

/// A user of a user namespace.
pub struct JoinedUser {
    /// The namespace.
    pub namespace: OwnedFd,
    /// User id there.
    pub uid: u32,
    /// Group id there.
    pub gid: u32,
    /// Additional group ids there.
    pub groups: Vec<u32>,
}

/// Joins a user namespace and takes ids of it, for the calling thread, which must be the only one.
///
/// The previous groups mean nothing there and are dropped; if the namespace forbids setgroups(2) they stay. Keeps the
/// permitted capabilities over the change of user: the caller drops them by a plan.
pub fn join(user: &JoinedUser) -> io::Result<()> {
    let JoinedUser {
        namespace,
        uid,
        gid,
        groups,
    } = user;
    super::netns::enter_user(namespace.as_fd())?;
    rustix::thread::set_keep_capabilities(true)?;
    match set_groups(groups) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) && groups.is_empty() => {}
        other => other?,
    }
    set_ids(*uid, *gid)
}

/// Gives the calling thread, which must be the only one, these ids in place of all three of each kind. It keeps its
/// permitted capabilities, of which none is effective then, unless it is root.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    rustix::thread::set_keep_capabilities(true)?;
    set_ids(uid, gid)?;
    Ok(rustix::thread::set_keep_capabilities(false)?)
}

fn set_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: three integers; setresgid(2) touches no memory. The raw call, since the C library's would signal threads.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Gives the calling thread, which must be the only one, another effective group; its real and saved ones stay
/// (setresgid(2)).
pub fn set_effective_group(gid: u32) -> io::Result<()> {
    let same = u32::MAX;
    // SAFETY: three integers; setresgid(2) touches no memory.
    check(unsafe { libc::syscall(libc::SYS_setresgid, same, gid, same) })
}

/// Gives the calling thread, which must be the only one, exactly these supplementary groups (setgroups(2)).
pub fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads as many ids as the slice has, each a 32-bit gid_t.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })
}

/// The supplementary groups of the calling thread, as the kernel reports them.
pub fn groups() -> io::Result<Vec<u32>> {
    // SAFETY: with a size of 0 the kernel only answers how many there are, and writes nothing.
    let count = unsafe { libc::syscall(libc::SYS_getgroups, 0, std::ptr::null_mut::<u32>()) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let mut groups = vec![0_u32; count];
    // SAFETY: the kernel writes at most `count` ids of 32 bits each into a buffer of that many.
    let count = unsafe { libc::syscall(libc::SYS_getgroups, count, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).map_err(|_| io::Error::last_os_error())?);
    Ok(groups)
}

fn check(rc: libc::c_long) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes a user namespace with these maps (user_namespaces(7), lines of `inside outside count`). The caller needs
/// CAP_SETUID and CAP_SETGID here; the namespace lives as long as the descriptor or a process in it.
pub fn make_namespace(uid_map: &str, gid_map: &str) -> io::Result<OwnedFd> {
    let (ours, theirs) = super::socket::pair()?;
    let mut ours = Some(ours);
    let child = super::process::fork_into(|| {
        // Close the parent's end, or the child would wait for itself.
        drop(ours.take());
        // SAFETY: CLONE_NEWUSER alone leaves memory and descriptors as they are; this process has one thread.
        let made = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) };
        let mut byte = [0];
        let told = made.is_ok() && rustix::io::write(&theirs, &[1]).is_ok();
        // Wait until the maps are written and a descriptor holds the namespace.
        i32::from(!told || rustix::io::read(&theirs, &mut byte).is_err())
    })?;
    drop(theirs);
    let result = ours.as_ref().map_or_else(
        || Err(io::Error::from_raw_os_error(libc::EINVAL)),
        |ours| hold(child, ours, uid_map, gid_map),
    );
    drop(ours);
    waitpid(Some(child), WaitOptions::empty())?;
    result
}

/// Waits for the child's namespace, maps its ids and opens it.
fn hold(child: Pid, ours: &OwnedFd, uid_map: &str, gid_map: &str) -> io::Result<OwnedFd> {
    let mut byte = [0];
    if rustix::io::read(ours, &mut byte)? == 0 {
        return Err(io::Error::other("unshare(CLONE_NEWUSER) was refused"));
    }
    let child = child.as_raw_pid();
    std::fs::write(format!("/proc/{child}/uid_map"), uid_map)?;
    std::fs::write(format!("/proc/{child}/gid_map"), gid_map)?;
    Ok(std::fs::File::open(format!("/proc/{child}/ns/user"))?.into())
}

/// Runs `work` with root's file system ids, so that new files belong to root (setfsuid(2)). Afterwards the effective
/// capabilities over files are gone, unless the process is root.
pub fn with_files_of_root<T>(work: impl FnOnce() -> T) -> T {
    let (user, group) = set_file_ids(0, 0);
    let result = work();
    set_file_ids(user, group);
    result
}

/// Sets the file system ids and returns the previous ones.
fn set_file_ids(user: u32, group: u32) -> (u32, u32) {
    // SAFETY: integers alone; both return the id before, and never fail in a way that shows (setfsuid(2)).
    let group = unsafe { libc::syscall(libc::SYS_setfsgid, group) };
    // SAFETY: as above.
    let user = unsafe { libc::syscall(libc::SYS_setfsuid, user) };
    (user as u32, group as u32)
}
