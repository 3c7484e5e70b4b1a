//! The caller's home, as a place to write in.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::policy::typed_path;
use crate::runtime::RuntimeError;
use crate::runtime::unprivileged;
use crate::sys::path::{resolve_owned, weakest};
use crate::sys::user_namespace;

/// HOME without links, if it is the caller's own. The owner of another one could put a link in the place of a directory
/// in it, and the caller would write where that leads.
///
/// # Errors
/// It belongs to another user, others can change it, or it is missing.
pub fn resolve(home: &Path) -> Result<PathBuf, RuntimeError> {
    let own = unprivileged::uid();
    let look = || RuntimeError::io(format!("look at HOME {home:?}"));
    let refuse = |why: String| RuntimeError::Input {
        path: home.to_owned(),
        why,
    };
    let owner = user_namespace::owner(std::fs::metadata(home).map_err(look())?.uid());
    if owner != own {
        return Err(refuse(format!(
            "HOME belongs to user {owner}, and user {own} runs this: sudo --set-home, or run it without sudo"
        )));
    }
    resolve_owned(home, own).map_err(|error| match weakest(&error) {
        Some(weak) => refuse(format!(
            "HOME can be changed by other users ({weak}): `chmod go-w {}`",
            typed_path(&weak.path)
        )),
        None => look()(error),
    })
}
