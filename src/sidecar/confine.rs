//! The sidecar confines itself, and verifies that with the kernel.
//!
//! The order is the design. [`hide`] needs privileges but nothing of the container, so it runs while the runtime still
//! builds the container. [`drop_privileges`] drops everything. [`verify`] reads it back. [`seal`] is last, because its
//! filter forbids the calls of the others.

use std::io;
use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use seccompiler::BpfProgram;
use serde::{Deserialize, Serialize};

use crate::sidecar::account::{Account, Identity};
use crate::sidecar::protocol::Duty;
use crate::sidecar::root::{RootContent, replace_root};
use crate::sys::{kernel, netns, process, seccomp};

/// Capabilities are numbered below this (`kernel_cap_t` has 64 bits).
const MAX_CAPABILITIES: u32 = 64;
/// statfs(2)'s number for tmpfs.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The resource limits of the sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidecarRlimits {
    /// `RLIMIT_NOFILE`, soft and hard.
    pub open_files: u64,
    /// `RLIMIT_FSIZE`: it only appends lines to its log.
    pub file_bytes: u64,
}

/// Why the sidecar is not confined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// The kernel refused a step.
    #[error("cannot {step}")]
    Step {
        /// The step.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// This kernel has no Landlock, or it is disabled.
    #[error("this kernel has no Landlock, or it is switched off")]
    NoLandlock,
    /// Landlock refused the ruleset.
    #[error("landlock refused the ruleset")]
    Landlock(#[source] landlock::RulesetError),
    /// The filter does not compile for this machine.
    #[error("the filter does not compile")]
    Filter(#[source] seccompiler::BackendError),
    /// A wall that was requested is missing.
    #[error("{wall} was set, but the kernel shows {found}")]
    NotHeld {
        /// The wall.
        wall: &'static str,
        /// What the kernel reports instead.
        found: String,
    },
}

impl ConfineError {
    pub(super) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Step {
            step,
            source: source.into(),
        }
    }
}

/// Hides the node's files and sets the limits, while it still has the right.
pub(super) fn hide(limits: SidecarRlimits) -> Result<(), ConfineError> {
    replace_root(RootContent::Nothing)?;
    limit(limits)
}

/// The same, but for what a relay dials.
pub(super) fn hide_all_but(
    content: RootContent<'_>,
    limits: SidecarRlimits,
) -> Result<(), ConfineError> {
    replace_root(content)?;
    limit(limits)
}

/// Sets the resource limits.
pub(super) fn limit(limits: SidecarRlimits) -> Result<(), ConfineError> {
    for (resource, value) in resources(limits) {
        let both = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        rustix::process::setrlimit(resource, both)
            .map_err(ConfineError::step("set the resource limits"))?;
    }
    kernel::limit_core().map_err(ConfineError::step("set the limit of core files"))
}

fn resources(limits: SidecarRlimits) -> [(Resource, u64); 2] {
    let SidecarRlimits {
        open_files,
        file_bytes,
    } = limits;
    [
        (Resource::Nofile, open_files),
        (Resource::Fsize, file_bytes),
    ]
}

/// Joins the engine's network namespace, from which the sidecar dials.
pub(super) fn join_network(namespace: BorrowedFd<'_>) -> Result<(), ConfineError> {
    netns::enter_net(namespace).map_err(ConfineError::step(
        "join the network namespace it belongs in",
    ))
}

/// Moves to a new, empty network namespace.
pub(super) fn leave_network() -> Result<(), ConfineError> {
    netns::unshare_net().map_err(ConfineError::step("make an empty network namespace"))
}

/// Drops every privilege. Returns the Landlock ABI in force from now on.
pub(super) fn drop_privileges(identity: Identity, duty: Duty) -> Result<u32, ConfineError> {
    become_somebody(identity, no_capabilities())?;
    restrict(duty)
}

/// Takes these ids and capabilities, and no other right, for good.
pub(super) fn become_somebody(
    identity: Identity,
    kept: CapabilitySets,
) -> Result<(), ConfineError> {
    // While it has CAP_SETPCAP.
    for number in 0..MAX_CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel's last capability is lower.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(ConfineError::step("empty the bounding set")(error)),
        }
    }
    rustix::thread::set_capabilities_secure_bits(secure_bits(kept))
        .map_err(ConfineError::step("lock the secure bits"))?;
    change_identity(identity)?;
    // setresuid cleared them for a uid other than 0, unless some are kept. Do not rely on that.
    rustix::thread::set_capabilities(None, kept)
        .map_err(ConfineError::step("drop the capabilities"))?;
    rustix::thread::clear_ambient_capability_set()
        .map_err(ConfineError::step("clear the ambient capabilities"))?;
    // After the change of ids, which resets it to fs.suid_dumpable.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(ConfineError::step("become undumpable"))?;
    rustix::thread::set_no_new_privs(true).map_err(ConfineError::step("set no_new_privs"))
}

