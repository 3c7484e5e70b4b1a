//! The inner network namespace: making it, and the check when entering it.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, accessat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use super::error::NetworkError;
use super::refused::TapScope;
use super::{ListenPorts, Listeners, Sysctl};
use crate::egress::names::{Families, SYNTHETIC_V4, SYNTHETIC_V6};
use crate::sys::netlink::{Link, RouteSocket};
use crate::sys::netns;

/// The largest packet on `lo`, in bytes: below the kernel's maximum (`GSO_MAX_SIZE`, linux/netdevice.h: 524,280).
const LARGEST_PACKET: u32 = 500_000;

/// Echo requests get no answer: under AnyIP the namespace itself would answer `ping 8.8.8.8`.
const ECHO_V4: &str = "net.ipv4.icmp_echo_ignore_all";
const ECHO_V6: &str = "net.ipv6.icmp.echo_ignore_all";
/// Left at the kernel's default, `1 0`: no process without CAP_NET_RAW opens ICMP sockets. (In a user namespace that
/// does not map gid 1, `1 0` could not even be written.)
const PING_GROUPS: &str = "net.ipv4.ping_group_range";
/// The settings that the wall decides, not the spec. Engines do set the last one.
pub(super) const FIXED: [&str; 3] = [ECHO_V4, ECHO_V6, PING_GROUPS];

/// How the inner namespace treats addresses that are not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InnerMode {
    /// Only 127.0.0.1 and ::1 exist; connecting elsewhere fails at once with `ENETUNREACH`.
    Loopback,
    /// Every address of both families is local, so that connections arrive at a listener of the wall.
    AnyIp,
}

/// The namespace to make.
#[derive(Debug)]
pub struct InnerConfig<'a> {
    /// The container's user namespace, which owns the new one.
    pub user_namespace: Option<BorrowedFd<'a>>,
    /// How other addresses are treated.
    pub mode: InnerMode,
    /// The spec's `net.*` settings: inside the container /proc/sys is read-only by then. The wall decides those that
    /// are [`Sysctl::is_fixed`].
    pub sysctls: Vec<Sysctl>,
    /// The ports on which the wall listens; `None`: none.
    pub listen: Option<ListenPorts>,
    /// How many connections may lead in at once: the number of sockets of each family that are made there for dialing.
    pub dialers: usize,
    /// The attempts that the wall hears of.
    pub heard: TapScope,
}

/// A namespace that was made and checked.
#[derive(Debug)]
pub struct InnerNamespace {
    /// The namespace.
    pub netns: OwnedFd,
    /// A detached sysfs of that namespace (read-only, nosuid, nodev, noexec), to be moved over the container's /sys:
    /// one mounted in the engine's namespace keeps showing its interfaces.
    pub sysfs: OwnedFd,
    /// The number that [`enter`] and [`verify_current`] check.
    pub cookie: u64,
    /// The wall's listeners.
    pub listeners: Option<Listeners>,
    /// Unconnected sockets of this namespace: IPv4 ones, then as many IPv6 ones if the kernel has IPv6.
    pub dialers: Vec<OwnedFd>,
    /// The families that this kernel has.
    pub families: Families,
    /// Its /proc/PID/net/snmp, and snmp6 with IPv6; empty if /proc has none.
    pub counters: Vec<OwnedFd>,
    /// Sockets that hear of attempts which the kernel refuses there ([`super::refused`]).
    pub taps: Vec<OwnedFd>,
}

/// Moves the calling thread into the sandbox's network namespace, and checks that it is there.
pub fn enter(netns: BorrowedFd<'_>, cookie: u64) -> Result<(), NetworkError> {
    netns::enter_net(netns).map_err(NetworkError::step("join the namespace"))?;
    verify_current(cookie)
}

/// Refuses unless the calling thread is in the network namespace with this cookie, and sees only `lo` and the idle
/// devices that some kernels add to each namespace. An exec process that libcontainer put into init's namespaces makes
/// this check as well.
pub fn verify_current(cookie: u64) -> Result<(), NetworkError> {
    verify_loopback_only()?;
    let have = current_cookie()?;
    if have == cookie {
        Ok(())
    } else {
        Err(NetworkError::WrongNamespace { need: cookie, have })
    }
}

fn verify_loopback_only() -> Result<(), NetworkError> {
    let mut route = RouteSocket::open().map_err(NetworkError::step("open a routing socket"))?;
    let links = route
        .links()
        .map_err(NetworkError::step("list the links"))?;
    if links.len() == 1 && links[0].is_loopback() {
        return Ok(());
    }
    let used = route
        .links_in_use()
        .map_err(NetworkError::step("list the addresses and routes"))?;
    let has_loopback = links.iter().any(Link::is_loopback);
    let foreign = super::foreign_links(&links, &used);
    if has_loopback && foreign.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = foreign
        .iter()
        .map(|link| link.name.escape_default().to_string())
        .collect();
    let links = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    Err(NetworkError::ForeignLinks { links })
}

fn current_cookie() -> Result<u64, NetworkError> {
    netns::current_cookie().map_err(|source| match source.raw_os_error() {
        Some(libc::ENOPROTOOPT) => NetworkError::NoCookie,
        _ => NetworkError::Step {
            step: "read SO_NETNS_COOKIE",
            source,
        },
    })
}

