//! Resets a terminal so that the user can read the next lines, whatever a program has sent before: complete, visible,
//! on an empty ground.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Undoes each way in which a program can hide, cut or change other output, but for colours. The order is that in which
/// a terminal obeys.
const MODES: &str = concat!(
    // End an unfinished command, title or string (CAN, ST), and VT52 mode.
    "\x18\x1b\\\x1b<",
    // Output that goes to a printer, or waits for the end of a frame.
    "\x1b[4i",
    "\x1b[?2026l",
    // The second screen, which the next program may leave. 1049 would move the cursor where there is none.
    "\x1b[?1047l",
    // Margins: lines would scroll away in a region of one line. The reset moves the cursor, so save it.
    "\x1b7",
    "\x1b[?69l\x1b[r",
    "\x1b8",
    // Lines cut at the edge; insert mode.
    "\x1b[?7h",
    "\x1b[4l",
    // Concealment, other character sets.
    "\x1b[0m",
    "\x1b(B\x0f",
);

/// The palette and the default colours. Also those that the user's shell has set.
const COLOURS: &str = "\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\";

/// Clears what follows.
const CLEAR: &str = "\x1b[J";

/// All resets, in order. The next text begins in a new line.
pub fn plain() -> String {
    [MODES, COLOURS, "\r\n", CLEAR].concat()
}

/// Whether a program may have changed the terminal's state since the last line.
static IS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Tells that a program has written to the terminal: the next line resets it first. Colours stay: a line is no question
/// that the user answers, and `reset` shows it.
pub fn program_has_written() {
    IS_CHANGED.store(true, Ordering::Relaxed);
}

/// Resets the terminal, if a program has written there.
pub fn before_line() {
    if IS_CHANGED.swap(false, Ordering::Relaxed) && is_ours() {
        let _nobody = std::io::stderr().write_all([MODES, CLEAR].concat().as_bytes());
    }
}

/// Whether the terminal is this program's alone: a pager behind a pipe, or another job in front, has set it as it needs it.
fn is_ours() -> bool {
    let (out, err) = (rustix::stdio::stdout(), rustix::stdio::stderr());
    // By nix: in a pid namespace the group of a process outside is 0, which rustix takes for an error.
    let in_front = || nix::unistd::tcgetpgrp(err) == Ok(nix::unistd::getpgrp());
    let is_dumb = || std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    rustix::termios::isatty(out) && rustix::termios::isatty(err) && in_front() && !is_dumb()
}
