//! The network wall: N01, N13, N15 to N17, N26 and F19 of the threat list.
//!
//! "The internet" is an address on the rig's own loopback that containers reach through the engine's bridge. No byte
//! may arrive there, no matter what connect() returned.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::probe::{Report, User, Via, Walls, all_denied, ask, attack};
use super::{Docker, Network, Policy};
use crate::command::run;

/// A test's server, TCP and UDP on one port, that answers and counts.
struct FarSide {
    port: String,
    arrived: Arc<AtomicUsize>,
}

impl FarSide {
    /// Listens on one address of the rig. Its threads end with the test binary.
    fn listen(address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let tcp = TcpListener::bind((address, 0)).unwrap();
        let address = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(address).unwrap();
        let arrived = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&arrived);
        std::thread::spawn(move || {
            for connection in tcp.incoming() {
                let mut connection = connection.unwrap();
                let mut byte = [0; 16];
                count.fetch_add(1, Ordering::SeqCst);
                // It was counted; a client that has hung up is not the test's business.
                if connection.read(&mut byte).is_ok_and(|read| read > 0) {
                    connection.write_all(b"x").ok();
                }
            }
        });
        let count = Arc::clone(&arrived);
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((_, peer)) = udp.recv_from(&mut buffer) {
                count.fetch_add(1, Ordering::SeqCst);
                udp.send_to(b"x", peer).ok();
            }
        });
        Self {
            port: address.port().to_string(),
            arrived,
        }
    }

    fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }
}

/// Adds an address to the rig; repeating it is fine.
fn add_address(address: &str) {
    run("ip", &["address", "replace", address, "dev", "lo"]).ok();
}

/// Asks from a container without walls, which must get an answer, then from behind each policy, which must not.
#[track_caller]
fn nothing_arrives(docker: &Docker, options: &[&str], protocol: &str, address: &str) {
    let far = FarSide::listen(address);
    let question = [protocol, address, far.port.as_str()];
    for via in [Via::Init, Via::Exec] {
        let control = ask(docker, Walls::None, via, options, &question);
        assert_eq!(
            control.word, "answered",
            "the control of {question:?} via {via:?}"
        );
    }
    let before = far.arrived();
    assert!(before >= 2, "the controls arrived");
    for policy in Policy::ALL {
        for via in [Via::Init, Via::Exec] {
            let answer = ask(docker, Walls::Of(policy), via, options, &question);
            assert_ne!(
                answer.word, "answered",
                "{policy:?} via {via:?}: {question:?}"
            );
            assert_ne!(answer.word, "no-such-step");
        }
    }
    assert_eq!(far.arrived(), before, "something arrived at the far side");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n01_no_tcp_reaches_an_address() {
    let docker = Docker::connect();
    add_address("198.51.100.7/32");
    nothing_arrives(&docker, &[], "tcp", "198.51.100.7");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n01_no_tcp_reaches_the_bridges_gateway() {
    let docker = Docker::connect();
    let format = "{{(index .IPAM.Config 0).Gateway}}";
    let gateway = docker
        .call(&["network", "inspect", "bridge", "-f", format])
        .ok();
    nothing_arrives(&docker, &[], "tcp", gateway.trim());
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n13_no_datagram_reaches_an_address() {
    let docker = Docker::connect();
    add_address("198.51.100.8/32");
    nothing_arrives(&docker, &[], "udp", "198.51.100.8");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n15_nothing_goes_out_by_ipv6() {
    add_address("2001:db8:7::7/128");
    let docker = Docker::connect();
    let network = Network::create(&docker, &["--ipv6", "--subnet=2001:db8:1::/64"]);
    let option = format!("--network={}", network.name);
    nothing_arrives(&docker, &[&option], "tcp", "2001:db8:7::7");
    nothing_arrives(&docker, &[&option], "udp", "2001:db8:7::7");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n01_the_hosts_network_is_not_a_way_out() {
    let docker = Docker::connect();
    let options = ["--network=host"];
    nothing_arrives(&docker, &options, "tcp", "127.0.0.1");
    nothing_arrives(&docker, &options, "udp", "127.0.0.1");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n16_socket_options_choose_no_other_way() {
    all_denied(&[
        attack("option-mark", &["EPERM"]),
        attack("option-transparent", &["EPERM"]),
        // ENODEV: an ordinary user may name a device, but there is none.
        attack("option-device", &["EPERM", "ENODEV"]),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n17_routes_and_links_cannot_be_changed() {
    all_denied(&[
        attack("add-route", &["EPERM"]),
        attack("change-link", &["EPERM"]),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n17_f19_only_lo_is_there_by_netlink_and_by_sysfs() {
    let docker = Docker::connect();
    let control = Report::of(&docker, Walls::None, Via::Init, User::Root);
    for step in ["links", "sysfs-links"] {
        assert!(
            control.answer(step).detail.contains("eth0"),
            "the control of {step}"
        );
    }
    for policy in Policy::ALL {
        for via in Via::ALL {
            let report = Report::of(&docker, Walls::Of(policy), via, User::Root);
            let about = report.about();
            assert_eq!(report.answer("links").detail, "lo", "{about}");
            // Masking all of it is as good.
            let sysfs = report.answer("sysfs-links");
            assert!(
                ["lo", ""].contains(&sysfs.detail.as_str()),
                "{about}: {}",
                sysfs.detail
            );
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n17_the_engines_other_networks_show_only_lo_as_well() {
    let docker = Docker::connect();
    for network in ["--network=none", "--network=host"] {
        for policy in Policy::ALL {
            for via in [Via::Init, Via::Exec] {
                let text = super::probe::run_probe_with(
                    &docker,
                    Walls::Of(policy),
                    via,
                    User::Root,
                    &[network],
                    &["probe", "links"],
                );
                assert_eq!(
                    text, "links\tseen\tlo\n",
                    "{network} {policy:?} via {via:?}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn loopback_works_inside() {
    let docker = Docker::connect();
    let script = "nc -l -p 8080 -e echo hello & \
                  for i in $(seq 300); do nc 127.0.0.1 8080 2>/dev/null && break; sleep 0.1; done";
    let mut options = Policy::Standard.options();
    options.push("test-probe");
    assert_eq!(docker.run(&options, &["sh", "-c", script]).ok(), "hello\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n26_an_exec_in_the_moment_of_start_never_sees_the_engines_network() {
    let docker = Docker::connect();
    for _ in 0..12 {
        let mut options = Policy::Standard.options();
        options.push("test-probe");
        let container = docker.create(&options, &["sleep", "60"]);
        std::thread::scope(|scope| {
            let start = scope.spawn(|| container.call("start", &[]));
            for _ in 0..6 {
                let tried = container.exec(&[], &["probe", "links"]);
                if tried.code == 0 {
                    assert_eq!(tried.stdout, "links\tseen\tlo\n");
                }
            }
            start.join().unwrap().ok();
        });
        assert_eq!(
            container.exec(&[], &["probe", "links"]).ok(),
            "links\tseen\tlo\n"
        );
    }
}
