//! SHELL. The user who the command runs as: the caller, also through sudo, doas, pkexec and su.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::process::{Gid, getgid, getgroups, getuid};

use super::accounts::Account;
use super::error::WrapRefusal;
use crate::runtime::unprivileged;
use crate::sys::socket;
use crate::sys::user_namespace::{Ids, owner};

/// Who the command runs as.
#[derive(Debug, Clone)]
pub struct Person {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// The user's supplementary groups, none of the caller's.
    pub groups: Vec<u32>,
    /// The line of passwd(5), if there is one.
    pub account: Option<Account>,
    /// Whose environment the caller passes on.
    pub environment: Environment,
}

/// Whose HOME, USER and PATH the caller's environment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// The user's: they called.
    Own,
    /// Perhaps root's: sudo or the like ran in between.
    Changed,
}

impl Person {
    /// The user who called. `workspace` is the requested directory.
    ///
    /// Variables of sudo, doas and pkexec count only if root calls: others could name any user. su sets no variable:
    /// there the audit login id (pam_loginuid(8)) counts if that user owns the workspace.
    pub fn of_caller(workspace: &Path) -> Result<Self> {
        // In a user namespace, the caller is root by number only, and SUDO_UID means nothing.
        if let Some(ids) = unprivileged::inside() {
            return Ok(Self::alone(ids.uid, ids.gid));
        }
        if !getuid().is_root() {
            return Ok(Self::caller());
        }
        let said = [
            by_number("SUDO_UID")?,
            by_name("DOAS_USER")?,
            by_number("PKEXEC_UID")?,
        ];
        Ok(match choose(said.into_iter().flatten())? {
            ChosenPerson::Login => by_login(workspace).map_or_else(Self::caller, Self::behind),
            ChosenPerson::Caller => Self::caller(),
            ChosenPerson::Behind(account) => Self::behind(account),
        })
    }

    /// A user without root's rights. Supplementary groups stay as the kernel has them: they cannot be set.
    fn alone(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: Vec::new(),
            account: Account::of_uid(uid),
            environment: Environment::Own,
        }
    }

    /// Whether the user owns a file.
    pub fn owns(&self, file: &std::fs::Metadata) -> bool {
        owner(std::os::unix::fs::MetadataExt::uid(file)) == self.uid
    }

    fn caller() -> Self {
        let uid = getuid().as_raw();
        let account = Account::of_uid(uid);
        // The kernel keeps an ordinary user's groups. Root gets its own groups, not those of its caller.
        let groups = match (&account, uid) {
            (Some(account), 0) => account.groups(),
            _ => Vec::new(),
        };
        Self {
            uid,
            gid: getgid().as_raw(),
            groups,
            account,
            environment: Environment::Own,
        }
    }

    fn behind(account: Account) -> Self {
        let groups = account.groups();
        Self::behind_with(account, groups)
    }

    fn behind_with(account: Account, groups: Vec<u32>) -> Self {
        Self {
            uid: account.uid,
            gid: account.gid,
            groups,
            account: Some(account),
            environment: Environment::Changed,
        }
    }

    /// The home directory in passwd(5), if it is usable.
    pub fn home(&self) -> Option<PathBuf> {
        let home = self.account.as_ref().map(|a| a.home.clone())?;
        (home.is_absolute() && home != Path::new("/")).then_some(home)
    }

    /// The user's name in messages.
    pub fn name(&self) -> String {
        match &self.account {
            Some(account) => account.name.clone(),
            None => format!("user {}", self.uid),
        }
    }

    /// The user's ids in this user namespace, for a relay.
    pub fn ids(&self) -> Ids {
        match unprivileged::inside() {
            Some(_) => Ids { uid: 0, gid: 0 },
            None => Ids {
                uid: self.uid,
                gid: self.gid,
            },
        }
    }

    /// Connects to a socket that was opened with O_PATH, as the user with these supplementary groups.
    pub fn connect_pinned(&self, socket: BorrowedFd<'_>, groups: &[u32]) -> io::Result<OwnedFd> {
        match self.is_caller() {
            true => socket::connect_pinned(socket),
            false => socket::connect_pinned_as(socket, self.ids(), groups),
        }
    }

    /// Whether this process has the user's id, and does not act for them as root.
    pub fn is_caller(&self) -> bool {
        unprivileged::inside().is_some() || self.uid == getuid().as_raw()
    }

    /// Runs `look` with the user's rights, so a file that they cannot open is an error here too. While the file-system
    /// user id is not root's, the kernel takes CAP_DAC_OVERRIDE and similar capabilities away, and then gives them back
    /// (capabilities(7)).
    pub fn looking<T>(&self, look: impl FnOnce() -> T) -> Result<T> {
        if self.is_caller() {
            return Ok(look());
        }
        let before = getgroups().context("read the supplementary groups")?;
        let theirs: Vec<Gid> = self.groups.iter().map(|g| Gid::from_raw(*g)).collect();
        let groups = |groups: &[Gid]| {
            rustix::thread::set_thread_groups(groups)
                .context("set the groups to look at files with")
        };
        groups(&theirs)?;
        let seen = files_as(self.uid, self.gid).map(|()| look());
        let back = files_as(0, getgid().as_raw());
        groups(&before)?;
        back.context("look at files as root again")?;
        seen.context("look at files as the person")
    }
}

