//! Standard input, output and error. They belong to the program's user, who may reopen them by /dev/stdout. A terminal
//! gets the requested size.

use oci_spec::runtime::Process;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, OutputModes, Winsize};

use super::error::EnforceError;
use super::owner::Ruler;

/// Gives descriptors 0 to 2 to a user, as runc does. The group stays: a terminal's is `tty`. /dev/null stays, which all
/// share. Under a policy files stay too: only pipes, sockets and terminals change, which the engine made for this
/// process.
pub fn give_to(uid: u32, ruler: Ruler) -> Result<(), EnforceError> {
    for number in 0..3 {
        let Some(fd) = crate::sys::process::borrow_inherited(number) else {
            continue;
        };
        let Ok(stat) = rustix::fs::fstat(fd) else {
            continue;
        };
        if stat.st_uid == uid || !may_be_given(&stat, ruler) {
            continue;
        }
        let owner = Some(rustix::fs::Uid::from_raw(uid));
        match rustix::fs::fchown(fd, owner, None) {
            // Not mapped in the user namespace, or on a read-only file system: it stays as it is (runc).
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

/// libcontainer replaces the node's /dev/null by the container's, opened only for reading. Writes to standard output or
/// error would then fail.
pub fn make_null_writable() -> Result<(), EnforceError> {
    let step = || EnforceError::step("open /dev/null for standard output");
    let null = rustix::fs::makedev(1, 3);
    let is_null = |stat: &Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == null
    };
    let is_read_only_null = |number| {
        let fd = crate::sys::process::borrow_inherited(number)?;
        let null = rustix::fs::fstat(fd).is_ok_and(|stat| is_null(&stat));
        let flags = null.then(|| rustix::fs::fcntl_getfl(fd).ok()).flatten()?;
        Some(flags & OFlags::ACCMODE == OFlags::RDONLY)
    };
    let found = [1, 2].map(|number| is_read_only_null(number) == Some(true));
    if !found.contains(&true) {
        return Ok(());
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()).map_err(step())?;
    if !is_null(&rustix::fs::fstat(&opened).map_err(step())?) {
        return Err(step()(Errno::NXIO));
    }
    if found[0] {
        rustix::stdio::dup2_stdout(&opened).map_err(step())?;
    }
    match found[1] {
        true => rustix::stdio::dup2_stderr(&opened).map_err(step()),
        false => Ok(()),
    }
}

/// Gives the terminal the requested size (`process.consoleSize`); libcontainer does not.
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

/// A newline stays one character, as with runc: output to a file gets no carriage returns. Set here, because the
/// program may write before the relay has the terminal.
pub fn keep_newlines() -> Result<(), EnforceError> {
    let terminal = rustix::stdio::stdin();
    rustix::termios::tcgetattr(terminal)
        .and_then(|mut settings| {
            settings.output_modes.remove(OutputModes::ONLCR);
            rustix::termios::tcsetattr(terminal, OptionalActions::Now, &settings)
        })
        .map_err(EnforceError::step("set up the terminal"))
}

fn may_be_given(stat: &Stat, ruler: Ruler) -> bool {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Socket => true,
        // pts(4)
        FileType::CharacterDevice => (136..=143).contains(&rustix::fs::major(stat.st_rdev)),
        _ => ruler == Ruler::Engine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_stay_and_files_stay_under_a_policy() {
        let look = |path: &str| rustix::fs::stat(path).unwrap();
        assert!(!may_be_given(&look("/dev/null"), Ruler::Engine));
        let file = look("/proc/self/exe");
        assert!(may_be_given(&file, Ruler::Engine) && !may_be_given(&file, Ruler::Policy));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let pipe = rustix::fs::fstat(pipe).unwrap();
        assert!(may_be_given(&pipe, Ruler::Policy));
    }
}
