//! Loop devices: a file as a disk (loop(4)).
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// LOOP_CTL_GET_FREE of `linux/loop.h`.
const CTL_GET_FREE: libc::Ioctl = 0x4c82;
/// LOOP_CONFIGURE.
const CONFIGURE: libc::Ioctl = 0x4c0a;
/// LO_FLAGS_AUTOCLEAR: the device releases the file when its last user closes it.
const AUTOCLEAR: u32 = 4;
/// LO_NAME_SIZE.
const NAME: usize = 64;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; NAME],
    crypt_name: [u8; NAME],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// The number of an unused loop device, through `control` (/dev/loop-control); makes one if there is none. Another
/// process may take it before the caller does.
pub fn find_free(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: this request takes no argument and touches no memory.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Attaches a file to a loop device, until the device is neither open nor mounted. `name` is what `losetup` shows.
/// EBUSY if the device has a file already.
///
/// Since Linux 5.8.
pub fn attach(device: BorrowedFd<'_>, file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut file_name = [0; NAME];
    for (to, from) in file_name.iter_mut().zip(name.bytes().take(NAME - 1)) {
        *to = from;
    }
    let config = Config {
        fd: file.as_raw_fd().unsigned_abs(),
        block_size: 0,
        info: Info {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: AUTOCLEAR,
            file_name,
            crypt_name: [0; NAME],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: `config` has the kernel's layout (304 bytes) and lives until the call returns; the kernel only reads it.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, std::ptr::from_ref(&config)) };
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_as_large_as_the_kernels() {
        assert_eq!(size_of::<Info>(), 232);
        assert_eq!(size_of::<Config>(), 304);
    }
}
