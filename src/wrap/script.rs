//! SHELL. The first line of a script.

use std::fs::DirEntry;
use std::path::Path;

use crate::runtime::input::bundle::open_regular;
use crate::sys::procfs;

/// Longest first line of a script that the kernel reads (BINPRM_BUF_SIZE).
const FIRST_LINE: u64 = 256;
/// More than any pyvenv.cfg has.
const LONGEST_TEXT: u64 = 64 << 10;

/// The words after `#!`, if it is a script.
pub fn interpreter(path: &Path) -> Vec<String> {
    let text = beginning(path, FIRST_LINE);
    let line = text.lines().next().and_then(|line| line.strip_prefix("#!"));
    let words = line.unwrap_or_default().split_whitespace();
    words.map(str::to_owned).collect()
}

/// The directory of the Python that a virtual environment was made with: `home` of pyvenv.cfg (PEP 405).
pub fn venv_home(config: &Path) -> Option<String> {
    let text = beginning(config, LONGEST_TEXT);
    let mut pairs = text.lines().filter_map(|line| line.split_once('='));
    let home = pairs.find(|(key, _)| key.trim() == "home");
    home.map(|(_, value)| value.trim().to_owned())
}

/// Whether an entry is a regular file and not a link.
pub fn is_file(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file())
}

/// The first bytes of a regular file. Opening never blocks: a pipe may have replaced it.
fn beginning(path: &Path, most: u64) -> String {
    let Ok(file) = open_regular(path) else {
        return String::new();
    };
    let bytes = procfs::at_most(file, most).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
