//! A cgroup of the user's own, for `wrap` without root's rights. It is a scope from the user's systemd
//! (StartTransientUnit with Delegate, org.freedesktop.systemd1(5), systemd.resource-control(5)), or the cgroup in which
//! this process started, if it belongs to the user and has no other process.
//!
//! ```text
//! .../agentbox-wrap-1a2b.scope      the user's; enables its controllers, so it may have no process itself (cgroups(7))
//!   agentbox-runtime                this process
//!   agentbox-ID                     the command, with the limits
//!   agentbox-sidecar-ID             the sidecar, with its own
//! ```
//! The scope ends with its last process, whatever happens to `wrap`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;

use super::birthplace::words;
use super::error::CgroupError;
use crate::cgroup::hierarchies::{Hierarchies, ROOT};
use crate::sys::program;

/// This process's cgroup below the user's.
const OWN: &str = "agentbox-runtime";

/// The variables by which busctl(1) finds the bus of the user's systemd.
const BUS: [&str; 2] = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// How long systemd may take to answer, and to move this process.
const WITHIN: Duration = Duration::from_secs(5);

/// A cgroup of the user's, in which this process can make others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatedCgroup {
    /// Its path below the root of the hierarchy, which begins with a slash.
    pub path: PathBuf,
    /// The controllers that it may enable for its children.
    pub controllers: BTreeSet<String>,
}

impl DelegatedCgroup {
    /// Whether it can limit everything that a sidecar uses.
    pub fn bounds_sidecar(&self) -> bool {
        let mut all = super::sidecar::CONTROLLERS.into_iter();
        all.all(|one| self.controllers.contains(one))
    }
}

/// Why the user has no cgroup to delegate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// cgroup v1 cannot be delegated safely (systemd's CGROUP_DELEGATION).
    #[error("this node has cgroup v1")]
    Version,
    /// Neither variable with the bus of the user's systemd is set: cron, su, a service.
    #[error("neither XDG_RUNTIME_DIR nor DBUS_SESSION_BUS_ADDRESS is set")]
    NoBus,
    /// busctl(1) is missing, or systemd refused.
    #[error("ask systemd for a scope (busctl --user): {0}")]
    Refused(String),
    /// systemd has accepted the job and not done it.
    #[error("systemd did not move this process to a scope within {} s", WITHIN.as_secs())]
    NotMoved,
    /// The user's cgroup could not be used.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// Moves this process to a cgroup of the user's. The process must be the user's, and not yet in its own user namespace.
pub fn settle() -> Result<(), DelegationError> {
    let hierarchies = Hierarchies::read()?;
    if !hierarchies.is_unified() {
        return Err(DelegationError::Version);
    }
    if of_self().is_some() {
        return Ok(());
    }
    let dir = match ask_systemd(&hierarchies) {
        Ok(dir) => dir,
        Err(refused) => own_alone(&hierarchies).ok_or(refused)?,
    };
    let own = dir.join(OWN);
    let failed = |step: &str| CgroupError::io(format!("{step} {own:?}"));
    match fs::create_dir(&own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("make the cgroup")(error).into());
        }
        _ => {}
    }
    fs::write(own.join("cgroup.procs"), "0").map_err(failed("move to the cgroup"))?;
    Ok(())
}

/// The user's cgroup, if [`settle`] has moved this process there.
pub fn of_self() -> Option<DelegatedCgroup> {
    let hierarchies = Hierarchies::read().ok().filter(Hierarchies::is_unified)?;
    let own = hierarchies.of("self").ok()?.v2?;
    let dir = own.parent().filter(|_| own.ends_with(OWN))?;
    if !is_own(dir) {
        return None;
    }
    Some(DelegatedCgroup {
        path: Path::new("/").join(dir.strip_prefix(ROOT).ok()?),
        controllers: words(dir, "cgroup.controllers").ok()?,
    })
}

/// Whether this node's cgroup version can be delegated.
pub fn is_possible() -> bool {
    Hierarchies::read().is_ok_and(|found| found.is_unified())
}

