//! A terminal in which a person reads all that is written: whatever a program has told it before, the next lines are whole, on empty
//! ground and visible.

/// What takes back each way in which a program can hide, cut or complete words that are not its own, in the order in which a terminal
/// obeys it.
const PARTS: [&str; 12] = [
    // A command, a title or a string that was begun (CAN, ST), and a VT52's language.
    "\x18\x1b\\\x1b<",
    // Words that go to a printer, or wait for the rest of a frame.
    "\x1b[4i",
    "\x1b[?2026l",
    // Margins: lines would scroll away in a region of one line. That moves the cursor, so it is kept.
    "\x1b7",
    "\x1b[?69l\x1b[r",
    "\x1b8",
    // Lines that are cut at the edge, and words that are moved aside.
    "\x1b[?7h",
    "\x1b[4l",
    // Colours and concealment, the palette, the colours of text and ground, letters of another alphabet.
    "\x1b[0m",
    "\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\",
    "\x1b(B\x0f",
    // Nothing of the program's stands on the next lines, or below them.
    "\r\n\x1b[J",
];

/// All of it.
pub fn plain() -> String {
    PARTS.concat()
}
