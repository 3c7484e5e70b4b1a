//! A caller without root's rights: the user namespace in which `wrap` does the same for them as for root.
//!
//! ```text
//! node's user namespace      the user, without any capability
//!   U1  0 -> user            this program: mounts, namespaces, the sidecar; made by [`enter`], with a mount namespace
//!     U2  user -> 0          the command: the user again, without any capability, and no way back to U1
//! ```
//! In U1 the program is root only of what it makes: the kernel lets it mount, and checks every file by the user's own
//! rights. The command's process itself makes U2, as its last step before the filter ([`crate::enforce`]). Mounts
//! belong to U1, so that not even a process with all capabilities of U2 could change them (mount_namespaces(7)).
//!
//! Two namespaces, because one is not enough: a process that is root in U1 is shown as root inside, and a process that
//! is the user has no right to mount.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::thread::CapabilitySet;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cgroup::delegated::{self, CgroupOutlook, DelegationError};
use crate::plan::HostFacts;
use crate::probe;
use crate::runtime::RuntimeError;
use crate::runtime::input::node_files::NodeFiles;
use crate::runtime::obstacle::{self, Obstacle};
use crate::runtime::seal;
use crate::sys::process;
use crate::sys::seccomp;
use crate::sys::user_namespace::{self, Ids};

/// Why there is no user namespace to work in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoNamespace {
    /// unshare(2) refuses.
    #[error("the kernel refuses `wrap` a user namespace ({errno}): {why}")]
    Refused {
        /// The kernel's error.
        errno: io::Error,
        /// The likely reason, and what to do.
        why: String,
    },
    /// It was made, but its user cannot be mapped or has no rights in it.
    #[error("the kernel gives `wrap` no rights in its own user namespace ({errno}): {why}")]
    NoRights {
        /// The kernel's error.
        errno: io::Error,
        /// The likely reason, and what to do.
        why: String,
    },
    /// Nested walls would need what the outer ones deny.
    #[error("this looks like a sandbox of agentbox already: run the command without `wrap`")]
    Sandboxed,
    /// The program could not inspect its own user namespace.
    #[error("look at this process's own user namespace")]
    Unknown(#[source] io::Error),
}

/// Whether this process is in a sandbox of agentbox already.
pub fn sandboxed() -> Option<NoNamespace> {
    seccomp::forbids_listeners().then_some(NoNamespace::Sandboxed)
}

/// What the calling process may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    /// Root's, on the node.
    Root,
    /// Root's in a user namespace made for one user.
    Inside(Ids),
    /// None: a namespace must be made for this user.
    None(Ids),
}

/// Looked up once, and again after [`make`]: each step of `create` asks.
static KNOWN: Mutex<Option<Rights>> = Mutex::new(None);

fn forget() {
    *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn rights() -> Result<Rights, NoNamespace> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match *known {
        Some(rights) => Ok(rights),
        None => Ok(*known.insert(look()?)),
    }
}

fn look() -> Result<Rights, NoNamespace> {
    let sets = rustix::thread::capabilities(None).map_err(|e| NoNamespace::Unknown(e.into()))?;
    let uid = rustix::process::geteuid().as_raw();
    if uid != 0 || !sets.effective.contains(CapabilitySet::SYS_ADMIN) {
        let gid = rustix::process::getegid().as_raw();
        return Ok(Rights::None(Ids { uid, gid }));
    }
    let person = user_namespace::only_user().map_err(NoNamespace::Unknown)?;
    Ok(person.map_or(Rights::Root, Rights::Inside))
}

/// The user for whom this process works without root's rights; `None` if it has them. If that cannot be told, it counts
/// as having none.
pub fn person() -> Option<Ids> {
    match rights() {
        Ok(Rights::Root) => None,
        Ok(Rights::Inside(person) | Rights::None(person)) => Some(person),
        Err(_) => Some(Ids {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }),
    }
}

/// The uid on the node of the user for whom this process works.
pub fn uid() -> u32 {
    // Who has root's rights is user 0.
    person().map_or(0, |person| person.uid)
}

/// The user in whose user namespace this process is root, if it is in one.
pub fn inside() -> Option<Ids> {
    match rights() {
        Ok(Rights::Inside(person)) => Some(person),
        Ok(Rights::Root | Rights::None(_)) | Err(_) => None,
    }
}

/// Whether this process has no root's rights, and no user namespace either.
pub fn is_outside() -> bool {
    person().is_some() && inside().is_none()
}

/// The user's cgroup to which [`settle`] has moved this process, below the root of the hierarchy.
pub fn cgroup() -> Option<std::path::PathBuf> {
    inside()?;
    delegated::of_self().map(|own| own.path)
}

/// Moves a process without root's rights to a cgroup of the user's, if systemd gives one: systemd knows the user, but
/// not the root of the namespace that [`enter`] makes. Without a cgroup the plan lists limits that are not enforced.
pub fn settle() {
    if !matches!(rights(), Ok(Rights::None(_))) {
        return;
    }
    match delegated::settle() {
        Ok(()) => {}
        Err(why @ DelegationError::Version) => log::debug!("no cgroup of the user's own: {why}"),
        Err(why) => log::info!("no cgroup of the user's own: {}", crate::log::chain(&why)),
    }
}

