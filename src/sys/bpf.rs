#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! bpf(2): programs that decide about devices, and the cgroups that they are attached to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::devices::{DeviceInstruction, DeviceProgram};

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_DETACH: libc::c_int = 9;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const PROG_QUERY: libc::c_int = 16;

/// `BPF_PROG_TYPE_CGROUP_DEVICE`
const TYPE_CGROUP_DEVICE: u32 = 15;
/// `BPF_CGROUP_DEVICE`
const ATTACH_CGROUP_DEVICE: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: programs of parent cgroups still decide as well, and all must allow.
const ALLOW_MULTI: u32 = 1 << 1;
/// `BPF_F_REPLACE`, since Linux 5.6
const REPLACE: u32 = 1 << 2;

/// The most programs of one cgroup that are listed; a cgroup takes 64 (`BPF_CGROUP_MAX_PROGS`).
const MOST: usize = 64;

/// The used part of the kernel's `union bpf_attr` for `BPF_PROG_LOAD`; missing fields count as zero.
#[repr(C)]
struct Load {
    prog_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// For `BPF_PROG_ATTACH` and `BPF_PROG_DETACH`.
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
    replaced: u32,
}

/// For `BPF_PROG_QUERY`.
#[repr(C)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

/// For `BPF_PROG_GET_FD_BY_ID`.
#[repr(C)]
struct GetFdById {
    id: u32,
    next: u32,
    flags: u32,
}

/// bpf(2).
///
/// # Safety
///
/// `T` must be laid out as the kernel's `union bpf_attr` for `command`, and its pointers must point to what the command
/// reads or writes, for the time of the call.
unsafe fn bpf<T>(command: libc::c_int, attribute: &mut T) -> io::Result<RawFd> {
    // SAFETY: the kernel reads and writes at most `size_of::<T>()` bytes at `attribute`, which is exclusively ours, and what
    // its pointers lead to, for which the caller vouches.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attribute),
            size_of::<T>(),
        )
    };
    match RawFd::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    // A descriptor is never negative.
    fd.as_raw_fd().unsigned_abs()
}

/// Loads a device program. Needs `CAP_BPF` or `CAP_SYS_ADMIN`.
pub fn load_device_program(program: &DeviceProgram) -> io::Result<OwnedFd> {
    let instructions: &[DeviceInstruction] = program.instructions();
    let license = c"Apache";
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"agentbox");
    let mut attribute = Load {
        prog_type: TYPE_CGROUP_DEVICE,
        count: u32::try_from(instructions.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
    };
    // SAFETY: the fields are those of the kernel's struct, in its order and without padding. `instructions` is the start of
    // `count` values of `repr(C)` with the fields of `struct bpf_insn`, `license` ends in zero, and both outlive the call,
    // which only reads them. A new descriptor comes back, close-on-exec, that nothing else owns.
    unsafe { bpf(PROG_LOAD, &mut attribute).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Attaches a program to a cgroup, in addition to others, or in place of one of them.
pub fn attach_device_program(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    replaced: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attribute = Attach {
        target: number(cgroup),
        program: number(program),
        attach_type: ATTACH_CGROUP_DEVICE,
        flags: ALLOW_MULTI | if replaced.is_some() { REPLACE } else { 0 },
        replaced: replaced.map_or(0, number),
    };
    // SAFETY: five integers as the kernel's struct has them, and no pointer.
    unsafe { bpf(PROG_ATTACH, &mut attribute).map(|_| ()) }
}

/// Detaches a program from a cgroup.
pub fn detach_device_program(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attribute = Attach {
        target: number(cgroup),
        program: number(program),
        attach_type: ATTACH_CGROUP_DEVICE,
        flags: 0,
        replaced: 0,
    };
    // SAFETY: as above.
    unsafe { bpf(PROG_DETACH, &mut attribute).map(|_| ()) }
}

/// The device programs that are attached to a cgroup itself. A program that is detached meanwhile is left out.
pub fn device_programs(cgroup: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut ids = [0_u32; MOST];
    let mut attribute = Query {
        target: number(cgroup),
        attach_type: ATTACH_CGROUP_DEVICE,
        query_flags: 0,
        attach_flags: 0,
        ids: ids.as_mut_ptr() as u64,
        count: MOST as u32,
        padding: 0,
    };
    // SAFETY: the fields are those of the kernel's struct up to `count` and the padding that brings it to eight bytes. `ids` is
    // room for `count` integers, which the call writes, and outlives it.
    unsafe { bpf(PROG_QUERY, &mut attribute)? };
    let count = usize::try_from(attribute.count).unwrap_or(MOST).min(MOST);
    let mut programs = Vec::with_capacity(count);
    for id in &ids[..count] {
        let mut attribute = GetFdById {
            id: *id,
            next: 0,
            flags: 0,
        };
        // SAFETY: three integers as the kernel's struct has them, and no pointer; a new descriptor comes back, close-on-exec,
        // that nothing else owns.
        match unsafe { bpf(PROG_GET_FD_BY_ID, &mut attribute).map(|fd| OwnedFd::from_raw_fd(fd)) } {
            Ok(program) => programs.push(program),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(programs)
}
