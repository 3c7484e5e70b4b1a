//! A terminal for a foreground `run`, `exec` or `wrap`: relays the caller's, in raw mode, to the container's
//! pseudo-terminal. For a process without a terminal, each terminal descriptor becomes a pipe
//! ([`crate::runtime::foreground::relay`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Box as TerminalSize, BoxBuilder};
use rustix::event::{PollFd, PollFlags};
use rustix::termios::{OptionalActions, OutputModes, Termios, Winsize};

use crate::runtime::RuntimeError;
use crate::runtime::foreground::error::ForegroundError;
use crate::runtime::network::control::short;

/// A socket that receives the pseudo-terminal from libcontainer.
pub struct TerminalListener {
    socket: UnixListener,
    path: PathBuf,
}

impl TerminalListener {
    /// Makes the socket in the container's directory.
    pub fn new(dir: &Path) -> Result<Self, RuntimeError> {
        let name = format!("tty-{}.sock", std::process::id());
        let path = dir.join(&name);
        let socket = short(dir, &name, |short| UnixListener::bind(short))?
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

impl Drop for TerminalListener {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.path) {
            log::debug!("remove {:?}: {e}", self.path);
        }
    }
}

/// A pseudo-terminal that is relayed to the caller's terminal.
pub struct Terminal {
    master: OwnedFd,
    /// The caller's terminal in raw mode, while the program gets the input.
    raw: Option<RawTerminal>,
    /// Input may still come.
    input: bool,
    /// The program's output may still come.
    output: bool,
}

impl Terminal {
    /// Relays this pseudo-terminal from now on.
    pub fn new(master: OwnedFd) -> Self {
        copy_size(master.as_fd());
        let mut terminal = Self {
            master,
            raw: None,
            input: true,
            output: true,
        };
        terminal.take();
        terminal
    }

    /// Takes the input, if this process is in the foreground. Otherwise it belongs to the shell or another job.
    pub fn take(&mut self) {
        if self.raw.is_none() && in_foreground() {
            self.raw = Some(RawTerminal::new());
            copy_size(self.master.as_fd());
        }
    }

    /// Restores the caller's terminal.
    pub fn give_back(&mut self) {
        self.raw = None;
    }

    /// Whether to poll for the foreground: nothing else tells a job that it is there.
    pub fn waits_for_its_turn(&self) -> bool {
        self.raw.is_none() && self.input
    }

    /// What to poll, output and input. `idle` stands for a side without data to wait for: a closed side is always
    /// ready.
    pub fn waits<'a>(&'a self, idle: BorrowedFd<'a>) -> [PollFd<'a>; 2] {
        let output = match self.output {
            true => PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN),
            false => PollFd::from_borrowed_fd(idle, PollFlags::empty()),
        };
        let input = match self.input && self.raw.is_some() {
            true => PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN),
            false => PollFd::from_borrowed_fd(idle, PollFlags::empty()),
        };
        [output, input]
    }

    /// Moves all data that can move; `ready` is for each of [`Self::waits`].
    pub fn pump(&mut self, ready: &[bool]) {
        if self.output && ready.first() == Some(&true) {
            self.output = copy(self.master.as_fd(), rustix::stdio::stdout()).is_some();
        }
        if self.input && self.raw.is_some() && ready.get(1) == Some(&true) {
            self.input = copy(rustix::stdio::stdin(), self.master.as_fd()).is_some();
        }
    }

    /// The caller's terminal has a new size.
    pub fn resize(&self) {
        copy_size(self.master.as_fd());
    }

    /// Relays what the program wrote before it ended and was not read yet, and not what a process that is left writes meanwhile.
    pub fn drain(&mut self) {
        // More than the kernel keeps of it (TTYB_DEFAULT_MEM_LIMIT and N_TTY_BUF_SIZE).
        let mut left = 128 * 1024_usize;
        while self.output && left > 0 {
            let mut fds = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
            let now = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let is_ready = matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(n) if n > 0);
            let copied = is_ready.then(|| copy(self.master.as_fd(), rustix::stdio::stdout()));
            left = left.saturating_sub(copied.flatten().unwrap_or_default());
            self.output = copied.flatten().is_some();
        }
    }
}

/// Whether this process may read and set the terminal at its standard input. A terminal that controls no session has no
/// foreground.
pub fn in_foreground() -> bool {
    match rustix::termios::tcgetpgrp(rustix::stdio::stdin()) {
        Ok(group) => group == rustix::process::getpgrp(),
        Err(_) => true,
    }
}

/// The caller's terminal in raw mode; restored when dropped.
struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    /// Switches standard input to raw mode, if it is a terminal.
    fn new() -> Self {
        let stdin = rustix::stdio::stdin();
        let before = rustix::termios::tcgetattr(stdin).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            // The terminal still adds a carriage return at the end of a line.
            raw.output_modes.insert(OutputModes::OPOST);
            if let Err(e) = rustix::termios::tcsetattr(stdin, OptionalActions::Now, &raw) {
                log::debug!("raw mode: {e}");
            }
        }
        Self { before }
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

/// The size of the caller's terminal, for `process.consoleSize`. Zero if it has none.
pub fn callers_size() -> TerminalSize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdin()).ok();
    let (height, width) = size.map_or((0, 0), |size| (size.ws_row, size.ws_col));
    BoxBuilder::default()
        .height(height)
        .width(width)
        .build()
        .unwrap_or_default()
}

/// Gives the container's terminal the size of the caller's.
fn copy_size(master: BorrowedFd<'_>) {
    let size: Option<Winsize> = rustix::termios::tcgetwinsize(rustix::stdio::stdin()).ok();
    if let Some(size) = size
        && let Err(e) = rustix::termios::tcsetwinsize(master, size)
    {
        log::debug!("size of the terminal: {e}");
    }
}

/// Moves what can be read from one descriptor to another. Returns the number of bytes, `None` at the end.
fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Option<usize> {
    let mut buffer = [0; 16384];
    let length = match rustix::io::read(from, &mut buffer) {
        // A pseudo-terminal whose other side is closed returns EIO.
        Ok(0) | Err(rustix::io::Errno::IO) => return None,
        Ok(length) => length,
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Some(0),
        Err(_) => return None,
    };
    let mut rest = &buffer[..length];
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(written) => rest = &rest[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(length)
}
