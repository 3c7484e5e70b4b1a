//! PURE. What was moved aside, in words.

use std::path::{Path, PathBuf};

use crate::policy::typed_path;

/// What was moved, or taken out of a file, and where it is now.
pub(super) struct QuarantinedFile {
    /// The file in the user's directory.
    pub(super) path: PathBuf,
    /// The settings that were taken out of it. `None`: it was moved.
    pub(super) taken: Option<String>,
    /// The moved file, or the file with what was taken.
    pub(super) at: PathBuf,
    pub(super) why: &'static str,
}

impl QuarantinedFile {
    /// For people.
    pub(super) fn line(&self) -> String {
        let Self { path, at, why, .. } = self;
        // The workload chose the names.
        let (path, at) = (typed_path(path), typed_path(at));
        match &self.taken {
            None => format!("moved {path} to {at}: {why}"),
            Some(keys) => format!("{path}: took out {keys}: {why}; what was taken: {at}"),
        }
    }

    /// For the log, which cuts long texts and has the path in another one. So the place comes first, and is short.
    pub(super) fn reason(&self) -> String {
        let at = match (self.at.parent() == self.path.parent(), self.at.file_name()) {
            (true, Some(name)) => format!("{} beside it", typed_path(Path::new(name))),
            _ => typed_path(&self.at),
        };
        match &self.taken {
            None => format!("moved to {at}: {}", self.why),
            Some(keys) => format!("taken out, now in {at}: {keys}: {}", self.why),
        }
    }
}