/// Locks the way back through uid 0, KEEPCAPS or ambient capabilities, for good. Kept capabilities survive the change
/// of ids.
fn secure_bits(kept: CapabilitySets) -> CapabilitiesSecureBits {
    let outlives = match kept.permitted.is_empty() {
        true => CapabilitiesSecureBits::empty(),
        false => CapabilitiesSecureBits::NO_SETUID_FIXUP,
    };
    outlives
        | CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED
}

fn no_capabilities() -> CapabilitySets {
    CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    }
}

fn change_identity(identity: Identity) -> Result<(), ConfineError> {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let Identity { uid, gid } = identity;
    let gid = rustix::process::Gid::from_raw(gid);
    let uid = rustix::process::Uid::from_raw(uid);
    // The calls for one thread are enough: there is only one.
    if !identity.is_callers() {
        set_thread_groups(&[]).map_err(ConfineError::step("clear the groups"))?;
    }
    set_thread_res_gid(gid, gid, gid).map_err(ConfineError::step("set the gid"))?;
    set_thread_res_uid(uid, uid, uid).map_err(ConfineError::step("set the uid"))
}

/// The same for a process that may still connect to the sockets of its root.
pub(super) fn drop_all_but_socket(identity: Identity) -> Result<u32, ConfineError> {
    become_somebody(identity, no_capabilities())?;
    restrict_to(
        AccessFs::from_all(NEWEST) & !AccessFs::ResolveUnix,
        AccessNet::from_all(NEWEST),
    )
}

/// Denies everything that this kernel's Landlock can deny: files, TCP, and its scopes. [`Duty::Serve`] may still
/// connect.
pub(super) fn restrict(duty: Duty) -> Result<u32, ConfineError> {
    let net = match duty {
        Duty::Wait | Duty::Refuse => AccessNet::from_all(NEWEST),
        // Its listeners are already bound, and only the resolver uses UDP sockets.
        Duty::Serve => AccessNet::BindTcp.into(),
    };
    restrict_to(AccessFs::from_all(NEWEST), net)
}

/// The newest ABI of the crate, in its best-effort mode: it omits what the kernel lacks. [`restrict_to`] and [`verify`]
/// check that the rest is in force.
const NEWEST: ABI = ABI::V9;

/// Denies these, and the scopes.
fn restrict_to(files: BitFlags<AccessFs>, net: BitFlags<AccessNet>) -> Result<u32, ConfineError> {
    let abi = process::landlock_abi().map_err(ConfineError::step("ask for the Landlock ABI"))?;
    if abi == 0 {
        return Err(ConfineError::NoLandlock);
    }
    let status = Ruleset::default()
        .handle_access(files)
        .and_then(|rules| rules.handle_access(net))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(|rules| rules.create())
        .and_then(|rules| rules.restrict_self())
        .map_err(ConfineError::Landlock)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(abi),
        RulesetStatus::NotEnforced => Err(not_held("Landlock", "no ruleset")),
    }
}

/// Reads every wall back; the first missing one is the error.
pub(super) fn verify(
    identity: Identity,
    limits: SidecarRlimits,
    landlock_abi: u32,
    account: &Account,
) -> Result<(), ConfineError> {
    // Pid 1 of its own pid namespace.
    let pid = rustix::process::getpid();
    if !pid.is_init() {
        return Err(not_held("the pid namespace", pid));
    }
    verify_beside(identity, limits, landlock_abi, account)
}

