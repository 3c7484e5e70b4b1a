//! Standard input, output and error: they belong to the program's user, so that it may open them again by /dev/stdout,
//! and a terminal has the size that was asked for.

use oci_spec::runtime::Process;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use rustix::termios::Winsize;

use super::EnforceError;

/// Gives descriptors 0 to 2 to a user, as runc does. The group stays: a terminal's is `tty`. Not /dev/null, which is
/// everybody's; and under a policy no file, only pipes, sockets and terminals, which the engine made for this process.
pub fn give_to(uid: u32, policy: bool) -> Result<(), EnforceError> {
    for number in 0..3 {
        let Some(fd) = crate::sys::process::borrow_inherited(number) else {
            continue;
        };
        let Ok(stat) = rustix::fs::fstat(fd) else {
            continue;
        };
        if stat.st_uid == uid || !may_be_given(&stat, policy) {
            continue;
        }
        let owner = Some(rustix::fs::Uid::from_raw(uid));
        match rustix::fs::fchown(fd, owner, None) {
            // Not mapped in the user namespace, or on a file system that is read-only: it stays as it is (runc).
            Ok(()) | Err(Errno::INVAL | Errno::PERM | Errno::ROFS) => {}
            Err(e) => {
                return Err(EnforceError::step(format!(
                    "give descriptor {number} to user {uid}"
                ))(e));
            }
        }
    }
    Ok(())
}

/// Gives the terminal the size that the process asks for (`process.consoleSize`); libcontainer does not.
pub fn set_size(process: Option<&Process>) -> Result<(), EnforceError> {
    let size = process
        .filter(|p| p.terminal() == Some(true))
        .and_then(Process::console_size);
    let Some(size) = size else {
        return Ok(());
    };
    let cells = |n: u64| u16::try_from(n).unwrap_or(u16::MAX);
    let size = Winsize {
        ws_row: cells(size.height()),
        ws_col: cells(size.width()),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(rustix::stdio::stdin(), size)
        .map_err(EnforceError::step("set the size of the terminal"))
}

fn may_be_given(stat: &Stat, policy: bool) -> bool {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Socket => true,
        // pts(4)
        FileType::CharacterDevice => (136..=143).contains(&rustix::fs::major(stat.st_rdev)),
        _ => !policy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_stay_and_files_stay_under_a_policy() {
        let look = |path: &str| rustix::fs::stat(path).unwrap();
        assert!(!may_be_given(&look("/dev/null"), false));
        let file = look("/proc/self/exe");
        assert!(may_be_given(&file, false) && !may_be_given(&file, true));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(may_be_given(&rustix::fs::fstat(pipe).unwrap(), true));
    }
}
