//! Privileges: S15, F06, F16, F18 of the threat list.

use std::collections::BTreeMap;

use super::probe::{Report, User, Via, Walls, all_denied, attack, attack_if_built_in};
use super::{Docker, Policy};

/// The fields of the step "privileges".
fn privileges(report: &Report) -> BTreeMap<String, String> {
    report
        .answer("privileges")
        .detail
        .split(' ')
        .filter_map(|field| field.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE, SYS_CHROOT, by number in capabilities(7).
const MOST_CAPABILITIES: u64 =
    1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 18;

#[test]
#[ignore = "needs the rig: hack/test"]
fn f18_nothing_asked_for_widens_the_capabilities() {
    let docker = Docker::connect();
    let control = privileges(&Report::of(&docker, Walls::None, Via::Init, User::Root));
    assert_ne!(control["eff"], "0", "the control has capabilities");
    for policy in Policy::ALL {
        let most = match policy {
            Policy::Strict => 0,
            Policy::Standard | Policy::Permissive => MOST_CAPABILITIES,
        };
        for via in Via::ALL {
            for user in [User::Root, User::Dev] {
                let report = Report::of(&docker, Walls::Of(policy), via, user);
                let about = report.about();
                let has = privileges(&report);
                for set in ["eff", "prm", "inh", "bnd", "amb"] {
                    let bits = u64::from_str_radix(&has[set], 16).unwrap();
                    assert_eq!(bits & !most, 0, "{about}: {set} is {bits:x}");
                }
                assert_eq!(has["nnp"], "1", "{about}: no_new_privs");
                assert_eq!(has["seccomp"], "2", "{about}: a filter is loaded");
                let uid = if user == User::Root { "0" } else { "1000" };
                assert_eq!(
                    (has["uid"].as_str(), has["euid"].as_str()),
                    (uid, uid),
                    "{about}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s15_set_user_id_and_file_capabilities_give_nothing() {
    let docker = Docker::connect();
    let control = Report::of(&docker, Walls::None, Via::Init, User::Dev);
    assert_eq!(
        control.answer("privileges").word,
        "plain",
        "the control starts without any"
    );
    assert_eq!(
        control.answer("set-user-id-program").word,
        "root",
        "the control"
    );
    assert_eq!(
        control.answer("file-capability-program").word,
        "capable",
        "the control"
    );
    for policy in Policy::ALL {
        for via in Via::ALL {
            let report = Report::of(&docker, Walls::Of(policy), via, User::Dev);
            for step in ["set-user-id-program", "file-capability-program"] {
                let answer = report.answer(step);
                let about = report.about();
                // The kernel refuses to start a program whose file capabilities exceed the bounding set.
                if step == "file-capability-program" && answer.word == "not-run" {
                    continue;
                }
                assert_eq!(answer.word, "plain", "{about}: {step} {}", answer.detail);
                let kept = answer.detail.contains(" euid=1000 ");
                assert!(kept, "{about}: {step} {}", answer.detail);
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f16_a_crash_starts_no_helper_on_the_host() {
    all_denied_with_word("core-limit", "1/1");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f06_no_device_can_be_made() {
    all_denied(&[
        attack("mknod-character", &["EPERM"]),
        attack("mknod-block", &["EPERM"]),
        attack("rename-whiteout", &["EINVAL"]),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f06_only_the_harmless_devices_are_there() {
    const DEVICES: [&str; 17] = [
        "console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm",
        "stderr", "stdin", "stdout", "tty", "urandom", "zero", "init",
    ];
    all_denied(&[
        attack("read-kmsg", &["ENOENT"]),
        attack_if_built_in("read-memory", &["ENOENT"]),
        attack("read-fuse", &["ENOENT"]),
    ]);
    let docker = Docker::connect();
    for policy in Policy::ALL {
        for via in Via::ALL {
            let report = Report::of(&docker, Walls::Of(policy), via, User::Root);
            for device in report.answer("list-dev").detail.split(',') {
                let about = report.about();
                assert!(DEVICES.contains(&device), "{about}: /dev/{device} is there");
            }
        }
    }
}

/// Checks that one step answers `word` behind all walls, and something else without.
#[track_caller]
fn all_denied_with_word(step: &str, word: &str) {
    let docker = Docker::connect();
    let control = Report::of(&docker, Walls::None, Via::Init, User::Root);
    assert_ne!(control.answer(step).word, word, "the control");
    for policy in Policy::ALL {
        for via in Via::ALL {
            for user in [User::Root, User::Dev] {
                let report = Report::of(&docker, Walls::Of(policy), via, user);
                assert_eq!(report.answer(step).word, word, "{}", report.about());
            }
        }
    }
}