/// Moves a process without root's rights, which must have one thread, to a user namespace for one user and a mount
/// namespace that belongs to it. Call [`super::seal::ensure`] next, which executes the program again there.
///
/// The node's files are read and checked here, in addition to later: inside, root's files and another user's look
/// alike.
pub fn enter(global: &crate::cli::GlobalOptions) -> Result<(), RuntimeError> {
    let Rights::None(person) = rights()? else {
        return Ok(());
    };
    NodeFiles::of(global)?;
    seal::remember_path();
    Ok(make(person)?)
}

/// Moves a process without root's rights, which must have one thread, to the user namespace of one of the user's own
/// sandboxes, and to a mount namespace that belongs to it. Call [`super::seal::ensure`] next.
///
/// The node's files are checked here, as in [`enter`].
pub fn join(
    global: &crate::cli::GlobalOptions,
    namespace: BorrowedFd<'_>,
) -> Result<(), RuntimeError> {
    NodeFiles::of(global)?;
    seal::remember_path();
    forget();
    let step = "join the user namespace of the sandbox";
    user_namespace::join_with_mounts(namespace).map_err(RuntimeError::io(step))?;
    own_mounts().map_err(RuntimeError::io(
        "keep this process's mounts from the node's",
    ))
}

/// What the kernel can do for the caller, seen as `wrap` sees it, or why there is no namespace to see it in. A child looks, and ends:
/// nothing of it stays. To be called by a process with one thread.
pub fn attempt() -> io::Result<Result<SeenHost, String>> {
    in_child(|| {
        let made = rights().and_then(|rights| match rights {
            Rights::None(person) => make(person),
            Rights::Root | Rights::Inside(_) => Ok(()),
        });
        let seen = made.map(|()| SeenHost {
            host: probe::host(),
            obstacle: obstacle::of_user().ok().flatten(),
        });
        seen.map_err(|error| crate::log::chain(&error))
    })
}

/// What a child of [`attempt`] sees.
#[derive(Debug, Serialize, serde::Deserialize)]
pub struct SeenHost {
    /// The kernel.
    pub host: HostFacts,
    /// What a container around it keeps from `wrap`.
    pub obstacle: Option<Obstacle>,
}

/// What a container around this process keeps from `wrap`, looked for after a failure. `None` also if that cannot be told.
pub fn obstacle() -> Option<Obstacle> {
    if is_outside() || !process::is_single_threaded().unwrap_or(false) {
        return None;
    }
    match inside() {
        Some(_) => obstacle::of_user().ok().flatten(),
        None => obstacle::of_root(),
    }
}

/// Whether [`settle`] gets a cgroup, or why not. Where only systemd can tell, a child asks for a scope, which ends with it.
pub fn attempt_cgroup() -> io::Result<Result<(), String>> {
    let chain = |error: DelegationError| crate::log::chain(&error);
    match delegated::outlook() {
        Err(error) => Ok(Err(chain(error))),
        Ok(CgroupOutlook::Own) => Ok(Ok(())),
        Ok(CgroupOutlook::AskSystemd) => in_child(|| delegated::try_scope().map_err(chain)),
    }
}

/// What a child says that ends then. To be called by a process with one thread.
fn in_child<T: Serialize + DeserializeOwned>(look: impl FnOnce() -> T) -> io::Result<T> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = process::fork_into(|| {
        let written = serde_json::to_writer(File::from(writer), &look());
        i32::from(written.is_err())
    })?;
    let mut text = String::new();
    let read = File::from(reader).read_to_string(&mut text);
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())?;
    read?;
    Ok(serde_json::from_str(&text)?)
}

/// Makes the namespaces, and moves this process to them.
fn make(person: Ids) -> Result<(), NoNamespace> {
    forget();
    user_namespace::unshare_with_mounts().map_err(|errno| {
        // A program that forges this sign only gets another sentence.
        sandboxed().unwrap_or_else(|| NoNamespace::Refused {
            why: reason(&errno, &Sysctls::read()),
            errno,
        })
    })?;
    let no_rights = |errno: io::Error| NoNamespace::NoRights {
        why: reason(&errno, &Sysctls::read()),
        errno,
    };
    user_namespace::map_one(Ids { uid: 0, gid: 0 }, person).map_err(no_rights)?;
    // AppArmor allows the namespace and takes its rights away (Ubuntu since 23.10).
    own_mounts().map_err(no_rights)
}

/// Mounts of this process's namespace no longer reach the node's.
fn own_mounts() -> io::Result<()> {
    use rustix::mount::MountPropagationFlags;
    let all_below = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", all_below)?)
}

