//! Which descriptors a container's process may inherit.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use oci_spec::runtime::{PosixRlimit, PosixRlimitType, Process, Spec};
use rustix::fs::{Dev, FileType, OFlags, SeekFrom, Stat};

use crate::enforce::EnforceError;
use crate::kernel::mount_options::{Bits, MountReach};
use crate::plan::Plan;
use crate::plan::wrap_plan::WrapEnforcement;
use crate::probe::is_bind;
use crate::runtime::RuntimeError;
use crate::runtime::create::error::CreateError;
use crate::runtime::input::ProcessRefusal;
use crate::sys::open_files;

/// Which descriptors a process may inherit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorRule {
    /// All descriptors.
    Any,
    /// Under a policy: only descriptors that lead to no file and no network.
    Harmless,
}

impl DescriptorRule {
    /// The rule for a container with this plan.
    pub fn of(plan: Option<&Plan>) -> Self {
        match plan {
            Some(_) => Self::Harmless,
            None => Self::Any,
        }
    }
}

/// Checks that every descriptor promised to the container (`--preserve-fds`, LISTEN_FDS) exists. Under a policy it must
/// be a pipe; standard input, output and error must at least be no directory or disk. A socket is a way out that no wall sees,
/// a directory gives the node's files, and a file can be opened again for writing ([`crate::runtime::foreground::relay`]).
///
/// The runtime's own descriptors are close-on-exec; a promised one never is.
pub fn check(preserve: i32, let_in: DescriptorRule) -> Result<(), RuntimeError> {
    for number in promised(preserve) {
        let Some(found) = look(number).filter(|_| !is_own(number)) else {
            return Err(refused(number, "it is not open"));
        };
        if let_in == DescriptorRule::Harmless && !found.is_harmless() {
            return Err(refused(number, "under a policy only pipes are"));
        }
    }
    check_standard(let_in)
}

/// The same for standard input, output and error alone.
pub fn check_standard(let_in: DescriptorRule) -> Result<(), RuntimeError> {
    let standard = (0..3).filter_map(|n| Some((n, look(n)?)));
    for (number, found) in standard {
        if let_in == DescriptorRule::Harmless && found.leads_to_files() {
            return Err(refused(
                number,
                "under a policy no directory, path or disk is",
            ));
        }
        let stream = crate::sys::process::borrow_inherited(number);
        if let_in == DescriptorRule::Harmless
            && found.kind() == FileType::Socket
            && !stream.is_some_and(is_harmless_socket)
        {
            return Err(refused(
                number,
                "it is a socket that could be connected elsewhere: use a pipe",
            ));
        }
    }
    Ok(())
}

/// The numbers of the promised descriptors.
fn promised(preserve: i32) -> std::ops::Range<i32> {
    let listen: i32 = std::env::var("LISTEN_FDS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0);
    3..3_i32.saturating_add(preserve).saturating_add(listen)
}

/// Where a process's standard input, output and error come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandardStreams {
    /// The caller's own.
    Callers,
    /// The runtime's pipes, or a terminal.
    Replaced,
}

/// The first inherited descriptor that leads to a file of the node: the process could change the file's mode
/// (fchmod(2)).
pub fn handed_file(preserve: i32, standard: StandardStreams) -> Option<i32> {
    let own = match standard {
        StandardStreams::Callers => 0..3,
        StandardStreams::Replaced => 0..0,
    };
    let mut all = own.chain(promised(preserve));
    all.find(|number| look(*number).is_some_and(|found| found.is_file()))
}

/// In place of standard input, for a process that nothing relays to: the same file through a mount that cannot be written. By
/// /proc/self/fd the caller's own could be opened again for writing. `None` for what is no file.
///
/// Needs the rights of the mount namespace that the file is in (open_tree(2), OPEN_TREE_CLONE).
pub fn read_only_input() -> Result<Option<OwnedFd>, RuntimeError> {
    let input = rustix::stdio::stdin();
    let is_file = look(0).is_some_and(|found| found.kind() == FileType::RegularFile);
    if !is_file {
        return Ok(None);
    }
    match read_only(input) {
        Ok(file) => Ok(Some(file)),
        Err(_) => Err(refused(
            0,
            "a file there could be opened again for writing: use a pipe (cat FILE | ...)",
        )),
    }
}

fn read_only(file: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let mount = crate::sys::mount::copy(file, MountReach::One)?;
    crate::sys::mount::change(mount.as_fd(), Bits::READ_ONLY, None, MountReach::One)?;
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    if let Ok(at) = rustix::fs::seek(file, SeekFrom::Current(0)) {
        rustix::fs::seek(&opened, SeekFrom::Start(at))?;
    }
    Ok(opened)
}

/// Refuses, by its name, a limit of descriptors that is too low to set up the process: libcontainer would only
/// say that a channel broke. Each layer of an image takes one more, and each descriptor that the caller left open.
pub fn check_limit(
    process: &Process,
    plan: Option<&Plan>,
    layers: usize,
) -> Result<(), RuntimeError> {
    let mut limits = process.rlimits().iter().flatten();
    let files = limits.find(|limit| limit.typ() == PosixRlimitType::RlimitNofile);
    let Some(soft) = files.map(PosixRlimit::soft) else {
        return Ok(());
    };
    // What the set-up needs, without and with walls, besides mounts; libcontainer sets the limit before it.
    let free = plan.map_or(20, |_| 28) + layers as u64;
    let needed = match soft < free + MOST_INHERITED {
        true => least_limit(free, |number| !is_own(number)),
        false => free,
    };
    match soft < needed {
        true => Err(ProcessRefusal::FewFiles { soft, needed }.into()),
        false => Ok(()),
    }
}

