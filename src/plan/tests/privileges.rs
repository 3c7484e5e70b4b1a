//! Capabilities, devices, and the effect on exec processes.

use super::*;
use crate::plan::privileges::Contradiction;
use crate::plan::process::confine;

fn with(names: &[&str]) -> Value {
    json!({"bounding": names, "effective": names, "permitted": names, "inheritable": names, "ambient": names})
}

fn capabilities(names: &[&str]) -> BTreeSet<Capability> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn device(path: &str, typ: &str, major: i64) -> Value {
    json!({"path": path, "type": typ, "major": major, "minor": 0})
}

#[test]
fn a_container_gets_the_engines_capabilities_within_the_policy() {
    let some = ["CAP_CHOWN", "CAP_KILL", "CAP_SYS_ADMIN", "CAP_NET_RAW"];
    let case = |policy: &str| {
        under(policy)
            .set("/process", "capabilities", with(&some))
            .plan()
            .capabilities
    };
    let cut = CapabilitySets::of(None);
    assert_eq!(case("strict"), cut);
    let two = capabilities(&["CAP_CHOWN", "CAP_KILL"]);
    for policy in ["standard", "permissive"] {
        let sets = case(policy);
        for set in [
            &sets.bounding,
            &sets.effective,
            &sets.permitted,
            &sets.inheritable,
            &sets.ambient,
        ] {
            assert_eq!(*set, two, "{policy}");
        }
    }
}

#[test]
fn an_ambient_capability_must_be_permitted_and_inheritable() {
    let sets = |key: &str, value: Value| {
        let mut sets = with(&["CAP_CHOWN", "CAP_KILL"]);
        sets[key] = value;
        under("standard")
            .set("/process", "capabilities", sets)
            .plan()
            .capabilities
    };
    let kill = capabilities(&["CAP_KILL"]);
    let chown: Capability = "CAP_CHOWN".parse().unwrap();
    assert_eq!(sets("inheritable", json!(["CAP_KILL"])).ambient, kill);
    let without = sets("permitted", json!(["CAP_KILL"]));
    assert_eq!(without.ambient, kill);
    let contradiction = |set, needs| {
        Some(Contradiction {
            capability: chown,
            set,
            needs,
        })
    };
    assert_eq!(
        without.contradiction(),
        contradiction("effective", "permitted")
    );
    assert_eq!(sets("inheritable", Value::Null).ambient, BTreeSet::new());
    // Nor may an inheritable one be outside the bounding set.
    assert_eq!(
        sets("bounding", json!(["CAP_KILL"])).contradiction(),
        contradiction("inheritable", "bounding")
    );
    assert_eq!(sets("ambient", json!([])).contradiction(), None);
}

#[test]
fn without_capabilities_there_are_none() {
    assert_eq!(
        under("permissive").plan().capabilities,
        CapabilitySets::default()
    );
}

#[test]
fn a_device_by_name_is_refused_and_those_of_privileged_are_left_out() {
    let devices = |list: Value| under("permissive").set("/linux", "devices", list);
    let message = devices(json!([device("/dev/sda", "b", 8)])).refused();
    assert!(
        message.contains("/dev/sda") && message.contains("allow.devices"),
        "{message}"
    );
    let many: Value = (0..100)
        .map(|n| device(&format!("/dev/d{n}"), "b", 8))
        .collect();
    assert_eq!(devices(many).plan().devices, BTreeSet::new());
    let all =
        json!({"devices": [{"allow": false, "access": "rwm"}, {"allow": true, "access": "rwm"}]});
    let privileged = devices(json!([device("/dev/sda", "b", 8)])).set("/linux", "resources", all);
    assert_eq!(privileged.plan().devices, BTreeSet::new());
    assert_eq!(
        devices(json!([
            device("/dev/null", "c", 1),
            device("/dev/tty", "c", 5)
        ]))
        .plan()
        .devices,
        BTreeSet::new()
    );
}

#[test]
fn the_node_allows_a_device_and_no_other_under_its_name() {
    let mut case = under("standard")
        .set("/linux", "devices", json!([device("/dev/kvm", "c", 10)]))
        .node("allow.devices = [\"/dev/kvm\"]");
    // `--device /dev/sda:/dev/kvm`: the container's name, but the disk's numbers.
    assert!(
        case.refused().contains("not the node's device"),
        "{}",
        case.refused()
    );
    case.facts.devices = [PathBuf::from("/dev/kvm")].into();
    assert_eq!(case.plan().devices, case.facts.devices);
}

#[test]
fn exec_is_limited_to_the_plan() {
    let process = json!({
        "args": ["sh"], "cwd": "/", "user": {"uid": 0, "gid": 0}, "noNewPrivileges": false,
        "capabilities": with(&["CAP_SYS_ADMIN", "CAP_SETUID"]),
        "rlimits": [
            {"type": "RLIMIT_CORE", "soft": 5, "hard": 5}, {"type": "RLIMIT_NOFILE", "soft": 5, "hard": 6},
            {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
        ],
    });
    let confined = confine(
        serde_json::from_value(process).unwrap(),
        &under("standard").plan(),
    );
    let confined = serde_json::to_value(confined).unwrap();
    assert_eq!(confined["noNewPrivileges"], true);
    for set in [
        "bounding",
        "effective",
        "permitted",
        "inheritable",
        "ambient",
    ] {
        assert_eq!(
            confined["capabilities"][set],
            json!(["CAP_SETUID"]),
            "{set}"
        );
    }
    let limits = json!([{"type": "RLIMIT_NOFILE", "soft": 5, "hard": 6}, {"type": "RLIMIT_CORE", "soft": 1, "hard": 1}]);
    assert_eq!(confined["rlimits"], limits);
}

#[test]
fn exec_without_capabilities_gets_none() {
    let process = json!({"args": ["sh"], "cwd": "/", "user": {"uid": 0, "gid": 0}});
    let confined = confine(
        serde_json::from_value(process).unwrap(),
        &under("standard").plan(),
    );
    assert_eq!(
        CapabilitySets::of(confined.capabilities().as_ref()),
        CapabilitySets::default()
    );
    assert!(
        confined
            .capabilities()
            .as_ref()
            .unwrap()
            .bounding()
            .is_some()
    );
}