/// Makes the namespace around the calling process, which must be the maker's child only: it is in another namespace
/// afterwards.
pub(super) fn make(config: &InnerConfig<'_>) -> Result<InnerNamespace, NetworkError> {
    let InnerConfig {
        user_namespace,
        mode,
        sysctls,
        listen,
        dialers,
        heard,
    } = config;
    // First, with the node's privileges: regardless of mounts over /proc here, and although a container's user
    // namespace may not mount one.
    let procfs = procfs().map_err(NetworkError::step("mount a private procfs"))?;
    if let Some(user) = user_namespace {
        netns::enter_user(*user).map_err(NetworkError::step("join the user namespace"))?;
        // fsopen needs CAP_SYS_ADMIN over the mount namespace: use one that this user owns.
        netns::unshare_mounts().map_err(NetworkError::step("unshare the mounts"))?;
    }
    netns::unshare_net().map_err(NetworkError::step("unshare the network"))?;
    let families = families(procfs.as_fd())?;
    configure_loopback(*mode, families)?;
    // After the addresses: engines set `net.ipv6.conf.all.disable_ipv6=1`.
    for sysctl in sysctls.iter().filter(|sysctl| !sysctl.is_fixed()) {
        sysctl.apply(procfs.as_fd())?;
    }
    Sysctl::parse(ECHO_V4, "1")?.apply(procfs.as_fd())?;
    if families.has_v6() {
        Sysctl::parse(ECHO_V6, "1")?.apply(procfs.as_fd())?;
    }
    let sysfs = detached(
        "sysfs",
        MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
    .map_err(NetworkError::step("mount a fresh sysfs"))?;
    let listeners = listen
        .as_ref()
        .map(|on| Listeners::bind(on, families))
        .transpose()?;
    let dialers = super::listeners::dialers(*dialers, families)
        .map_err(NetworkError::step("make sockets to dial with"))?;
    let counters = counters(procfs.as_fd(), families);
    let taps = super::refused::taps(*heard, families);
    let netns = netns::current().map_err(NetworkError::step("open the namespace"))?;
    verify_loopback_only()?;
    Ok(InnerNamespace {
        netns,
        sysfs,
        cookie: current_cookie()?,
        listeners,
        dialers,
        families,
        counters,
        taps,
    })
}

/// The kernel's counts of this namespace, which an open file keeps alive ([`super::counters`]). They are only for the
/// log: no wall depends on them.
fn counters(procfs: BorrowedFd<'_>, families: Families) -> Vec<OwnedFd> {
    let names = match families {
        Families::V4 => &["self/net/snmp"][..],
        Families::Both => &["self/net/snmp", "self/net/snmp6"],
    };
    let open = |name: &&str| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(procfs, *name, flags, Mode::empty()).ok()
    };
    // All or none: one file would count only half.
    let all: Option<Vec<OwnedFd>> = names.iter().map(open).collect();
    all.unwrap_or_default()
}

/// A private procfs; or the visible one, if the pid namespace belongs to another user namespace, whose owner alone
/// could mount another. Its `sys/net` is always the reader's (proc_tgid_net_lookup, net/sysctl_net.c).
fn procfs() -> io::Result<OwnedFd> {
    match detached("proc", MountAttrFlags::empty()) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let seen = rustix::fs::open("/proc", flags, Mode::empty())?;
            match rustix::fs::fstatfs(&seen)?.f_type {
                libc::PROC_SUPER_MAGIC => Ok(seen),
                _ => Err(error),
            }
        }
        made => made,
    }
}

/// Whether this kernel has IPv6 at all (`ipv6.disable=1` leaves no such directory): without it there is nothing to
/// confine.
fn families(procfs: BorrowedFd<'_>) -> Result<Families, NetworkError> {
    use rustix::fs::Access;
    match accessat(procfs, "sys/net/ipv6", Access::EXISTS, AtFlags::empty()) {
        Ok(()) => Ok(Families::Both),
        Err(rustix::io::Errno::NOENT) => Ok(Families::V4),
        Err(error) => Err(NetworkError::step("look for IPv6")(error)),
    }
}

fn configure_loopback(mode: InnerMode, families: Families) -> Result<(), NetworkError> {
    let mut route = RouteSocket::open().map_err(NetworkError::step("open a routing socket"))?;
    let links = route
        .links()
        .map_err(NetworkError::step("list the links"))?;
    let lo = links.iter().find(|link| link.is_loopback());
    let lo =
        lo.ok_or_else(|| NetworkError::step("find lo")(io::Error::from(io::ErrorKind::NotFound)))?;
    route
        .set_up(lo.index)
        .map_err(NetworkError::step("set lo up"))?;
    match mode {
        InnerMode::Loopback => return Ok(()),
        InnerMode::AnyIp => {}
    }
    // With the wall all traffic of the workload crosses this link once more; larger packets make that cheaper. A kernel
    // that cannot is only slower.
    let _as_before = route.allow_packets_of(lo.index, LARGEST_PACKET);
    let mut sources = vec![IpAddr::V4(SYNTHETIC_V4)];
    if families.has_v6() {
        sources.push(IpAddr::V6(SYNTHETIC_V6));
    }
    for source in sources {
        route
            .add_address(lo.index, source)
            .map_err(NetworkError::step("add the synthetic address"))?;
        route
            .add_local_default(lo.index, source)
            .map_err(NetworkError::step("add the local default route"))?;
    }
    Ok(())
}

/// A new, unmounted instance of a file system, opened at its root.
fn detached(name: &str, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Shown by mount(8) as the device; otherwise "none".
    fsconfig_set_string(context.as_fd(), "source", name)?;
    fsconfig_create(context.as_fd())?;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(mount)
}