/// Whether a cgroup belongs to this user, or to the user who is root here.
fn is_own(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// The cgroup of this process, if it belongs to the user and has no other process.
fn own_alone(hierarchies: &Hierarchies) -> Option<PathBuf> {
    let dir = hierarchies.of("self").ok()?.v2?;
    let members = words(&dir, "cgroup.procs").ok()?;
    let alone = members.len() == 1 && members.contains(&std::process::id().to_string());
    (alone && dir != Path::new(ROOT) && is_own(&dir)).then_some(dir)
}

/// From where [`settle`] gets a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupOutlook {
    /// From the user, who has one.
    Own,
    /// From systemd, which may refuse.
    AskSystemd,
}

/// What is seen without trying.
///
/// # Errors
/// [`settle`] would fail.
pub fn outlook() -> Result<CgroupOutlook, DelegationError> {
    let hierarchies = Hierarchies::read()?;
    if !hierarchies.is_unified() {
        return Err(DelegationError::Version);
    }
    if of_self().is_some() || own_alone(&hierarchies).is_some() {
        return Ok(CgroupOutlook::Own);
    }
    busctl().map(|_| CgroupOutlook::AskSystemd)
}

/// Moves this process to a scope, as [`settle`] does, for a child that ends then.
///
/// # Errors
/// systemd refuses.
pub fn try_scope() -> Result<(), DelegationError> {
    ask_systemd(&Hierarchies::read()?).map(drop)
}

/// systemd's own tool for its bus.
fn busctl() -> Result<PathBuf, DelegationError> {
    if BUS.iter().all(|name| std::env::var_os(name).is_none()) {
        return Err(DelegationError::NoBus);
    }
    program::find("busctl").map_err(|error| DelegationError::Refused(error.to_string()))
}

/// A scope for this process from the person's systemd.
fn ask_systemd(hierarchies: &Hierarchies) -> Result<PathBuf, DelegationError> {
    let busctl = busctl()?;
    let mut random = [0; 6];
    getrandom::fill(&mut random)
        .map_err(|error| DelegationError::Refused(format!("no random bytes: {error}")))?;
    let digits = HEXLOWER.encode(&random);
    let unit = format!("agentbox-wrap-{digits}.scope");
    // systemd's own tool can find the bus and authenticate.
    let asked = program::command(&busctl, &BUS)
        .args([
            "--user",
            "--quiet",
            &format!("--timeout={}", WITHIN.as_secs()),
        ])
        .args([
            "call",
            "org.freedesktop.systemd1",
            "/org/freedesktop/systemd1",
        ])
        .args(["org.freedesktop.systemd1.Manager", "StartTransientUnit"])
        .args(["ssa(sv)a(sa(sv))", &unit, "fail"])
        .args(properties(std::process::id()))
        .output();
    match asked {
        Ok(answer) if answer.status.success() => {}
        Ok(answer) => {
            let said = String::from_utf8_lossy(&answer.stderr);
            return Err(DelegationError::Refused(said.trim().to_owned()));
        }
        Err(error) => return Err(DelegationError::Refused(error.to_string())),
    }
    let since = Instant::now();
    while since.elapsed() < WITHIN {
        match hierarchies.of("self")?.v2 {
            Some(dir) if dir.ends_with(&unit) && is_own(&dir) => return Ok(dir),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(DelegationError::NotMoved)
}

/// The scope's properties in busctl(1)'s form of `a(sv)`, and no auxiliary units.
fn properties(pid: u32) -> Vec<String> {
    let given: [&[&str]; 4] = [
        &["Description", "s", "a command behind the walls of agentbox"],
        &["Delegate", "b", "true"],
        // A failed scope has nothing to inspect.
        &["CollectMode", "s", "inactive-or-failed"],
        &["PIDs", "au", "1", &pid.to_string()],
    ];
    let count = given.len().to_string();
    let words = given.into_iter().flatten().map(|word| (*word).to_owned());
    [count]
        .into_iter()
        .chain(words)
        .chain(["0".to_owned()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_request_has_busctls_form() {
        let said = properties(77).join(" ");
        assert!(said.starts_with("4 Description s "), "{said}");
        assert!(said.contains(" Delegate b true "), "{said}");
        assert!(said.ends_with(" PIDs au 1 77 0"), "{said}");
    }

    #[test]
    fn another_users_directory_is_not_the_users() {
        assert!(is_own(&std::env::temp_dir()) == (rustix::process::geteuid().as_raw() == 0));
        assert!(!is_own(Path::new("/nowhere/at/all")));
    }
}
