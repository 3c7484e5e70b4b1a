//! name_to_handle_at(2) and open_by_handle_at(2): a file by its identity, wherever it was moved.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// MAX_HANDLE_SZ of `linux/exportfs.h`.
const MOST: usize = 128;

/// `struct file_handle` with room for the largest.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    data: [u8; MOST],
}

impl Handle {
    /// One of this type (`handle_type`) and data; none where that is empty or longer than any.
    pub fn new(kind: libc::c_int, bytes: &[u8]) -> Option<Self> {
        let mut data = [0; MOST];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let length = libc::c_uint::try_from(bytes.len()).ok()?;
        (length > 0).then_some(Self {
            bytes: length,
            kind,
            data,
        })
    }

    /// Its type.
    pub fn kind(&self) -> libc::c_int {
        self.kind
    }

    /// Its data, as much as there is.
    pub fn data(&self) -> &[u8] {
        let length = usize::try_from(self.bytes).unwrap_or(MOST);
        &self.data[..length.min(MOST)]
    }
}

/// The handle of an entry of a directory. EOPNOTSUPP where the file system has none.
pub fn of(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Handle> {
    let mut handle = Handle {
        bytes: MOST as libc::c_uint,
        kind: 0,
        data: [0; MOST],
    };
    let mut mount: libc::c_int = 0;
    // SAFETY: `name` is NUL-terminated; `handle` has the kernel's layout and says how many bytes of data it has room for,
    // which is all that the kernel writes; `mount` is one int. All live until the call returns.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_raw_fd(),
            name.as_ptr(),
            std::ptr::from_mut(&mut handle),
            std::ptr::from_mut(&mut mount),
            0,
        )
    };
    match rc {
        0 => Ok(handle),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens the directory that a handle is of, on the file system of `on` (a descriptor that is open for reading). ESTALE
/// where it is gone.
pub fn open(on: BorrowedFd<'_>, handle: &Handle) -> io::Result<OwnedFd> {
    let mut handle = *handle;
    // SAFETY: the handle is one that the kernel filled in, within its bounds, and lives until the call returns.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            on.as_raw_fd(),
            std::ptr::from_mut(&mut handle),
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        )
    };
    match libc::c_int::try_from(rc) {
        // SAFETY: the kernel has just given this descriptor, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
