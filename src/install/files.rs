//! SHELL. Files that root's programs trust. Reads them only if no other user can write them; writes atomically.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::error::InstallError;
use crate::sys::path::{resolve_owned, weakest};

/// No such file is longer. Any number above the longest known, 40 KiB, works.
const MOST_BYTES: u64 = 1 << 20;

/// A file's content and attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// Its content.
    pub text: String,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner and group.
    pub owner: (u32, u32),
}

/// Reads a file; `None` if it is missing.
///
/// # Errors
/// It is a link, not a file or not text, or users besides root (or the caller) can write it or a directory above it.
pub fn read(path: &Path) -> Result<Option<TextFile>, InstallError> {
    check_way(path)?;
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(InstallError::io(format!("check {path:?}"))(error)),
    };
    if found.is_symlink() {
        let target = fs::read_link(path).unwrap_or_default();
        let why =
            format!("is a link to {target:?}: replace it with a file, or edit the target by hand");
        return Err(InstallError::file(path, why));
    }
    if !found.is_file() {
        return Err(InstallError::file(path, "is not a file: move it away"));
    }
    let own = rustix::process::geteuid().as_raw();
    let mode = found.mode() & 0o7777;
    if (found.uid() != 0 && found.uid() != own) || mode & 0o022 != 0 {
        let why = format!(
            "can be written by others than root (owner {}, mode {mode:o}): chown root it and chmod go-w it",
            found.uid()
        );
        return Err(InstallError::file(path, why));
    }
    let step = || InstallError::io(format!("read {path:?}"));
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(step())?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(step())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(InstallError::file(path, "is longer than 1 MiB"));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| InstallError::file(path, "is not UTF-8: correct it first"))?;
    Ok(Some(TextFile {
        text,
        mode,
        owner: (found.uid(), found.gid()),
    }))
}

/// Refuses a path if other users can change a directory on it: they could replace the file.
pub fn check_way(path: &Path) -> Result<(), InstallError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let own = rustix::process::geteuid().as_raw();
    match resolve_owned(directory, own) {
        Ok(_) => Ok(()),
        Err(error) => match weakest(&error) {
            Some(step) => Err(InstallError::file(
                path,
                format!("is not safe to change: {step}: chown root it and chmod go-w it"),
            )),
            None => Err(InstallError::io(format!("check {directory:?}"))(error)),
        },
    }
}

/// A new file beside the one that it replaces. Removed unless it does.
struct NewFile {
    path: PathBuf,
    file: File,
}

impl NewFile {
    fn beside(target: &Path) -> Result<Self, InstallError> {
        check_way(target)?;
        let directory = target.parent().unwrap_or(Path::new("/"));
        let step = || InstallError::io(format!("create a file in {directory:?}"));
        make_directories(directory).map_err(step())?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = directory.join(format!(".{name}.agentbox-{}", std::process::id()));
        // Left by a killed call.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(step()(error)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(step())?;
        Ok(Self { path, file })
    }

    fn fill(
        &mut self,
        content: &[u8],
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> std::io::Result<()> {
        self.file.write_all(content)?;
        if let Some((uid, gid)) = owner {
            let now = self.file.metadata()?;
            if (now.uid(), now.gid()) != (uid, gid) {
                fchown(&self.file, Some(uid), Some(gid))?;
            }
        }
        // Last, because chown(2) clears the set-user-ID bits.
        self.file
            .set_permissions(fs::Permissions::from_mode(mode))?;
        self.file.sync_all()
    }

    fn replace(&self, target: &Path) -> std::io::Result<()> {
        fs::rename(&self.path, target)?;
        let directory = target.parent().unwrap_or(Path::new("/"));
        File::open(directory)?.sync_all()
    }
}

/// Creates missing directories, readable for all users despite the caller's umask(2): users run the program and read
/// the node file.
fn make_directories(directory: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = directory
        .ancestors()
        .take_while(|above| !above.exists())
        .collect();
    for path in missing.into_iter().rev() {
        match DirBuilder::new().create(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => {
                made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))?
            }
        }
    }
    Ok(())
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After the rename there is no such file.
        let _gone = fs::remove_file(&self.path);
    }
}

/// The content of a file, and its attributes.
pub struct NewContent<'a> {
    /// The content.
    pub bytes: &'a [u8],
    /// Permission bits.
    pub mode: u32,
    /// Owner and group; the caller's if `None`.
    pub owner: Option<(u32, u32)>,
}

/// Writes a file atomically. `judge` checks the complete new file before it replaces the old one.
///
/// # Errors
/// An error of the kernel or of `judge`.
pub fn write(
    path: &Path,
    content: &NewContent<'_>,
    judge: impl FnOnce(&Path) -> Result<(), InstallError>,
) -> Result<(), InstallError> {
    let mut new = NewFile::beside(path)?;
    let step = || InstallError::io(format!("write {path:?}"));
    new.fill(content.bytes, content.mode, content.owner)
        .map_err(step())?;
    judge(&new.path)?;
    new.replace(path).map_err(step())
}

/// Removes a file. A missing file is not an error.
pub fn remove(path: &Path) -> Result<(), InstallError> {
    check_way(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(InstallError::io(format!("remove {path:?}"))(error))
        }
        _ => Ok(()),
    }
}