/// The same for a process beside the sidecar.
pub(super) fn verify_beside(
    identity: Identity,
    limits: SidecarRlimits,
    landlock_abi: u32,
    account: &Account,
) -> Result<(), ConfineError> {
    verify_somebody(identity, no_capabilities(), account)?;
    for (resource, value) in resources(limits) {
        let have = rustix::process::getrlimit(resource);
        if have.current != Some(value) || have.maximum != Some(value) {
            return Err(not_held(
                "a resource limit",
                format!("{resource:?} {have:?}"),
            ));
        }
    }
    verify_root(landlock_abi)
}

/// Reads back the effect of [`become_somebody`].
pub(super) fn verify_somebody(
    identity: Identity,
    kept: CapabilitySets,
    account: &Account,
) -> Result<(), ConfineError> {
    verify_identity(identity)?;
    verify_capabilities(kept, account)?;
    let dumpable = rustix::process::dumpable_behavior();
    let dumpable = dumpable.map_err(ConfineError::step("read the dumpable bit"))?;
    if dumpable != DumpableBehavior::NotDumpable {
        return Err(not_held("not dumpable", dumpable));
    }
    let no_new_privs = rustix::thread::no_new_privs();
    if !no_new_privs.map_err(ConfineError::step("read no_new_privs"))? {
        return Err(not_held("no_new_privs", "it is off"));
    }
    Ok(())
}

fn verify_identity(identity: Identity) -> Result<(), ConfineError> {
    let Identity { uid, gid } = identity;
    let step = ConfineError::step::<io::Error>;
    let uids = process::user_ids().map_err(step("read the uids"))?;
    let gids = process::group_ids().map_err(ConfineError::step("read the gids"))?;
    if uids != [uid; 3] || gids != [gid; 3] {
        return Err(not_held("the identity", (uids, gids)));
    }
    let groups = rustix::process::getgroups();
    let groups = groups.map_err(ConfineError::step("read the groups"))?;
    if !groups.is_empty() && !identity.is_callers() {
        return Err(not_held("no supplementary group", groups));
    }
    Ok(())
}

fn verify_capabilities(kept: CapabilitySets, account: &Account) -> Result<(), ConfineError> {
    let sets = rustix::thread::capabilities(None);
    let sets = sets.map_err(ConfineError::step("read the capabilities"))?;
    if sets != kept {
        return Err(not_held("no other capability", sets));
    }
    for (wall, name) in [
        ("an empty bounding set", "CapBnd:"),
        ("an empty ambient set", "CapAmb:"),
    ] {
        let set = account.capabilities(name)?;
        if set != 0 {
            return Err(not_held(wall, format_args!("{set:016x}")));
        }
    }
    let bits = rustix::thread::capabilities_secure_bits();
    let bits = bits.map_err(ConfineError::step("read the secure bits"))?;
    if bits != secure_bits(kept) {
        return Err(not_held("the secure bits", bits));
    }
    Ok(())
}

/// The root is the empty read-only tmpfs; under Landlock it cannot even be listed.
fn verify_root(landlock_abi: u32) -> Result<(), ConfineError> {
    let step = "read the root";
    let kind = rustix::fs::statfs("/").map_err(ConfineError::step(step))?;
    if kind.f_type as u64 != TMPFS_MAGIC {
        return Err(not_held("the empty root", kind.f_type));
    }
    let flags = rustix::fs::statvfs("/")
        .map_err(ConfineError::step(step))?
        .f_flag;
    if !flags.contains(StatVfsMountFlags::RDONLY) {
        return Err(not_held("the read-only root", flags));
    }
    let listing = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match (landlock_abi, rustix::fs::open("/", listing, Mode::empty())) {
        (0, Ok(_)) | (1.., Err(rustix::io::Errno::ACCESS)) => Ok(()),
        (_, outcome) => Err(not_held("Landlock", format!("open of / gives {outcome:?}"))),
    }
}

/// Loads the filter, and verifies that with the kernel.
pub(super) fn seal(program: &BpfProgram) -> Result<(), ConfineError> {
    seccomp::load_compiled(program).map_err(ConfineError::step("load the seccomp filter"))?;
    match seccomp::mode().map_err(ConfineError::step("read the seccomp mode"))? {
        2 => Ok(()),
        mode => Err(not_held("the seccomp filter", mode)),
    }
}

/// The error for a wall that the kernel reports differently.
pub(super) fn not_held(wall: &'static str, found: impl std::fmt::Debug) -> ConfineError {
    ConfineError::NotHeld {
        wall,
        found: format!("{found:?}"),
    }
}
