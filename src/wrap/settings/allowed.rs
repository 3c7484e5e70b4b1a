//! SHELL. What the user allowed for a project at the prompt of `wrap --ask`: user settings for one workspace, in a file
//! that no command writes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::file::{PathBase, Settings};
use super::own_dir::OwnDir;
use super::{SettingsSource, places};
use crate::audit::hash;
use crate::runtime::foreground::prompt::Keep;
use crate::wrap::own_file;
use crate::wrap::person::Person;

/// Most rules in one project's file.
const MOST: usize = 256;

/// A workspace's file; `None` without a home.
fn place(person: &Person, workspace: &Path) -> Option<(OwnDir, PathBuf)> {
    use std::os::unix::ffi::OsStrExt;
    let home = places::home(person)?;
    let dir = places::allowed(person, &home);
    let name = format!("{}.toml", hash(workspace.as_os_str().as_bytes()));
    let place = dir.join(name);
    Some((OwnDir::at(dir), place))
}

/// The settings for a workspace, if there are any. A file that others can write is an error.
pub fn find(person: &Person, workspace: &Path) -> Result<Option<SettingsSource>> {
    let Some((dir, path)) = place(person, workspace) else {
        return Ok(None);
    };
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    dir.check(person)?;
    let text = own_file::read_trusted(&path, person)?;
    let settings = Settings::parse(&text, PathBase::of_answers())
        .with_context(|| format!("settings of {path:?}"))?;
    let source = SettingsSource::of_person(person, path, settings)?;
    Ok(Some(SettingsSource {
        is_answers: true,
        ..source
    }))
}

/// Adds rules to the file of a workspace.
pub fn keep_for(person: &Person, workspace: &Path) -> Keep {
    let (person, workspace) = (person.clone(), workspace.to_owned());
    Box::new(move |rule| {
        let kept = person.looking(|| keep(&person, &workspace, rule));
        kept.and_then(|kept| kept)
            .map_err(|error| format!("{error:#}"))
    })
}

fn keep(person: &Person, workspace: &Path, rule: &str) -> Result<PathBuf> {
    let (dir, path) =
        place(person, workspace).context("there is no home to keep it in: set HOME")?;
    let text = match path.symlink_metadata() {
        Ok(_) => own_file::read_trusted(&path, person)?,
        Err(_) => String::new(),
    };
    let text = with_rule(&text, workspace, rule).with_context(|| format!("{path:?}"))?;
    dir.put(person, &path, text.as_bytes())?;
    Ok(path)
}

/// The file's text with one more rule.
fn with_rule(text: &str, workspace: &Path, rule: &str) -> Result<String> {
    let mut table: toml::Table = toml::from_str(text).context("is no TOML")?;
    let list = table
        .entry("allow")
        .or_insert_with(|| toml::Value::Array(Vec::new()));
    let list = list.as_array_mut().context("allow is no list")?;
    let rule = toml::Value::from(rule);
    if !list.contains(&rule) {
        anyhow::ensure!(list.len() < MOST, "it has {MOST} rules already");
        list.push(rule);
    }
    Ok(format!(
        "# What you allowed at the prompt of `agentbox wrap --ask` in {workspace:?}.\n{}",
        toml::to_string(&table)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_added_once_and_the_rest_stays() {
        let workspace = Path::new("/home/me/a\npp");
        let first = with_rule("", workspace, "a.test:443").unwrap();
        assert_eq!(first.lines().count(), 2);
        let second = with_rule(&format!("{first}quiet = true\n"), workspace, "b.test:80").unwrap();
        let again = with_rule(&second, workspace, "b.test:80").unwrap();
        assert_eq!(again, second);
        let settings = Settings::parse(&again, PathBase::of_answers()).unwrap();
        assert_eq!(settings.quiet, Some(true));
        assert_eq!(settings.effects().len(), 3, "{:?}", settings.effects());
        assert!(with_rule("allow = 1", workspace, "a.test").is_err());
        assert!(with_rule("]", workspace, "a.test").is_err());
    }
}
