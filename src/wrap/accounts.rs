//! SHELL. The node's users: /etc/passwd and /etc/group (passwd(5), group(5)), and getent(1) for a directory service's.
//!
//! getpwuid(3) and getgrouplist(3) are not called: in a static program, glibc loads the libraries of
//! /etc/nsswitch.conf. If this program was copied to another system, those are built for another glibc.

use std::path::PathBuf;

use crate::plan::passwd;
use crate::sys::program;

/// A user's line of passwd(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Home directory, as written in the line.
    pub home: PathBuf,
    /// Login shell.
    pub shell: String,
}

impl Account {
    /// The account with this number.
    pub fn of_uid(uid: u32) -> Option<Self> {
        let number = uid.to_string();
        let is_it = |account: &Self| account.uid == uid;
        Self::in_file(is_it).or_else(|| Self::by_getent(&number, is_it))
    }

    /// The account with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        let is_it = |account: &Self| account.name == name;
        Self::in_file(is_it).or_else(|| Self::by_getent(name, is_it))
    }

    fn in_file(is_it: impl Fn(&Self) -> bool) -> Option<Self> {
        let text = std::fs::read("/etc/passwd").ok()?;
        find(&String::from_utf8_lossy(&text), is_it)
    }

    fn by_getent(key: &str, is_it: impl Fn(&Self) -> bool) -> Option<Self> {
        // A key that begins with a dash would be an option.
        if key.starts_with('-') || !has_directory("passwd") {
            return None;
        }
        find(&output_of("getent", &["passwd", key])?, is_it)
    }

    /// The supplementary groups: the groups of group(5) that list the name, without the primary one.
    pub fn groups(&self) -> Vec<u32> {
        let text = std::fs::read("/etc/group").unwrap_or_default();
        let mut groups = members(&String::from_utf8_lossy(&text), &self.name);
        if (has_directory("group") || has_directory("initgroups")) && !self.name.starts_with('-') {
            let listed = output_of("id", &["-G", &self.name]).unwrap_or_default();
            groups.extend(
                listed
                    .split_whitespace()
                    .filter_map(|g| g.parse::<u32>().ok()),
            );
        }
        groups.sort_unstable();
        groups.dedup();
        groups.retain(|gid| *gid != self.gid);
        groups
    }
}

fn find(text: &str, is_it: impl Fn(&Account) -> bool) -> Option<Account> {
    let mut accounts = passwd::lines(text).map(|user| Account {
        name: user.name.to_owned(),
        uid: user.uid,
        gid: user.gid,
        home: PathBuf::from(user.home),
        shell: user.shell.to_owned(),
    });
    accounts.find(is_it)
}

/// The numbers of the groups that list this name.
fn members(text: &str, name: &str) -> Vec<u32> {
    let lines = text.lines().map(|l| l.split(':').collect::<Vec<_>>());
    let of_name = lines.filter(|fields| {
        let listed = fields.get(3).into_iter().flat_map(|m| m.split(','));
        listed.map(str::trim).any(|member| member == name)
    });
    of_name
        .filter_map(|fields| fields.get(2)?.parse().ok())
        .collect()
}

/// Whether nsswitch.conf(5) has a source of `database` other than files: LDAP, sssd.
/// Whether nsswitch.conf(5) names a directory service for a database: its entries are in no file.
pub fn has_directory(database: &str) -> bool {
    let text = std::fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    names_directory(&text, database)
}

fn names_directory(text: &str, database: &str) -> bool {
    let mut lines = text.lines().filter_map(|l| l.split_once(':'));
    let line = lines.find(|(name, _)| name.trim() == database);
    let sources = line.map(|(_, sources)| sources).unwrap_or_default();
    let mut sources = sources
        .split_whitespace()
        .filter(|s| !s.starts_with(['[', '!']));
    // systemd's own users are services.
    sources.any(|s| !["files", "compat", "systemd", "db"].contains(&s) && !s.ends_with(']'))
}

/// The output of a system program.
fn output_of(name: &str, arguments: &[&str]) -> Option<String> {
    let mut command = program::command(&program::find(name).ok()?, &[]);
    let output = command.args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\n+::::::\nalice:x:1001:1002:A,,,:/home/alice:/bin/zsh\n";

    #[test]
    fn a_line_is_found_by_number_and_by_name() {
        let alice = find(PASSWD, |a| a.uid == 1001).unwrap();
        assert_eq!(alice.name, "alice");
        assert_eq!((alice.gid, alice.shell.as_str()), (1002, "/bin/zsh"));
        assert_eq!(find(PASSWD, |a| a.name == "alice"), Some(alice));
        assert_eq!(find(PASSWD, |a| a.uid == 1), None);
    }

    #[test]
    fn groups_are_those_that_list_the_name_and_no_longer_one() {
        let text = "root:x:0:\nsudo:x:27:alice,bob\nalice:x:1002:\nal:x:5:alicea,aalice\ndocker:x:999:bob, alice\nbad:x:y:alice\n";
        assert_eq!(members(text, "alice"), [27, 999]);
        assert_eq!(members(text, "carol"), [0_u32; 0]);
    }

    #[test]
    fn a_directory_service_is_known() {
        for (line, expected) in [
            ("passwd:         files systemd", false),
            ("passwd: compat", false),
            ("passwd: files sss", true),
            ("passwd: files [NOTFOUND=return] ldap", true),
            ("passwd: files [NOTFOUND=return]", false),
            ("group: files sss", false),
        ] {
            assert_eq!(names_directory(line, "passwd"), expected, "{line}");
        }
    }
}