/// Sets the ids that the kernel checks for access to files. The calls report no error, so each result is read back.
fn files_as(uid: u32, gid: u32) -> io::Result<()> {
    let (user, group) = (
        nix::unistd::Uid::from_raw(uid),
        nix::unistd::Gid::from_raw(gid),
    );
    nix::unistd::setfsgid(group);
    nix::unistd::setfsuid(user);
    let set = nix::unistd::setfsuid(user) == user && nix::unistd::setfsgid(group) == group;
    set.then_some(())
        .ok_or(io::ErrorKind::PermissionDenied.into())
}

/// Who runs `wrap` where root calls it.
#[derive(Debug, PartialEq, Eq)]
enum ChosenPerson {
    /// Root itself.
    Caller,
    /// The user that a variable names.
    Behind(Account),
    /// No variable names a user: the login id decides.
    Login,
}

/// Whom the variables of sudo, doas and pkexec name. Two that contradict each other are an error: one is left over from
/// an outer call.
fn choose(named: impl IntoIterator<Item = (&'static str, Account)>) -> Result<ChosenPerson> {
    let mut named = named.into_iter();
    let Some((variable, account)) = named.next() else {
        return Ok(ChosenPerson::Login);
    };
    if let Some((other, _)) = named.find(|(_, other)| other.uid != account.uid) {
        bail!(WrapRefusal::TwoPeople(variable, other));
    }
    Ok(match account.uid {
        0 => ChosenPerson::Caller,
        _ => ChosenPerson::Behind(account),
    })
}

/// The user whose number a variable holds. An unknown number is an error, since the groups would be unknown.
fn by_number(variable: &'static str) -> Result<Option<(&'static str, Account)>> {
    let Some(value) = std::env::var_os(variable) else {
        return Ok(None);
    };
    let number = value.to_str().and_then(|v| v.parse::<u32>().ok());
    let account = number.and_then(Account::of_uid);
    named(variable, value.to_string_lossy().into_owned(), account)
}

fn by_name(variable: &'static str) -> Result<Option<(&'static str, Account)>> {
    let Some(value) = std::env::var_os(variable) else {
        return Ok(None);
    };
    let account = value.to_str().and_then(Account::of_name);
    named(variable, value.to_string_lossy().into_owned(), account)
}

fn named(
    variable: &'static str,
    value: String,
    account: Option<Account>,
) -> Result<Option<(&'static str, Account)>> {
    match account {
        Some(account) => Ok(Some((variable, account))),
        None => bail!(WrapRefusal::Nobody(variable, value)),
    }
}

/// The user who logged in, if they own the directory. The login id alone may belong to the caller of a container
/// engine.
fn by_login(workspace: &Path) -> Option<Account> {
    use std::os::unix::fs::MetadataExt;
    let text = std::fs::read_to_string("/proc/self/loginuid").ok()?;
    let owner = std::fs::metadata(workspace).ok()?.uid();
    login_of(&text, owner).and_then(Account::of_uid)
}

/// The login id of a process, if it is a user's who owns the directory. The largest number means that nobody logged in.
fn login_of(text: &str, owner: u32) -> Option<u32> {
    let uid: u32 = text.trim().parse().ok()?;
    (uid != 0 && uid != u32::MAX && uid == owner).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(uid: u32) -> Account {
        Account {
            name: format!("u{uid}"),
            uid,
            gid: uid,
            home: format!("/home/u{uid}").into(),
            shell: String::new(),
        }
    }

    #[test]
    fn the_user_behind_sudo_is_the_one_that_all_variables_name() {
        let of = |named: &[(&'static str, u32)]| {
            choose(named.iter().map(|(name, uid)| (*name, account(*uid))))
        };
        assert_eq!(of(&[]).unwrap(), ChosenPerson::Login);
        let user = ChosenPerson::Behind(account(1000));
        assert_eq!(of(&[("SUDO_UID", 1000)]).unwrap(), user);
        assert_eq!(
            of(&[("DOAS_USER", 1000), ("PKEXEC_UID", 1000)]).unwrap(),
            user
        );
        // Root that called sudo is root.
        assert_eq!(of(&[("SUDO_UID", 0)]).unwrap(), ChosenPerson::Caller);
        for two in [
            [("SUDO_UID", 1000), ("DOAS_USER", 1001)],
            [("SUDO_UID", 0), ("PKEXEC_UID", 1000)],
            [("SUDO_UID", 1000), ("PKEXEC_UID", 0)],
        ] {
            let why = of(&two).unwrap_err().to_string();
            assert!(two.iter().all(|(name, _)| why.contains(name)), "{why}");
        }
    }

    #[test]
    fn a_login_counts_for_the_owner_of_the_workspace_alone() {
        assert_eq!(login_of("1000\n", 1000), Some(1000));
        assert_eq!(login_of("1000\n", 1001), None);
        assert_eq!(login_of("0\n", 0), None);
        // Nobody logged in: the number is no user's, whoever owns the directory.
        assert_eq!(login_of("4294967295\n", u32::MAX), None);
        assert_eq!(login_of("", 0), None);
    }

    #[test]
    fn a_home_that_is_the_root_or_relative_is_none() {
        let home = |path: &str| {
            let account = Account {
                home: path.into(),
                ..account(1000)
            };
            Person::behind_with(account, Vec::new()).home()
        };
        assert_eq!(home("/home/u"), Some("/home/u".into()));
        assert_eq!((home("/"), home("home"), home("")), (None, None, None));
    }
}