/// Callers leave fewer descriptors open than this.
const MOST_INHERITED: u64 = 256;

/// The least limit that leaves so many numbers free beside those which the caller left open: it is one above the highest
/// number (getrlimit(2)), and the standard streams count as free.
fn least_limit(free: u64, is_inherited: impl Fn(i32) -> bool) -> u64 {
    let mut least = free;
    for number in 3..MOST_INHERITED as i32 {
        if number as u64 >= least {
            break;
        }
        least += u64::from(is_inherited(number));
    }
    least
}

/// What a container needs besides its mounts.
const BESIDES: u64 = 64;

/// Raises the limit of descriptors for the mounts of a spec, each of which is a source and a copy of it; by rules, a
/// source. Refuses a hard limit that is too low: in the container's process the error would name no cure.
pub fn make_room(spec: &Spec, by: WrapEnforcement) -> Result<(), RuntimeError> {
    let each = match by {
        WrapEnforcement::Mounts => 2,
        WrapEnforcement::Rules => 1,
    };
    let mounts = spec
        .mounts()
        .iter()
        .flatten()
        .filter(|mount| is_bind(mount));
    let mounts = mounts.count() as u64;
    let needed = mounts * each + BESIDES;
    match open_files::raise() {
        limit if limit < needed => Err(CreateError::ManyMounts {
            mounts,
            needed,
            limit,
        }
        .into()),
        _ => Ok(()),
    }
}

fn refused(fd: i32, why: &'static str) -> RuntimeError {
    EnforceError::Descriptor { fd, why }.into()
}

/// An inherited descriptor.
struct DescriptorInfo {
    stat: Stat,
    path_only: bool,
}

/// Whether it is one of the runtime's own.
fn is_own(number: i32) -> bool {
    let fd = crate::sys::process::borrow_inherited(number);
    let inherited = |fd: BorrowedFd<'_>| {
        let flags = rustix::io::fcntl_getfd(fd);
        flags.is_ok_and(|f| !f.contains(rustix::io::FdFlags::CLOEXEC))
    };
    !fd.is_some_and(inherited)
}

/// Inspects a descriptor; `None` if it is not open.
fn look(number: i32) -> Option<DescriptorInfo> {
    let fd: BorrowedFd<'_> = crate::sys::process::borrow_inherited(number)?;
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    Some(DescriptorInfo {
        stat: rustix::fs::fstat(fd).ok()?,
        path_only: flags.contains(OFlags::PATH),
    })
}

/// Whether it is one of memory(4) that gives nothing: null, zero, full, random, urandom.
pub fn is_memory_device(device: Dev) -> bool {
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    matches!(device, (1, 3 | 5 | 7 | 8 | 9))
}

/// Whether a socket leads nowhere else: a connected one of unix(7). Clients start their servers with such pairs. Another could be
/// connected to another address.
pub fn is_harmless_socket(stream: BorrowedFd<'_>) -> bool {
    use rustix::net::{AddressFamily, SocketType, sockopt};
    let is_unix = sockopt::socket_domain(stream) == Ok(AddressFamily::UNIX);
    let kind = sockopt::socket_type(stream);
    let keeps_its_peer =
        kind.is_ok_and(|kind| [SocketType::STREAM, SocketType::SEQPACKET].contains(&kind));
    is_unix && keeps_its_peer && rustix::net::getpeername(stream).is_ok()
}

impl DescriptorInfo {
    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    fn is_file(&self) -> bool {
        self.leads_to_files() || self.kind() == FileType::RegularFile
    }

    fn is_harmless(&self) -> bool {
        match self.kind() {
            // Anonymous inodes (io_uring, pidfd, bpf, ...) have no type, and are not among these.
            FileType::Fifo => !self.path_only,
            FileType::CharacterDevice => is_memory_device(self.stat.st_rdev),
            _ => false,
        }
    }

    fn leads_to_files(&self) -> bool {
        self.path_only || matches!(self.kind(), FileType::Directory | FileType::BlockDevice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promised_descriptor_must_exist() {
        assert!(check(1_000, DescriptorRule::Any).is_err());
        assert!(check(0, DescriptorRule::Harmless).is_ok());
    }

    #[test]
    fn descriptors_above_the_limit_take_no_room_in_it() {
        assert_eq!(least_limit(20, |_| false), 20);
        assert_eq!(least_limit(20, |number| number < 9), 26);
        assert_eq!(least_limit(20, |number| (18..24).contains(&number)), 26);
        assert_eq!(least_limit(20, |number| number >= 20), 20);
        assert_eq!(least_limit(20, |_| true), 20 + 253);
    }

    #[test]
    fn a_file_is_told_apart_from_a_pipe_and_a_device() {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open("/etc/passwd").unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let is_file = |fd| look(fd).unwrap().is_file();
        assert!(is_file(file.as_raw_fd()));
        assert!(!is_file(null.as_raw_fd()) && !is_file(pipe.as_raw_fd()));
    }

    #[test]
    fn a_directory_and_a_path_lead_to_files_and_a_pipe_does_not() {
        use std::os::fd::{AsFd, AsRawFd};
        let open = |flags| {
            rustix::fs::open("/", flags | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()
        };
        for directory in [open(OFlags::RDONLY), open(OFlags::PATH)] {
            let found = look(directory.as_fd().as_raw_fd()).unwrap();
            assert!(found.leads_to_files() && !found.is_harmless());
            assert!(is_own(directory.as_fd().as_raw_fd()));
        }
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let found = look(pipe.as_raw_fd()).unwrap();
        assert!(found.is_harmless() && !found.leads_to_files());
        let (socket, _other) = crate::sys::socket::pair().unwrap();
        assert!(!look(socket.as_raw_fd()).unwrap().is_harmless());
    }
}
