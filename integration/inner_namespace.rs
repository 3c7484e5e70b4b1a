//! The inner network namespace: its content, the traffic that leaves it (none), and the processes that may enter it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use agentbox::egress::names::{SYNTHETIC_V4, SYNTHETIC_V6};
use agentbox::network::{
    InnerConfig, InnerMode, InnerNamespace, NetworkError, Sysctl, TapScope, counters, enter,
    spawn_maker, verify_current,
};
use agentbox::sys::{netns, process, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use rustix::process::WaitOptions;

use crate::alone::alone;
use crate::command::await_that;

pub fn config(mode: InnerMode) -> InnerConfig<'static> {
    InnerConfig {
        user_namespace: None,
        mode,
        sysctls: Vec::new(),
        listen: None,
        dialers: 0,
        heard: match mode {
            InnerMode::Loopback => TapScope::Loopback,
            InnerMode::AnyIp => TapScope::Everywhere,
        },
    }
}

pub fn make(config: &InnerConfig<'_>) -> InnerNamespace {
    spawn_maker(config).unwrap().finish().unwrap()
}

fn enter_new(mode: InnerMode) -> InnerNamespace {
    let inner = make(&config(mode));
    enter(inner.netns.as_fd(), inner.cookie).unwrap();
    inner
}

/// Asserts that this process has no child left, not even a dead one.
pub fn assert_no_children() {
    let left = rustix::process::waitpid(None, WaitOptions::NOHANG);
    assert_eq!(left.unwrap_err(), rustix::io::Errno::CHILD);
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

const OUTSIDE: [&str; 6] = [
    "198.51.100.1:80",
    "169.254.169.254:80",
    "8.8.8.8:53",
    "[2001:db8::1]:80",
    "[fe80::1%1]:80",
    "[ff02::1%1]:5353",
];

#[test]
fn loopback_reaches_itself_and_nothing_else() {
    alone(|| {
        let before = netns::current_cookie().unwrap();
        let inner = make(&config(InnerMode::Loopback));
        assert_eq!(netns::current_cookie().unwrap(), before, "the caller moved");
        enter(inner.netns.as_fd(), inner.cookie).unwrap();
        for outside in OUTSIDE {
            let tcp = TcpStream::connect(outside);
            assert_eq!(errno(tcp), Some(libc::ENETUNREACH), "TCP {outside}");
            let any = if outside.starts_with('[') {
                "[::]:0"
            } else {
                "0.0.0.0:0"
            };
            let udp = UdpSocket::bind(any).unwrap().send_to(b"x", outside);
            assert_eq!(errno(udp), Some(libc::ENETUNREACH), "UDP {outside}");
        }
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(here).unwrap();
            TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        }
        let synthetic = TcpListener::bind((SYNTHETIC_V4, 0));
        assert_eq!(errno(synthetic), Some(libc::EADDRNOTAVAIL));
    });
}

/// The log's attempts by address rely on the kernel's counters. This checks what they count.
#[test]
fn the_kernel_counts_each_attempt_by_address_once() {
    use std::os::unix::fs::FileExt;
    let read = |fd: &OwnedFd| {
        let file = fs::File::from(fd.try_clone().unwrap());
        let mut text = vec![0; 16 << 10];
        let length = file.read_at(&mut text, 0).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    alone(move || {
        let inner = enter_new(InnerMode::Loopback);
        let count = || {
            let [v4, v6] = [0, 1].map(|at| read(&inner.counters[at]));
            (
                counters::unrouted(&v4).unwrap(),
                counters::unrouted_v6(&v6).unwrap(),
            )
        };
        assert_eq!(count(), (0, 0));
        for outside in OUTSIDE {
            TcpStream::connect(outside).unwrap_err();
            let any = match outside.starts_with('[') {
                true => "[::]:0",
                false => "0.0.0.0:0",
            };
            let udp = UdpSocket::bind(any).unwrap();
            udp.send_to(b"x", outside).unwrap_err();
        }
        // TCP refuses multicast of IPv6 before it looks for a route (tcp_v6_connect).
        assert_eq!(count(), (6, 5));
        // Connections that stay inside do not count.
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(here.local_addr().unwrap()).unwrap();
        assert_eq!(count(), (6, 5));
    });
    alone(move || {
        let inner = enter_new(InnerMode::AnyIp);
        let count = || counters::unanswered(&read(&inner.counters[0])).unwrap();
        assert_eq!(count(), 0);
        for outside in ["198.51.100.1:81", "127.0.0.1:81", "[2001:db8::1]:81"] {
            TcpStream::connect(outside).unwrap_err();
        }
        let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
        udp.send_to(b"x", "198.51.100.1:81").unwrap();
        assert_eq!(count(), 4);
    });
}

#[test]
fn a_mark_or_a_device_does_not_help() {
    alone(|| {
        enter_new(InnerMode::Loopback);
        let far = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), 80);
        // As root with every capability. No workload has them.
        let marked = stream();
        set_option(&marked, libc::SO_MARK, &1_u32.to_ne_bytes()).unwrap();
        let refused = rustix::net::connect(&marked, &far).unwrap_err();
        assert_eq!(refused, rustix::io::Errno::NETUNREACH);
        let eth0 = set_option(&stream(), libc::SO_BINDTODEVICE, b"eth0\0");
        assert_eq!(errno(eth0), Some(libc::ENODEV));
        // For a socket bound to lo, the kernel treats every address as being on that link, where nothing answers.
        let bound = stream();
        set_option(&bound, libc::SO_BINDTODEVICE, b"lo\0").unwrap();
        let waits = rustix::net::connect(&bound, &far).unwrap_err();
        assert_eq!(waits, rustix::io::Errno::INPROGRESS);
        let mut fds = [PollFd::new(&bound, PollFlags::OUT)];
        let moment = Timespec::try_from(Duration::from_millis(300)).unwrap();
        assert_eq!(poll(&mut fds, Some(&moment)).unwrap(), 0);
    });
}

