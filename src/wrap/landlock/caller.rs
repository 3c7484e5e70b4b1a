//! SHELL. The thread whose call is being answered: its memory, its directory and its descriptors.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::attributes::now;
use crate::sys::seccomp::notify::{self, NotifiedCall};

/// PATH_MAX
const LONGEST: usize = 4096;
/// A page. Mappings begin and end at page boundaries.
const PAGE: u64 = 4096;

/// A thread that waits for an answer.
pub struct Caller {
    thread: i32,
    /// Its directory in /proc, opened while it waited, so that its number was not reused.
    directory: OwnedFd,
    memory: OwnedFd,
}

impl Caller {
    /// Opens its directory and memory.
    pub fn open(listener: BorrowedFd<'_>, call: &NotifiedCall) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("/proc/{}", call.thread);
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        // EACCES or EPERM if the process made itself undumpable, or under a stricter Yama. Its call fails then.
        let memory = rustix::fs::openat(&directory, "mem", flags, Mode::empty());
        let memory = memory.map_err(|_| Errno::PERM)?;
        match notify::still_waits(listener, call) {
            true => Ok(Self {
                thread: call.thread,
                directory,
                memory,
            }),
            false => Err(Errno::SRCH),
        }
    }

    /// Its thread id.
    pub fn thread(&self) -> i32 {
        self.thread
    }

    /// Opens one of its links: `cwd`, `fd/N`.
    pub fn link(&self, link: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, link, flags, Mode::empty())
    }

    /// The file of one of its descriptors.
    pub fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        self.link(&format!("fd/{number}"))
            .map_err(|error| match error {
                Errno::NOENT => Errno::BADF,
                other => other,
            })
    }

    /// Whether one of its descriptors is a socket, at this moment.
    pub fn is_socket(&self, number: i32) -> Result<bool, Errno> {
        let link = rustix::fs::readlinkat(&self.directory, format!("fd/{number}"), Vec::new());
        let name = link.map_err(|error| match error {
            Errno::NOENT => Errno::BADF,
            other => other,
        })?;
        Ok(name.to_bytes().starts_with(b"socket:"))
    }

    /// Opens its process. Ask whether it still waits before this is used.
    pub fn process(&self) -> Result<OwnedFd, Errno> {
        // PIDFD_THREAD, since Linux 6.9: older kernels open only a process's first thread.
        let thread = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
        match pidfd_open(pid(self.thread)?, thread) {
            Err(Errno::INVAL) => pidfd_open(pid(self.first_thread()?)?, PidfdFlags::empty()),
            opened => opened,
        }
    }

    /// `Tgid` of proc_pid_status(5).
    fn first_thread(&self) -> Result<i32, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, "status", flags, Mode::empty())?;
        let mut text = vec![0; PAGE as usize];
        let length = rustix::io::read(&file, &mut text)?;
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        let number = text.lines().find_map(|line| line.strip_prefix("Tgid:"));
        number
            .and_then(|number| number.trim().parse().ok())
            .ok_or(Errno::SRCH)
    }

    /// Reads its memory.
    pub fn memory(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        let mut read = 0;
        while read < into.len() {
            let place = at.checked_add(read as u64).ok_or(Errno::FAULT)?;
            match rustix::io::pread(&self.memory, &mut into[read..], place) {
                Ok(0) | Err(_) => return Err(Errno::FAULT),
                Ok(length) => read += length,
            }
        }
        Ok(())
    }

    /// A text that ends in NUL.
    pub fn text(&self, at: u64) -> Result<CString, Errno> {
        let mut text = Vec::new();
        while text.len() < LONGEST {
            let place = at.checked_add(text.len() as u64).ok_or(Errno::FAULT)?;
            // Not past the end of a page: the next one may not be mapped.
            let mut piece =
                vec![0; usize::try_from(PAGE - place % PAGE).map_err(|_| Errno::FAULT)?];
            self.memory(place, &mut piece)?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&piece[..end]);
                return CString::new(text).map_err(|_| Errno::INVAL);
            }
            text.extend(piece);
        }
        Err(Errno::NAMETOOLONG)
    }

    /// `struct timespec[2]` of utimensat(2).
    pub fn times(&self, at: u64) -> Result<Timestamps, Errno> {
        let Some([a, b, c, d]) = self.numbers(at)? else {
            return Ok(now());
        };
        Ok(stamps((a, b), (c, d)))
    }

    /// `struct timeval[2]` of utimes(2).
    pub fn times_of_utimes(&self, at: u64) -> Result<Timestamps, Errno> {
        let Some([a, b, c, d]) = self.numbers(at)? else {
            return Ok(now());
        };
        let micro = |value: i64| match value {
            0..1_000_000 => Ok(value * 1000),
            _ => Err(Errno::INVAL),
        };
        Ok(stamps((a, micro(b)?), (c, micro(d)?)))
    }

    /// `struct utimbuf` of utime(2).
    pub fn times_of_utime(&self, at: u64) -> Result<Timestamps, Errno> {
        let Some([access, change]) = self.numbers(at)? else {
            return Ok(now());
        };
        Ok(stamps((access, 0), (change, 0)))
    }

    /// `N` numbers; `None` for a null pointer.
    fn numbers<const N: usize>(&self, at: u64) -> Result<Option<[i64; N]>, Errno> {
        if at == 0 {
            return Ok(None);
        }
        let mut all = [0; N];
        for (index, number) in all.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            self.memory(at + 8 * index as u64, &mut bytes)?;
            *number = i64::from_ne_bytes(bytes);
        }
        Ok(Some(all))
    }
}

fn pid(number: i32) -> Result<Pid, Errno> {
    Pid::from_raw(number).ok_or(Errno::SRCH)
}

fn stamps(access: (i64, i64), change: (i64, i64)) -> Timestamps {
    let stamp = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    Timestamps {
        last_access: stamp(access),
        last_modification: stamp(change),
    }
}
