//! SHELL. Files of the person who runs `wrap`. The caller looks with the person's rights ([`Person::looking`]): under sudo a name in
//! the command line must not show them what only root reads.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::error::WrapRefused;
use super::person::Person;
use crate::runtime::input::bundle::{open_regular, read_open};

/// The text of a file that the person names, whoever wrote it.
pub fn read(path: &Path) -> Result<String> {
    text(open_regular(path)?, path)
}

/// The text of a file that decides what the command may do: nobody but the person and root may write it.
pub fn read_trusted(path: &Path, person: &Person) -> Result<String> {
    let file = open_regular(path)?;
    let stat = file
        .metadata()
        .with_context(|| format!("look at {path:?}"))?;
    let refuse = |why: String| WrapRefused::File {
        path: path.to_owned(),
        why,
    };
    if stat.uid() != person.uid && stat.uid() != 0 {
        bail!(refuse(format!(
            "belongs to user {}, and it decides what the command may do: it must be your own file or root's",
            stat.uid()
        )));
    }
    if stat.mode() & 0o022 != 0 && !is_own_group(&stat) {
        bail!(refuse(format!(
            "may be written by others (mode {:o}), and it decides what the command may do: chmod go-w it",
            stat.mode() & 0o7777
        )));
    }
    text(file, path)
}

/// Whether only the group may write besides the owner, and nobody but the owner is in it, as many systems set a person up: its
/// number is the user's, and group(5) lists no member.
fn is_own_group(stat: &std::fs::Metadata) -> bool {
    if stat.mode() & 0o002 != 0 || stat.gid() != stat.uid() {
        return false;
    }
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    is_without_members(&groups, stat.gid())
}

fn is_without_members(groups: &str, gid: u32) -> bool {
    let gid = gid.to_string();
    let mut lines = groups.lines().map(|line| line.split(':'));
    let own = lines.find_map(|mut fields| (fields.nth(2) == Some(&gid)).then(|| fields.next()));
    own == Some(Some(""))
}

fn text(file: File, path: &Path) -> Result<String> {
    let bytes = read_open(file, path)?;
    String::from_utf8(bytes).map_err(|_| {
        let why = "is not UTF-8 text".to_owned();
        let path = path.to_owned();
        WrapRefused::File { path, why }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_ones_own_has_no_member() {
        let groups = "root:x:0:\nme:x:1000:\nus:x:1001:me,you\nshort:x:1002\n";
        assert!(is_without_members(groups, 1000));
        for other in [1001, 1002, 100, 4] {
            assert!(!is_without_members(groups, other), "{other}");
        }
    }
}
