//! A terminal for a foreground `run`, `exec` or `wrap`: the caller's, in raw mode, relayed to the container's
//! pseudo-terminal. Where the process has none, what leads to the caller's is a pipe ([`crate::runtime::foreground::relay`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, Winsize,
};

use crate::runtime::RuntimeError;
use crate::runtime::foreground::ForegroundError;

/// A socket that receives the pseudo-terminal from libcontainer.
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Makes the socket in the container's directory.
    pub fn new(dir: &Path) -> Result<Self, RuntimeError> {
        let path = dir.join(format!("tty-{}.sock", std::process::id()));
        let socket = UnixListener::bind(&path)
            .map_err(RuntimeError::io(format!("make the socket {path:?}")))?;
        Ok(Self { socket, path })
    }

    /// Makes the socket in the runtime's own directory, for a container that has none yet.
    pub fn private() -> Result<Self, RuntimeError> {
        Self::new(&crate::runtime::state::store::private_dir("tty")?)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the master end of the pseudo-terminal; libcontainer has sent it by the time `build` returns.
    pub fn receive(self) -> Result<OwnedFd, RuntimeError> {
        let step = "receive the pseudo-terminal";
        let (stream, _) = self.socket.accept().map_err(RuntimeError::io(step))?;
        let mut name = [0; 4096];
        let mut received = crate::sys::socket::receive(stream.as_fd(), &mut name)
            .map_err(RuntimeError::io(step))?;
        let terminal = received.fds.pop();
        Ok(terminal.ok_or(ForegroundError::NoTerminal)?)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.path) {
            log::debug!("remove {:?}: {e}", self.path);
        }
    }
}

/// The caller's terminal in raw mode; as before when dropped.
pub struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    /// Switches standard input to raw mode, if it is a terminal.
    pub fn new() -> Self {
        let stdin = rustix::stdio::stdin();
        let before = rustix::termios::tcgetattr(stdin).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            // It still makes a carriage return of its own at the end of a line.
            raw.output_modes.insert(OutputModes::OPOST);
            if let Err(e) = rustix::termios::tcsetattr(stdin, OptionalActions::Now, &raw) {
                log::debug!("raw mode: {e}");
            }
        }
        Self { before }
    }
}

impl Default for RawTerminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(e) =
                rustix::termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before)
        {
            log::debug!("restore the terminal: {e}");
        }
    }
}

/// Gives the container's terminal the size of the caller's.
pub fn copy_size(master: BorrowedFd<'_>) {
    let size: Option<Winsize> = rustix::termios::tcgetwinsize(rustix::stdio::stdin()).ok();
    if let Some(size) = size
        && let Err(e) = rustix::termios::tcsetwinsize(master, size)
    {
        log::debug!("size of the terminal: {e}");
    }
}

/// Moves what can be read from one descriptor to another; `false` at the end.
pub fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> bool {
    copy_seen(from, to, &mut Vec::new())
}

/// The signals that typed characters mean to a process: those of the terminal's settings, if it is the process whose
/// turn it is (termios(3), ISIG).
pub fn signals_of(master: BorrowedFd<'_>, typed: &[u8], pid: Pid) -> Vec<Signal> {
    let Ok(settings) = rustix::termios::tcgetattr(master) else {
        return Vec::new();
    };
    let foreground = rustix::termios::tcgetpgrp(master).map(|p| p.as_raw_nonzero().get());
    if !settings.local_modes.contains(LocalModes::ISIG) || foreground != Ok(pid.as_raw()) {
        return Vec::new();
    }
    let meanings = [
        (SpecialCodeIndex::VINTR, Signal::SIGINT),
        (SpecialCodeIndex::VQUIT, Signal::SIGQUIT),
    ];
    let typed = |code| typed.contains(&settings.special_codes[code]);
    meanings
        .into_iter()
        .filter(|(code, _)| typed(*code))
        .map(|(_, signal)| signal)
        .collect()
}

/// [`copy`], and what was moved.
pub fn copy_seen(from: BorrowedFd<'_>, to: BorrowedFd<'_>, seen: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 16384];
    let length = match rustix::io::read(from, &mut buffer) {
        // A pseudo-terminal whose other side is closed answers EIO.
        Ok(0) | Err(rustix::io::Errno::IO) => return false,
        Ok(length) => length,
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return true,
        Err(_) => return false,
    };
    seen.extend_from_slice(&buffer[..length]);
    let mut rest = &buffer[..length];
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(written) => rest = &rest[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
