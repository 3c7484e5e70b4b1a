//! SHELL. Other agentbox programs on a system: a package's beside a tarball's. Engines and the shell may run different
//! ones.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::sys::procfs;

/// The beginning of a script, which may well start this program.
const SCRIPT: &[u8] = b"#!";

/// Whether a file is a program with other content than this one. A file that cannot be read is none.
pub fn is_another(path: &Path) -> bool {
    differs(path).unwrap_or(false)
}

fn differs(path: &Path) -> io::Result<bool> {
    let Some(other) = procfs::open_regular(path)? else {
        return Ok(false);
    };
    let own = File::open("/proc/self/exe")?;
    let (found, size) = (other.metadata()?, own.metadata()?);
    if (found.dev(), found.ino()) == (size.dev(), size.ino()) {
        return Ok(false);
    }
    let (mut other, mut own) = (BufReader::new(other), BufReader::new(own));
    if other.fill_buf()?.starts_with(SCRIPT) {
        return Ok(false);
    }
    if found.len() != size.len() {
        return Ok(true);
    }
    loop {
        let (there, here) = (other.fill_buf()?, own.fill_buf()?);
        let both = there.len().min(here.len());
        if there[..both] != here[..both] || (both == 0 && there.len() != here.len()) {
            return Ok(true);
        }
        if both == 0 {
            return Ok(false);
        }
        other.consume(both);
        own.consume(both);
    }
}

/// A remark for each of these paths that has another program than this one. `binary` is where this one goes, and `on_node`
/// makes a path of this system of one in the target system.
pub(super) fn remarks(
    on_node: impl Fn(&Path) -> PathBuf,
    binary: &Path,
    paths: impl Iterator<Item = PathBuf>,
) -> Vec<String> {
    // /usr/sbin may be a link to /usr/bin.
    let real = |path: &Path| fs::canonicalize(on_node(path)).ok();
    let own = real(binary);
    let others: BTreeSet<PathBuf> = paths.collect();
    let others = others.into_iter().filter(|path| {
        let there = real(path);
        path != binary && there != own && there.is_some_and(|there| is_another(&there))
    });
    let said = |path: PathBuf| {
        format!(
            "{} is another agentbox: engines run {}, and your shell may run the other; remove one of them",
            path.display(),
            binary.display()
        )
    };
    others.map(said).collect()
}
