//! SHELL. Whether the command is inside what it is outside: a link into what is not shown is an error, and no other program
//! of the same name takes its place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::error::WrapRefusal;
use super::layout::Layout;
use super::script;

/// Refuses a command that the caller has and that would be missing or another inside. One that nobody has is the runtime's
/// to report.
pub fn check(name: &str, path: &str, layout: &Layout) -> Result<()> {
    let Some(found) = find(name, path, &layout.cwd) else {
        return Ok(());
    };
    let real = shown(name, &found, layout)?;
    for interpreter in interpreters(&real, path, &layout.cwd) {
        shown(name, &interpreter, layout)?;
    }
    Ok(())
}

/// The program that a shell would take.
fn find(name: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(cwd.join(name)).filter(|p| p.is_file());
    }
    let dirs = path.split(':').map(Path::new).filter(|d| d.is_absolute());
    let mut places = dirs.map(|dir| dir.join(name));
    places.find(|place| {
        let meta = fs::metadata(place);
        meta.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    })
}

/// The program's own path, if it and the links to it are shown.
fn shown(name: &str, found: &Path, layout: &Layout) -> Result<PathBuf> {
    let Some(real) = layout.real.of(found) else {
        // A link that leads nowhere outside either.
        return Ok(found.to_owned());
    };
    if !layout.shows(&real) || !layout.shows_name(found) {
        let (name, found) = (name.to_owned(), found.to_owned());
        bail!(WrapRefusal::Hidden { name, found, real });
    }
    Ok(real)
}

/// What a script's first line names: its interpreter, and with env(1) the program that PATH has for it.
fn interpreters(real: &Path, path: &str, cwd: &Path) -> Vec<PathBuf> {
    let words = script::interpreter(real);
    let mut words = words.iter().map(String::as_str);
    let Some(interpreter) = words.next() else {
        return Vec::new();
    };
    let mut found = vec![PathBuf::from(interpreter)];
    if interpreter.ends_with("/env") {
        let program = words.find(|w| !w.starts_with('-') && !w.contains('='));
        found.extend(program.and_then(|p| find(p, path, cwd)));
    }
    found.retain(|p| p.is_absolute());
    found
}
