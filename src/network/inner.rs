//! The inner network namespace: what it is made of, and the check on entering it.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, accessat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use super::{ListenPorts, Listeners, NetworkError, Sysctl};
use crate::egress::names::{Families, SYNTHETIC_V4, SYNTHETIC_V6};
use crate::sys::netlink::{Link, RouteSocket};
use crate::sys::netns;

/// What `lo` may carry at once, in bytes: under the kernel's most (`GSO_MAX_SIZE`, linux/netdevice.h: 524,280).
const LARGEST_PACKET: u32 = 500_000;

/// Nothing answers an echo that it was not asked for: under AnyIP `ping 8.8.8.8` would be answered
/// by ourselves.
const ECHO_V4: &str = "net.ipv4.icmp_echo_ignore_all";
const ECHO_V6: &str = "net.ipv6.icmp.echo_ignore_all";
/// Not written but left as the kernel makes it, `1 0`: nobody opens ICMP sockets without
/// CAP_NET_RAW. (In a user namespace that does not map gid 1, `1 0` could not even be written.)
const PING_GROUPS: &str = "net.ipv4.ping_group_range";
/// The settings that are the wall's and not the spec's. Engines do set the last one.
pub(super) const FIXED: [&str; 3] = [ECHO_V4, ECHO_V6, PING_GROUPS];

/// What the inner namespace does with addresses that are not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InnerMode {
    /// Only 127.0.0.1 and ::1 exist; connecting elsewhere fails at once with `ENETUNREACH`.
    Loopback,
    /// Every address of both families is local, so that it arrives at a listener of the wall.
    AnyIp,
}

/// What to make.
#[derive(Debug)]
pub struct InnerConfig<'a> {
    /// The container's user namespace, which is to own the new one.
    pub user_namespace: Option<BorrowedFd<'a>>,
    /// How other addresses are treated.
    pub mode: InnerMode,
    /// The spec's `net.*` settings: inside the container /proc/sys is read-only by then. Those
    /// that are [`Sysctl::is_fixed`] stay the wall's.
    pub sysctls: Vec<Sysctl>,
    /// What the wall listens on; `None`: nothing.
    pub listen: Option<ListenPorts>,
    /// How many connections may lead in at once: so many sockets of each family are made there to dial with.
    pub dialers: usize,
}

/// A namespace that was made and checked.
#[derive(Debug)]
pub struct InnerNamespace {
    /// The namespace.
    pub netns: OwnedFd,
    /// A detached sysfs of that namespace (read-only, nosuid, nodev, noexec), to be moved over the
    /// container's /sys: one mounted in the engine's namespace keeps showing its interfaces.
    pub sysfs: OwnedFd,
    /// The number that [`enter`] and [`verify_current`] look for.
    pub cookie: u64,
    /// The wall's listeners.
    pub listeners: Option<Listeners>,
    /// Sockets of this namespace that are not connected: those of IPv4, then as many of IPv6 where the kernel has it.
    pub dialers: Vec<OwnedFd>,
    /// The families that this kernel has.
    pub families: Families,
    /// Its /proc/PID/net/snmp, and snmp6 where it has IPv6; nothing where /proc shows none.
    pub counters: Vec<OwnedFd>,
}

/// Moves the calling thread into the sandbox's network namespace, and makes sure that it is there.
pub fn enter(netns: BorrowedFd<'_>, cookie: u64) -> Result<(), NetworkError> {
    netns::enter_net(netns).map_err(NetworkError::step("join the namespace"))?;
    verify_current(cookie)
}

/// Refuses unless the calling thread is in the network namespace with this cookie and sees `lo`
/// alone, and the idle devices that some kernels put into each namespace. A tenant that libcontainer put into init's namespaces makes this check as well.
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

/// Makes the namespace around the calling process, which must be the maker's child and nothing
/// else: it is in another namespace afterwards.
pub(super) fn make(config: &InnerConfig<'_>) -> Result<InnerNamespace, NetworkError> {
    let InnerConfig {
        user_namespace,
        mode,
        sysctls,
        listen,
        dialers,
    } = config;
    // First, with the node's privileges: whatever is mounted over /proc here, and although a
    // container's user namespace may not mount one.
    let procfs = procfs().map_err(NetworkError::step("mount a private procfs"))?;
    if let Some(user) = user_namespace {
        netns::enter_user(*user).map_err(NetworkError::step("join the user namespace"))?;
        // fsopen asks for CAP_SYS_ADMIN over the mount namespace: one that this user owns.
        netns::unshare_mounts().map_err(NetworkError::step("unshare the mounts"))?;
    }
    netns::unshare_net().map_err(NetworkError::step("unshare the network"))?;
    let families = families(procfs.as_fd())?;
    configure_loopback(*mode, families)?;
    // After the addresses: `net.ipv6.conf.all.disable_ipv6=1` is a thing that engines ask for.
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
    })
}

/// The kernel's counts of this namespace, which an open file keeps ([`super::counters`]). They are for the log alone: no wall stands
/// on them.
fn counters(procfs: BorrowedFd<'_>, families: Families) -> Vec<OwnedFd> {
    let names = match families {
        Families::V4 => &["self/net/snmp"][..],
        Families::Both => &["self/net/snmp", "self/net/snmp6"],
    };
    let open = |name: &&str| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(procfs, *name, flags, Mode::empty()).ok()
    };
    // All or none: one alone would count half.
    let all: Option<Vec<OwnedFd>> = names.iter().map(open).collect();
    all.unwrap_or_default()
}

/// A private procfs; or the one in sight, where the pid namespace is not this user namespace's and only its owner could mount
/// another. Its `sys/net` is that of whoever reads it (proc_tgid_net_lookup, net/sysctl_net.c).
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

/// Whether this kernel has IPv6 at all (`ipv6.disable=1` leaves no such directory): without it
/// there is nothing to fence.
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
    // All traffic of the workload crosses this link once more than without a wall; in larger packets that costs less. A
    // kernel that cannot is slower, nothing else.
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

/// A new instance of a file system that is mounted nowhere, opened at its root.
fn detached(name: &str, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    // What mount(8) shows as the device; "none" otherwise.
    fsconfig_set_string(context.as_fd(), "source", name)?;
    fsconfig_create(context.as_fd())?;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(mount)
}