fn stream() -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
}

#[expect(unsafe_code, reason = "no safe wrapper takes these options")]
fn set_option(socket: &OwnedFd, option: i32, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).unwrap();
    // SAFETY: `value` is readable for `len` bytes, and the kernel keeps no pointer.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_ptr().cast(),
            len,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[test]
fn anyip_lands_every_destination_on_a_local_listener() {
    alone(|| {
        enter_new(InnerMode::AnyIp);
        let sources = [IpAddr::V4(SYNTHETIC_V4), IpAddr::V6(SYNTHETIC_V6)];
        let pairs = [
            ("0.0.0.0:443", "198.51.100.1:443"),
            ("[::]:444", "[2001:db8::1]:444"),
        ];
        for ((any, far), source) in pairs.into_iter().zip(sources) {
            let listener = TcpListener::bind(any).unwrap();
            let _client = TcpStream::connect(far).unwrap();
            let (served, from) = listener.accept().unwrap();
            assert_eq!(served.local_addr().unwrap().to_string(), far);
            assert_eq!(from.ip(), source);
        }
        for unserved in ["198.51.100.1:81", "[2001:db8::1]:81"] {
            let refused = TcpStream::connect(unserved);
            assert_eq!(errno(refused), Some(libc::ECONNREFUSED), "{unserved}");
        }
    });
}

/// Needs Linux 5.19, which is older than Debian 12's kernel.
#[test]
fn anyip_takes_large_packets() {
    alone(|| {
        let size = || {
            let shown = Command::new("ip")
                .args(["-d", "link", "show", "lo"])
                .output();
            let text = String::from_utf8(shown.unwrap().stdout).unwrap();
            let mut words = text
                .split_whitespace()
                .skip_while(|word| *word != "gso_max_size");
            words.nth(1).unwrap().to_owned()
        };
        enter_new(InnerMode::Loopback);
        assert_eq!(size(), "65536");
        enter_new(InnerMode::AnyIp);
        assert_eq!(size(), "500000");
    });
}

#[test]
fn anyip_answers_no_ping() {
    alone(|| {
        enter_new(InnerMode::AnyIp);
        let datagram =
            rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP));
        assert_eq!(datagram.unwrap_err(), rustix::io::Errno::ACCESS);
        // Only root can send this at all. The control shows that only the answer was missing.
        assert_eq!(echo_replies(), 0);
        fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "0").unwrap();
        assert_eq!(echo_replies(), 1);
    });
}

/// Sends one echo request to an address outside and counts the answers.
fn echo_replies() -> usize {
    const REQUEST: [u8; 8] = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1];
    const IP_HEADER: usize = 20;
    let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
    let raw = raw.unwrap();
    let far = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 1), 0);
    rustix::net::sendto(&raw, &REQUEST, SendFlags::empty(), &far).unwrap();
    let mut replies = 0;
    while socket::wait_readable(raw.as_fd(), Duration::from_millis(200)).unwrap() {
        let mut packet = [0; 128];
        rustix::net::recv(&raw, &mut packet[..], RecvFlags::empty()).unwrap();
        // 0 is a reply; the socket hears its own request (8) as well.
        replies += usize::from(packet[IP_HEADER] == 0);
    }
    replies
}

