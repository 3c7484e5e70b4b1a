#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! Descriptors by which a container's path could lead to the node.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::process::{close_range, stat_of};

/// Closes the descriptors by which a path such as /proc/self/fd/N/../.. leads out of the container: directories, files
/// that can be executed, and every O_PATH descriptor. execve(2) resolves the program's path, and the interpreter's of a
/// script, before it closes descriptors, so close-on-exec does not help (CVE-2024-21626, runc 1.1.12).
///
/// What stays: the `kept` ones, and of the lower ones those that the program inherits, pipes, sockets, devices and files
/// that cannot be executed. Owners of others must not use them again. For a process that only executes a program.
pub fn close(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut first = 3;
    for number in stay(kept) {
        close_range(first, number - 1)?;
        first = number + 1;
    }
    close_range(first, RawFd::MAX)
}

/// The descriptors from 3 on that stay, from the lowest.
fn stay(kept: &[BorrowedFd<'_>]) -> BTreeSet<RawFd> {
    let kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    let highest = kept.iter().max().map_or(0, |number| number + BEYOND);
    let harmless = open_below(highest.max(SEARCHED))
        .into_iter()
        .filter(|number| {
            // SAFETY: fcntl(2) with an integer; a number that is not open gives EBADF.
            let flags = unsafe { libc::fcntl(*number, libc::F_GETFD) };
            flags >= 0 && (flags & libc::FD_CLOEXEC == 0 || !may_lead_out(*number))
        });
    kept.into_iter()
        .chain(harmless)
        .filter(|number| *number >= 3)
        .collect()
}

/// Descriptors from this number on are closed without a look. The runtime seldom has thirty.
const SEARCHED: RawFd = 1024;

/// With many mounts it has two for each. The kernel gives the lowest free number, so what was opened before a `kept` one
/// is below it, and what belongs to it is not far beyond.
const BEYOND: RawFd = 64;

/// The open descriptors from 3 to `end`, without those of O_PATH. One call finds them: poll(2) says which are not open.
fn open_below(end: RawFd) -> Vec<RawFd> {
    let asked = |fd| libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    };
    let mut all: Vec<libc::pollfd> = (3..end).map(asked).collect();
    // SAFETY: the array has this many entries, which the call writes to, and it keeps no pointer.
    let found = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, 0) };
    // RLIMIT_NOFILE may be smaller (EINVAL): then each is looked at.
    all.retain(|one| found < 0 || one.revents & libc::POLLNVAL == 0);
    all.into_iter().map(|one| one.fd).collect()
}

/// Whether it is a directory, or a file that can be executed.
fn may_lead_out(number: RawFd) -> bool {
    match stat_of(number).map(|stat| stat.st_mode) {
        Some(mode) if mode & libc::S_IFMT == libc::S_IFREG => mode & 0o111 != 0,
        Some(mode) => matches!(
            mode & libc::S_IFMT,
            libc::S_IFDIR | libc::S_IFLNK | libc::S_IFBLK
        ),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

    use super::*;

    #[test]
    fn directories_programs_and_paths_are_closed_and_the_rest_stays() {
        let opened = |path, flags| open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let directory = || opened("/usr", OFlags::RDONLY | OFlags::DIRECTORY);
        let program = || opened("/bin/sh", OFlags::RDONLY);
        let high = |fd: OwnedFd, number| fcntl_dupfd_cloexec(&fd, number).unwrap();
        let closed = [
            directory(),
            program(),
            opened("/etc/passwd", OFlags::PATH),
            opened("/dev/null", OFlags::PATH),
            high(directory(), 200),
            high(program(), SEARCHED + 20),
            high(directory(), SEARCHED + 330),
            // Beyond what is looked at.
            high(File::open("/etc/passwd").unwrap().into(), SEARCHED + 500),
        ];
        let promised = directory();
        fcntl_setfd(&promised, FdFlags::empty()).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let kept = [program(), high(program(), SEARCHED + 300)];
        let stays = [
            promised,
            one.into(),
            other.into(),
            high(read, SEARCHED + 40),
            write,
            File::open("/etc/passwd").unwrap().into(),
            File::open("/dev/null").unwrap().into(),
        ];
        let stay = stay(&[kept[0].as_fd(), kept[1].as_fd()]);
        for fd in closed {
            assert!(!stay.contains(&fd.as_raw_fd()), "{fd:?}");
        }
        for fd in stays.iter().chain(&kept) {
            assert!(stay.contains(&fd.as_raw_fd()), "{fd:?}");
        }
    }
}
