//! SHELL. Whether the command is the same program inside as outside. A link to a path that is not visible is an error:
//! no other program of the same name takes its place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::error::WrapRefusal;
use super::layout::Layout;
use super::script;

/// Refuses a command that exists outside but would be missing or different inside. The runtime reports a command that
/// exists nowhere.
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

/// The program that a shell would take, and what the kernel and env(1) execute for it: first the program.
pub fn files(name: &str, path: &str, cwd: &Path) -> Vec<PathBuf> {
    const DEEPEST: usize = 4;
    let mut all: Vec<PathBuf> = find(name, path, cwd).into_iter().collect();
    let mut last = all.clone();
    for _ in 0..DEEPEST {
        last = last
            .iter()
            .flat_map(|file| interpreters(file, path, cwd))
            .collect();
        all.extend(last.iter().cloned());
    }
    all
}

/// The program that a shell would run.
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

/// The program's own path, if it and the links to it are visible.
fn shown(name: &str, found: &Path, layout: &Layout) -> Result<PathBuf> {
    let Some(real) = layout.real.of(found) else {
        // A link that is dangling outside too.
        return Ok(found.to_owned());
    };
    if !layout.shows(&real) || !layout.shows_name(found) {
        let (name, found) = (name.to_owned(), found.to_owned());
        bail!(WrapRefusal::Hidden { name, found, real });
    }
    Ok(real)
}

/// The programs of a script's first line: its interpreter and, for env(1), the program that PATH finds.
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
