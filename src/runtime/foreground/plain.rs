//! Resets a terminal so that the user can read the next lines, whatever a program has sent before: complete, visible,
//! on an empty ground.

/// Undoes each way in which a program can hide, cut or change other output. The order is that in which a terminal
/// obeys.
const PARTS: [&str; 12] = [
    // End an unfinished command, title or string (CAN, ST), and VT52 mode.
    "\x18\x1b\\\x1b<",
    // Output that goes to a printer, or waits for the end of a frame.
    "\x1b[4i",
    "\x1b[?2026l",
    // Margins: lines would scroll away in a region of one line. The reset moves the cursor, so save it.
    "\x1b7",
    "\x1b[?69l\x1b[r",
    "\x1b8",
    // Lines cut at the edge; insert mode.
    "\x1b[?7h",
    "\x1b[4l",
    // Colours and concealment, the palette, the default colours, other character sets.
    "\x1b[0m",
    "\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\",
    "\x1b(B\x0f",
    // Clear the next lines.
    "\r\n\x1b[J",
];

/// All resets, in order.
pub fn plain() -> String {
    PARTS.concat()
}