/// The node's settings for user namespaces of ordinary users.
#[derive(Debug, Default)]
struct Sysctls {
    /// user.max_user_namespaces
    most: Option<u64>,
    /// kernel.unprivileged_userns_clone, of Debian's and Arch's kernels
    clone: Option<u64>,
    /// kernel.apparmor_restrict_unprivileged_userns, of Ubuntu's
    apparmor: Option<u64>,
    /// Whether this process is under a seccomp filter.
    filtered: bool,
    /// Whether files of /proc are covered, as in a container.
    covered: bool,
    /// Whether the caller is user 0, without root's rights.
    zero: bool,
}

impl Sysctls {
    fn read() -> Self {
        let number = |name: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
            text.trim().parse().ok()
        };
        let mode = rustix::thread::secure_computing_mode();
        Self {
            most: number("user/max_user_namespaces"),
            clone: number("kernel/unprivileged_userns_clone"),
            apparmor: number("kernel/apparmor_restrict_unprivileged_userns"),
            filtered: mode.is_ok_and(|m| m == rustix::thread::SecureComputingMode::Filter),
            covered: obstacle::covers_proc(),
            zero: rustix::process::getuid().is_root(),
        }
    }
}

/// The words for the reason, the most certain first. unshare(2) and user_namespaces(7) name the errnos.
fn reason(errno: &io::Error, node: &Sysctls) -> String {
    let sudo = match node.zero {
        true => "",
        false => "or run it with sudo; ",
    };
    let why = match (errno.raw_os_error(), node) {
        (_, Sysctls { most: Some(0), .. }) | (Some(libc::ENOSPC), _) => {
            "user.max_user_namespaces leaves none: let root set it (sysctl user.max_user_namespaces=10000)"
        }
        (Some(libc::EUSERS), _) => "user namespaces are nested too deeply here (32 levels)",
        (_, Sysctls { clone: Some(0), .. }) => {
            "kernel.unprivileged_userns_clone is 0: let root set it to 1"
        }
        (
            _,
            Sysctls {
                apparmor: Some(1..),
                ..
            },
        ) => {
            "kernel.apparmor_restrict_unprivileged_userns wants an AppArmor profile: let root run `agentbox install`"
        }
        (
            _,
            Sysctls {
                filtered: true,
                covered: true,
                ..
            },
        ) => {
            return format!(
                "this container's seccomp filter denies unshare: {}; see `agentbox doctor`",
                Obstacle::MaskedProc.remedy()
            );
        }
        (_, Sysctls { filtered: true, .. }) => {
            "a seccomp filter around it, such as Docker's default one, denies unshare: give the container or service one \
             that allows it"
        }
        _ => {
            "a security module, a chroot, a missing CAP_SETFCAP or the kernel's configuration (CONFIG_USER_NS) is in the way"
        }
    };
    format!("{why}; {sudo}`--walls landlock` needs no namespace; see `agentbox doctor`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_the_nodes_setting() {
        let eperm = || io::Error::from_raw_os_error(libc::EPERM);
        let none = Sysctls::default;
        for (errno, node, word) in [
            (
                io::Error::from_raw_os_error(libc::ENOSPC),
                none(),
                "user.max_user_namespaces",
            ),
            (
                eperm(),
                Sysctls {
                    most: Some(0),
                    filtered: true,
                    ..none()
                },
                "user.max_user_namespaces",
            ),
            (
                eperm(),
                Sysctls {
                    clone: Some(0),
                    ..none()
                },
                "kernel.unprivileged_userns_clone",
            ),
            (
                io::Error::from_raw_os_error(libc::EACCES),
                Sysctls {
                    apparmor: Some(1),
                    filtered: true,
                    ..none()
                },
                "agentbox install",
            ),
            (
                eperm(),
                Sysctls {
                    filtered: true,
                    clone: Some(1),
                    ..none()
                },
                "seccomp",
            ),
            (
                io::Error::from_raw_os_error(libc::EUSERS),
                none(),
                "too deeply",
            ),
            (eperm(), none(), "CONFIG_USER_NS"),
        ] {
            let text = reason(&errno, &node);
            assert!(text.contains(word), "{word}: {text}");
            assert!(text.contains("sudo") && text.contains("--walls landlock"));
        }
    }

    /// In a container sudo gives no more rights, and neither does it to user 0.
    #[test]
    fn nobody_is_sent_to_sudo_who_gets_nothing_by_it() {
        let eperm = || io::Error::from_raw_os_error(libc::EPERM);
        let container = Sysctls {
            filtered: true,
            covered: true,
            ..Sysctls::default()
        };
        let zero = Sysctls {
            zero: true,
            ..Sysctls::default()
        };
        let text = reason(&eperm(), &container);
        assert!(text.contains("systempaths=unconfined"), "{text}");
        let whole = NoNamespace::Refused {
            errno: eperm(),
            why: text,
        };
        let whole = whole.to_string();
        assert!(
            whole.len() < crate::text::MESSAGE,
            "{} {whole}",
            whole.len()
        );
        for node in [container, zero] {
            let text = reason(&eperm(), &node);
            assert!(!text.contains("sudo"), "{text}");
            assert!(text.contains("--walls landlock"), "{text}");
        }
    }
}
