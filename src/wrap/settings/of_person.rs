//! SHELL. The user's own settings, and where those with secrets count.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::file::{PathBase, Settings};
use super::{SettingsSource, places, too_long};
use crate::wrap::error::WrapRefusal;
use crate::wrap::own_file;
use crate::wrap::person::Person;

/// The user's own settings. Call it with their rights over files.
pub fn of_person(person: &Person) -> Result<Option<SettingsSource>> {
    let Some(home) = places::home(person) else {
        return Ok(None);
    };
    let path = places::config(person, &home);
    if let Some(own) = places::settings_passed_over(person, &path)
        && !UserFile::read(person, &own, &home)?
            .settings
            .secrets
            .is_empty()
    {
        let why = format!(
            "has a [[secret]], and HOME or XDG_CONFIG_HOME leads elsewhere ({path:?}): unset it, or no key would stay outside"
        );
        bail!(WrapRefusal::File { path: own, why });
    }
    // A file that the user cannot see is not theirs, as when HOME is another user's.
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let UserFile {
        text,
        private,
        settings,
    } = UserFile::read(person, &path, &home)?;
    if !settings.secrets.is_empty() {
        let place = private.and_then(|()| places::at_home(person, &path));
        let counts = place.and_then(|place| {
            // What was read by the variables' path is what lies at home: links may have changed in between.
            let again = own_file::read_settings(&place, person);
            match again.is_ok_and(|(again, private)| private.is_ok() && again == text) {
                true => Ok(()),
                false => Err("it changed while it was read".to_owned()),
            }
        });
        if let Err(why) = counts {
            let path = path.clone();
            let why = format!("has a [[secret]], and {why}");
            bail!(WrapRefusal::File { path, why });
        }
    }
    SettingsSource::of_person(person, path, settings).map(Some)
}

/// A file of the user's own settings.
struct UserFile {
    text: String,
    /// Whether no other user can read it.
    private: Result<(), String>,
    settings: Settings,
}

impl UserFile {
    fn read(person: &Person, path: &Path, home: &Path) -> Result<Self> {
        let (text, private) = own_file::read_settings(path, person)?;
        if text.len() > places::LONGEST {
            bail!(too_long(path));
        }
        let settings = Settings::parse(&text, PathBase::of_person(home))
            .with_context(|| format!("settings of {path:?}"))?;
        Ok(Self {
            text,
            private,
            settings,
        })
    }
}
