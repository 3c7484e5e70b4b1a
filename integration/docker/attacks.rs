//! The syscall wall: S01 to S14 and S18, S19 of the threat list, by the init process and by exec.
//!
//! The errnos are those of `policies/syscalls/base.toml`: ENOSYS where programs probe and fall back, EPERM for
//! privileged calls, EAFNOSUPPORT for socket families. Only entry points of another architecture kill.

use super::Docker;
use super::Policy;
use super::probe::{
    Attack, Report, User, Via, Walls, all_denied, all_let_through, attack, attack_if_built_in,
};

const ENOSYS: &[&str] = &["ENOSYS"];
const EPERM: &[&str] = &["EPERM"];
const EAFNOSUPPORT: &[&str] = &["EAFNOSUPPORT"];
const EPROTONOSUPPORT: &[&str] = &["EPROTONOSUPPORT"];
const KILLED: &[&str] = &["killed:SIGSYS"];

#[test]
#[ignore = "needs the rig: hack/test"]
fn s01_io_uring_does_not_exist() {
    all_denied(&[
        attack("io_uring_setup", ENOSYS),
        attack("io_uring_enter", ENOSYS),
        attack("io_uring_register", ENOSYS),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s02_other_processes_are_out_of_reach() {
    all_denied(&[
        attack("ptrace-attach", EPERM),
        attack("ptrace-seize", EPERM),
        attack("ptrace-traceme", EPERM),
        attack("process_vm_readv", EPERM),
        attack("process_vm_writev", EPERM),
        attack("pidfd_getfd", EPERM),
        attack("kcmp", EPERM),
        attack("process_madvise", ENOSYS),
        attack("process_mrelease", ENOSYS),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s03_the_kernel_runs_no_programs_of_the_workload() {
    all_denied(&[
        attack("bpf", EPERM),
        attack("perf_event_open", EPERM),
        attack_if_built_in("userfaultfd", EPERM),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s04_no_new_namespace_in_any_spelling() {
    const NEW: [&str; 18] = [
        "unshare-newuser",
        "unshare-newns",
        "unshare-newnet",
        "unshare-newpid",
        "unshare-newuts",
        "unshare-newipc",
        "unshare-newcgroup",
        "unshare-newtime",
        "clone-newuser",
        "clone-newuser-high",
        "clone-newns",
        "clone-newns-high",
        "clone-newnet",
        "clone-newpid",
        "clone-newuts",
        "clone-newipc",
        "clone-newcgroup",
        "setns",
    ];
    let mut attacks: Vec<Attack> = NEW.iter().map(|step| attack(step, EPERM)).collect();
    attacks.push(attack("setns-high", EPERM));
    attacks.push(attack("clone3-empty", ENOSYS));
    attacks.push(attack("clone3-newuser", ENOSYS));
    all_denied(&attacks);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s05_nothing_can_be_mounted_by_the_old_or_the_new_calls() {
    all_denied(&[
        attack("mount", EPERM),
        attack("umount2", EPERM),
        attack("pivot_root", EPERM),
        attack("open_tree", ENOSYS),
        attack("move_mount", ENOSYS),
        attack("fsopen", ENOSYS),
        attack("fsconfig", ENOSYS),
        attack("fsmount", ENOSYS),
        attack("fspick", ENOSYS),
        attack("mount_setattr", ENOSYS),
        attack("mount-tmpfs", EPERM),
        attack("remount-root", EPERM),
        attack("unmask-proc", EPERM),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s06_s19_no_keyring_can_be_read() {
    all_denied(&[
        attack("keyctl", EPERM),
        attack("add_key", EPERM),
        attack("request_key", EPERM),
        attack("session-keyring", EPERM),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s07_files_have_no_handles() {
    all_denied(&[
        attack("open_by_handle_at", EPERM),
        attack("name_to_handle_at", EPERM),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s08_a_personality_that_weakens_is_refused() {
    all_denied(&[
        attack("personality-read-implies-exec", EPERM),
        attack("personality-no-randomize", EPERM),
        attack("personality-high", EPERM),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s09_the_machine_is_not_administered_from_inside() {
    all_denied(&[
        attack_if_built_in("modify_ldt", ENOSYS),
        attack("iopl", EPERM),
        attack("ioperm", EPERM),
        attack("swapon", EPERM),
        attack("swapoff", EPERM),
        attack("reboot", EPERM),
        attack("kexec_load", EPERM),
        attack("kexec_file_load", EPERM),
        attack("init_module", EPERM),
        attack("finit_module", EPERM),
        attack("delete_module", EPERM),
        attack("quotactl", EPERM),
        attack("quotactl_fd", EPERM),
        attack("settimeofday", EPERM),
        attack("clock_settime", EPERM),
        attack("syslog", EPERM),
        attack("sethostname", EPERM),
        attack("setdomainname", EPERM),
        attack("acct", EPERM),
        attack("fanotify_init", EPERM),
        attack("fanotify_mark", EPERM),
        attack("lookup_dcookie", EPERM),
        attack("remap_file_pages", ENOSYS),
        attack_if_built_in("mbind", ENOSYS),
        attack_if_built_in("set_mempolicy", ENOSYS),
        attack_if_built_in("set_mempolicy_home_node", ENOSYS),
        attack_if_built_in("migrate_pages", ENOSYS),
        attack_if_built_in("move_pages", ENOSYS),
        attack("vmsplice", ENOSYS),
        attack_if_built_in("memfd_secret", ENOSYS),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s10_a_terminal_cannot_be_typed_into_in_any_spelling() {
    all_denied(&[
        attack("ioctl-tiocsti", EPERM),
        attack("ioctl-tiocsti-high", EPERM),
        attack("ioctl-tiocsti-all-high", EPERM),
        attack("ioctl-tioclinux", EPERM),
        attack("ioctl-tioclinux-high", EPERM),
        attack("ioctl-tiocsetd", EPERM),
        attack("ioctl-tiocsetd-high", EPERM),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s11_other_architectures_kill_and_unknown_numbers_do_not_exist() {
    all_denied(&[
        attack("int80", KILLED),
        attack("x32", KILLED),
        // The kernel itself gives the same answer, so the control cannot differ.
        attack_if_built_in("unknown-number", ENOSYS),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s12_only_four_families_of_sockets_exist() {
    all_denied(&[
        attack_if_built_in("socket-alg", EAFNOSUPPORT),
        attack_if_built_in("socket-alg-high", EAFNOSUPPORT),
        attack_if_built_in("socket-alg-all-high", EAFNOSUPPORT),
        attack_if_built_in("socket-vsock", EAFNOSUPPORT),
        attack("socket-packet", EAFNOSUPPORT),
        attack("socket-packet-cloexec", EAFNOSUPPORT),
        attack("socket-packet-old", EPERM),
        attack("socket-raw", EPERM),
        attack("socket-raw-cloexec", EPERM),
        attack("socket-raw-nonblock", EPERM),
        attack("socket-raw-high", EPERM),
        attack("socket-raw-protocol", EPERM),
        attack("socket-raw6", EPERM),
    ]);
    let docker = Docker::connect();
    let everything = (0..46).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let control = Report::of(&docker, Walls::None, Via::Init, User::Root);
    for policy in Policy::ALL {
        for via in Via::ALL {
            let report = Report::of(&docker, Walls::Of(policy), via, User::Root);
            for step in ["families", "families-high"] {
                assert_eq!(control.answer(step).detail, everything, "the control");
                // UNIX, INET, INET6, NETLINK
                assert_eq!(
                    report.answer(step).detail,
                    "1,2,10,16",
                    "{}",
                    report.about()
                );
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n13_sockets_carry_tcp_and_udp_only() {
    all_denied(&[
        attack_if_built_in("socket-ping", EPROTONOSUPPORT),
        attack_if_built_in("socket-ping6", EPROTONOSUPPORT),
        attack_if_built_in("socket-sctp", EPROTONOSUPPORT),
        attack_if_built_in("socket-sctp-seqpacket", EPROTONOSUPPORT),
        attack_if_built_in("socket-dccp", EPROTONOSUPPORT),
        attack_if_built_in("socket-udplite", EPROTONOSUPPORT),
        attack_if_built_in("socket-mptcp", EPROTONOSUPPORT),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n17_netlink_means_route() {
    all_denied(&[
        attack_if_built_in("netlink-diag", EPROTONOSUPPORT),
        attack_if_built_in("netlink-audit", EPROTONOSUPPORT),
        attack_if_built_in("netlink-netfilter", EPROTONOSUPPORT),
        attack("netlink-uevent", EPROTONOSUPPORT),
        attack("netlink-generic", EPROTONOSUPPORT),
        attack("netlink-generic-high", EPROTONOSUPPORT),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s13_a_workload_gets_no_listener() {
    all_denied(&[
        attack("seccomp-new-listener", EPERM),
        attack("seccomp-new-listener-high", EPERM),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s14_prctl_does_the_ordinary_only() {
    all_denied(&[
        // Without CAP_SYS_RESOURCE the kernel says EPERM by itself.
        attack_if_built_in("prctl-set-mm", EPERM),
        attack("prctl-set-securebits", EPERM),
        attack("prctl-set-securebits-high", EPERM),
        attack("prctl-syscall-user-dispatch", EPERM),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s18_f05_no_descriptor_and_no_directory_leads_outside() {
    let docker = Docker::connect();
    for policy in Policy::ALL {
        for via in Via::ALL {
            let report = Report::of(&docker, Walls::Of(policy), via, User::Root);
            let descriptors = report.answer("descriptors");
            let about = report.about();
            assert_eq!(descriptors.word, "three", "{about}: {}", descriptors.detail);
            assert_eq!(report.answer("working-directory").word, "inside", "{about}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn ordinary_calls_are_let_through() {
    all_let_through(&[
        "ordinary-getpid",
        "ordinary-prctl-name",
        "ordinary-ioctl",
        "ordinary-personality-query",
        "ordinary-clone",
        "ordinary-thread",
        "ordinary-tcp",
        "ordinary-tcp6",
        "ordinary-udp",
        "ordinary-unix",
        "ordinary-netlink-route",
        "writable-code",
    ]);
}