#[test]
fn the_specs_sysctls_hold_inside_and_the_walls_own_are_stronger() {
    alone(|| {
        let outside = fs::read("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
        let mut wanted = config(InnerMode::Loopback);
        for (key, value) in [
            ("net.ipv4.ip_unprivileged_port_start", "0"),
            ("net.ipv4.ping_group_range", "0 2147483647"),
            ("net/ipv4/icmp_echo_ignore_all", "0"),
            ("net.ipv6.conf.all.disable_ipv6", "1"),
        ] {
            wanted.sysctls.push(Sysctl::parse(key, value).unwrap());
        }
        let inner = make(&wanted);
        let after = fs::read("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
        assert_eq!(outside, after, "written into the wrong namespace");
        enter(inner.netns.as_fd(), inner.cookie).unwrap();
        for (path, value) in [
            ("ipv4/ip_unprivileged_port_start", "0"),
            ("ipv4/ping_group_range", "1\t0"),
            ("ipv4/icmp_echo_ignore_all", "1"),
            ("ipv6/icmp/echo_ignore_all", "1"),
            ("ipv6/conf/all/disable_ipv6", "1"),
        ] {
            let have = fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap();
            assert_eq!(have.trim(), value, "{path}");
        }
    });
}

#[test]
fn a_sysctl_that_the_kernel_refuses_is_an_error_that_names_it() {
    alone(|| {
        for (key, value) in [
            ("net.ipv4.nonsense", "1"),
            ("net.ipv4.ip_unprivileged_port_start", "many"),
        ] {
            let mut wanted = config(InnerMode::Loopback);
            wanted.sysctls.push(Sysctl::parse(key, value).unwrap());
            let error = spawn_maker(&wanted).unwrap().finish().unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
        assert_no_children();
    });
}

#[test]
fn a_second_link_or_a_renamed_lo_is_refused() {
    alone(|| {
        let inner = enter_new(InnerMode::Loopback);
        run(
            "ip",
            &["link", "add", "v0", "type", "veth", "peer", "name", "v1"],
        );
        let refused = verify_current(inner.cookie).unwrap_err();
        assert!(
            matches!(refused, NetworkError::ForeignLinks { .. }),
            "{refused}"
        );
        run("ip", &["link", "del", "v0"]);
        verify_current(inner.cookie).unwrap();
        run("ip", &["link", "set", "lo", "name", "lo9"]);
        assert!(verify_current(inner.cookie).is_err());
    });
}

#[test]
fn another_sandboxs_namespace_is_refused_although_it_looks_the_same() {
    alone(|| {
        let one = make(&config(InnerMode::Loopback));
        let other = make(&config(InnerMode::Loopback));
        let refused = enter(other.netns.as_fd(), one.cookie).unwrap_err();
        let NetworkError::WrongNamespace { need, have } = refused else {
            panic!("{refused}");
        };
        assert_eq!((need, have), (one.cookie, other.cookie));
        let mounts = fs::File::open("/proc/self/ns/mnt").unwrap();
        assert!(enter(mounts.as_fd(), one.cookie).is_err());
    });
}

#[test]
fn belongs_to_the_containers_user_namespace() {
    alone(|| {
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "sleep", "50"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let user = user_namespace_of(holder.id());
        let user_file = fs::File::open(&user).unwrap();
        for mode in [InnerMode::Loopback, InnerMode::AnyIp] {
            let mut wanted = config(mode);
            wanted.user_namespace = Some(user_file.as_fd());
            let key = "net.ipv4.ip_unprivileged_port_start";
            wanted.sysctls.push(Sysctl::parse(key, "0").unwrap());
            let inner = make(&wanted);
            let owner = owner_of(&inner.netns);
            let owner = fs::read_link(format!("/proc/self/fd/{}", owner.as_raw_fd()));
            assert_eq!(owner.unwrap(), fs::read_link(&user).unwrap());
            // A process of that user namespace, without privileges over ours, can use both.
            let inside = process::fork_into(|| {
                netns::enter_user(user_file.as_fd()).unwrap();
                netns::unshare_mounts().unwrap();
                enter(inner.netns.as_fd(), inner.cookie).unwrap();
                mount_over_sys(&inner);
                0
            });
            let ended = rustix::process::waitpid(Some(inside.unwrap()), WaitOptions::empty());
            assert_eq!(ended.unwrap().unwrap().1.exit_status(), Some(0));
        }
        holder.kill().unwrap();
        holder.wait().unwrap();
    });
}

/// Waits until the process has left our user namespace.
fn user_namespace_of(pid: u32) -> String {
    let path = format!("/proc/{pid}/ns/user");
    await_that("a user namespace of its own", || {
        fs::read_link(&path).unwrap() != fs::read_link("/proc/self/ns/user").unwrap()
    });
    path
}

#[expect(unsafe_code, reason = "no safe wrapper for NS_GET_USERNS")]
fn owner_of(namespace: &OwnedFd) -> OwnedFd {
    use std::os::fd::FromRawFd;
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: NS_GET_USERNS takes no argument and returns a new descriptor.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel just made it for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[test]
fn its_sysfs_shows_lo_alone_wherever_it_is_mounted() {
    alone(|| {
        run(
            "ip",
            &["link", "add", "v0", "type", "veth", "peer", "name", "v1"],
        );
        let inner = make(&config(InnerMode::Loopback));
        netns::unshare_mounts().unwrap();
        mount_over_sys(&inner);
        let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
        let ours = "sysfs /sys sysfs ro,nosuid,nodev,noexec";
        assert!(
            mounts.lines().any(|line| line.starts_with(ours)),
            "{mounts}"
        );
    });
}

/// Mounts over /sys, as the container's init does with the sidecar's handover.
fn mount_over_sys(inner: &InnerNamespace) {
    let flags = rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(&inner.sysfs, "", rustix::fs::CWD, "/sys", flags).unwrap();
    let names: Vec<_> = fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["lo"]);
}

#[test]
fn a_dropped_maker_leaves_no_child() {
    alone(|| {
        for _ in 0..20 {
            drop(spawn_maker(&config(InnerMode::AnyIp)).unwrap());
        }
        assert_no_children();
    });
}
