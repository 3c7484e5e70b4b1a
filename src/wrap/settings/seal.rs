//! SHELL. What is trusted with a project's settings: their text, the files that they name, and where their paths lead.
//! A command can write most of that, and could otherwise choose what its next run gets.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::file::{Settings, is_file};
use super::sealed_file::{SealedFile, SealedFileKind};
use crate::audit::hash;
use crate::wrap::person::Person;
use crate::wrap::planted;

/// The files and paths that settings name.
#[derive(Debug)]
pub struct Seal {
    /// Policies and files of variables.
    pub included: Vec<SealedFile>,
    /// The target of each path, as text.
    leads: Vec<String>,
}

impl Seal {
    /// Reads everything that a project's settings name. An error is the reason, as text.
    pub fn of(person: &Person, settings: &Settings) -> Result<Self, String> {
        let real = |path: &Path| {
            planted::named(path, person).map_err(|error| format!("names {path:?}: {error}"))
        };
        let policy = settings.policy.as_deref().filter(|policy| is_file(policy));
        let policy = policy.map(|policy| (Path::new(policy), SealedFileKind::Policy));
        let variables = settings.env_file.iter();
        let variables = variables.map(|path| (path.as_path(), SealedFileKind::Variables));
        let mut included = Vec::new();
        for (path, kind) in policy.into_iter().chain(variables) {
            let file = SealedFile::read_with_settings(person, path, kind);
            included.push(file.map_err(|error| format!("names {path:?}: {error:#}"))?);
        }
        let mut leads = Vec::new();
        for path in settings.write.iter().chain(settings.summary.as_ref()) {
            leads.push(format!("{path:?} leads to {:?}", real(path)?));
        }
        for path in &settings.read {
            let real = real(path)?;
            // Editors and git replace files, so their inodes say nothing.
            let found = real.symlink_metadata().ok();
            let inode = found
                .filter(fs::Metadata::is_dir)
                .map_or(0, |meta| meta.ino());
            leads.push(format!("{path:?} leads to {real:?}, inode {inode}"));
        }
        for path in &settings.hide {
            let real = real(path)?;
            // Otherwise another directory could take this name and be hidden instead.
            let inode = real.symlink_metadata().map_or(0, |meta| meta.ino());
            leads.push(format!("{path:?} is {real:?}, inode {inode}"));
        }
        Ok(Self { included, leads })
    }

    /// The SHA-256 of all of it in hexadecimal. Settings that name nothing have the hash of their text.
    pub fn hash(&self, text: &str) -> String {
        if self.included.is_empty() && self.leads.is_empty() {
            return hash(text.as_bytes());
        }
        // The length comes first, so that no text can be mistaken for another.
        let mut all = format!("{}\n{text}", text.len());
        for SealedFile { path, text, .. } in &self.included {
            all += &format!("\n{path:?} {}\n{text}", text.len());
        }
        for line in &self.leads {
            all += &format!("\n{line}");
        }
        hash(all.as_bytes())
    }
}
