//! Who owns root's files on the node, and whether set-user-ID files can be made.

use super::*;
use crate::plan::idmap::IdmapContext;
use crate::plan::ids::IdmapOutcome;
use crate::plan::set_id::is_own_group;
use crate::plan::wrap_plan::WrapEnforcement;
use crate::policy::{Field, Switch, Tool, annotation_key};

const ME: u32 = 1000;
const ALONE: MappedIds = MappedIds::OwnerAlone { uid: ME, gid: ME };
const SWAPPED: MappedIds = MappedIds::Swapped { uid: ME, gid: ME };

fn can(ids: MappedIds, own_group: bool) -> impl FnOnce(&mut SourceFacts) {
    move |facts| {
        facts.ids = SourceIds {
            uid: ME,
            gid: ME,
            inert: false,
            mapped: Some(IdmapOutcome::To { ids, own_group }),
        };
    }
}

fn cannot(facts: &mut SourceFacts) {
    facts.ids.uid = ME;
    facts.ids.mapped = Some(IdmapOutcome::Cannot("it is an overlay".to_owned()));
}

/// A container with a workspace.
fn working(policy: &str, found: impl FnOnce(&mut SourceFacts)) -> Case {
    let case = under(policy).bind("/srv/project", "/work").found(found);
    case.cwd("/work")
}

fn ids(plan: &Plan, place: &str) -> MappedIds {
    let mut mounts = plan.filesystem.mounts.iter();
    let mount = mounts.find(|m| m.destination == Path::new(place)).unwrap();
    mount.bind().unwrap().ids
}

fn write_cache(policy: &mut Policy) {
    policy.filesystem.write = ["/cache".parse().unwrap()].into();
}

fn at(place: &str) -> PathBuf {
    place.into()
}

#[test]
fn the_owner_is_mapped_alone_or_swapped_with_root() {
    let both = |ids: MappedIds| {
        let (users, groups) = ids.maps().unwrap();
        assert_eq!(users, groups);
        users
    };
    assert_eq!(MappedIds::Node.maps(), None);
    assert_eq!(both(ALONE), "1000 0 1\n2147352577 1 65535\n");
    assert_eq!(
        both(SWAPPED),
        "1000 0 1\n0 1000 1\n1 1 999\n1001 1001 4294966294\n"
    );
    let swapped = |id| MappedIds::Swapped { uid: id, gid: id };
    assert_eq!(both(swapped(1)), "1 0 1\n0 1 1\n2 2 4294967293\n");
    assert_eq!(both(swapped(0)), "0 0 4294967295\n");
    let largest = u32::MAX - 1;
    assert_eq!(
        both(swapped(largest)),
        format!("{largest} 0 1\n0 {largest} 1\n1 1 4294967293\n")
    );
    // An owner in the foreign range itself.
    let foreign = MappedIds::OwnerAlone {
        uid: 0x7ffe_0021,
        gid: 0x7ffe_0021,
    };
    assert_eq!(both(foreign), "2147352609 0 1\n");
}

/// Each id has one meaning on either side; otherwise the kernel would refuse the map.
#[test]
fn no_map_has_an_id_twice() {
    for id in [
        0,
        1,
        2,
        999,
        1000,
        65_534,
        0x7ffe_0000,
        0x7ffe_ffff,
        u32::MAX - 1,
    ] {
        for ids in [
            MappedIds::OwnerAlone { uid: id, gid: id },
            MappedIds::Swapped { uid: id, gid: id },
        ] {
            let (map, _) = ids.maps().unwrap();
            let lines: Vec<Vec<u64>> = map
                .lines()
                .map(|line| line.split(' ').map(|n| n.parse().unwrap()).collect())
                .collect();
            for side in [0, 1] {
                let mut ranges: Vec<(u64, u64)> =
                    lines.iter().map(|l| (l[side], l[side] + l[2])).collect();
                ranges.sort_unstable();
                assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0), "{map}");
                assert!(ranges.iter().all(|range| range.1 <= u64::from(u32::MAX)));
            }
            let (owner, inside) = (lines[0][0], lines[0][1]);
            assert_eq!((owner, inside), (u64::from(id), 0), "{map}");
        }
    }
}

#[test]
fn entries_of_other_users_decide_the_map() {
    let foreign = 0x7ffe_0000;
    for entries in [
        &[][..],
        &[(ME, ME)],
        // A file of another user from an earlier container.
        &[(ME, ME), (foreign + 33, foreign + 33)],
        &[(ME, foreign + 1)],
    ] {
        assert_eq!(MappedIds::of(ME, ME, entries), ALONE, "{entries:?}");
    }
    for entry in [(0, 0), (ME, 0), (0, ME), (1001, ME), (foreign, ME)] {
        let entries = [(ME, ME), entry];
        assert_eq!(MappedIds::of(ME, ME, &entries), SWAPPED, "{entry:?}");
    }
}

#[test]
fn the_workspace_is_mapped_if_root_writes_another_users_directory() {
    for policy in ["strict", "standard", "permissive"] {
        let plan = working(policy, can(ALONE, true)).plan();
        assert_eq!(ids(&plan, "/work"), ALONE, "{policy}");
        assert_eq!(plan.warnings, []);
    }
    let not = |case: Case| assert_eq!(ids(&case.plan(), "/work"), MappedIds::Node);
    let case = || working("standard", can(ALONE, true));
    not(case().annotation("filesystem.idmap", "off"));
    not(case().annotation("filesystem.workspace", "read-only"));
    not(case().options(&["ro"]));
    not(case().set("/process/user", "uid", json!(ME)));
    not(case().set("/process/user", "gid", json!(ME)));
    not(working("standard", |facts| {
        can(ALONE, true)(facts);
        facts.ids.uid = 0;
    }));
    // Other mounts are mapped only if the policy requests it.
    let other = |idmap: &str| {
        let case = case().bind("/srv/cache", "/cache");
        let case = case.found(can(SWAPPED, true));
        let case = case.annotation("filesystem.idmap", idmap);
        case.site(write_cache).plan()
    };
    assert_eq!(ids(&other("auto"), "/cache"), MappedIds::Node);
    assert_eq!(ids(&other("on"), "/cache"), SWAPPED);
}

#[test]
fn a_failed_mapping_is_a_warning_or_an_error() {
    let plan = working("standard", cannot).plan();
    assert_eq!(ids(&plan, "/work"), MappedIds::Node);
    let [warning] = &plan.warnings[..] else {
        panic!("{:?}", plan.warnings);
    };
    let words = warning.to_string();
    assert!(words.starts_with("/work: files that root makes there are root's"));
    assert!(words.ends_with("it is an overlay"), "{words}");
    let on = working("standard", cannot).annotation("filesystem.idmap", "on");
    let words = on.refused();
    assert!(
        words.contains("(filesystem.idmap = \"on\"): it is an overlay"),
        "{words}"
    );
    // The container's own user namespace has its own map.
    let own = |idmap: &str| {
        let mut case = working("standard", can(ALONE, true));
        let namespaces = case.spec.pointer_mut("/linux/namespaces").unwrap();
        namespaces
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "user"}));
        case.annotation("filesystem.idmap", idmap)
    };
    assert_eq!(ids(&own("auto").plan(), "/work"), MappedIds::Node);
    assert!(own("on").refused().contains("its own user namespace"));
}

#[test]
fn mapping_is_tried_once_and_only_if_the_plan_would_use_it() {
    let tried = |case: &Case, host: &HostFacts, by| {
        let resolved = case.resolved();
        let spec: Spec = serde_json::from_value(case.spec.clone()).unwrap();
        let plan = case.plan_on(host).unwrap();
        let container = IdmapContext {
            policy: &resolved.policy.filesystem,
            spec: &spec,
            by,
            host,
        };
        let source = case.facts.sources.last().unwrap().as_ref().unwrap();
        let mount = plan.filesystem.mounts.last().unwrap();
        container.is_to_be_tried(&plan.filesystem, mount, &source.ids)
    };
    let new = |facts: &mut SourceFacts| facts.ids.uid = ME;
    let mounts = WrapEnforcement::Mounts;
    assert!(tried(&working("standard", new), &host(), mounts));
    assert!(!tried(
        &working("standard", new),
        &host(),
        WrapEnforcement::Rules
    ));
    assert!(!tried(&working("standard", cannot), &host(), mounts));
    assert!(!tried(&working("standard", |_| {}), &host(), mounts));
    let off = working("standard", new).annotation("filesystem.idmap", "off");
    assert!(!tried(&off, &host(), mounts));
}

/// The decision of `auto` for a container.
fn set_id(case: &Case) -> (Switch, Option<SetIdCause>) {
    let plan = case.plan();
    let fsetid = plan.capability_limit.contains(&Capability::FSETID);
    assert_eq!(fsetid, plan.syscalls.set_id == Switch::On);
    (plan.syscalls.set_id, plan.syscalls.set_id_cause)
}

#[test]
fn f21_set_id_files_are_made_where_none_is_another_users_on_the_node() {
    let on = (Switch::On, None);
    let off = |cause| (Switch::Off, Some(cause));
    assert_eq!(set_id(&under("standard")), on);
    assert_eq!(set_id(&working("standard", can(ALONE, true))), on);
    let work = at("/work");
    for (found, cause) in [
        (
            Box::new(can(SWAPPED, true)) as Box<dyn FnOnce(&mut SourceFacts)>,
            SetIdCause::SeveralOwners { at: work.clone() },
        ),
        (
            Box::new(can(ALONE, false)),
            SetIdCause::Group { at: work.clone() },
        ),
        (Box::new(cannot), SetIdCause::Mount { at: work.clone() }),
        // Root's own directory.
        (Box::new(|_| {}), SetIdCause::Mount { at: work.clone() }),
    ] {
        assert_eq!(set_id(&working("standard", found)), off(cause));
    }
    // A volume: other users of the node cannot enter it, but another container can.
    let volume = working("standard", can(ALONE, true))
        .bind("/var/lib/docker/volumes/cache/_data", "/cache")
        .found(|facts| facts.engines_volume = true);
    let plan = volume.plan();
    assert!(plan.filesystem.mounts.iter().all(PlannedMount::is_writable));
    assert_eq!(plan.syscalls.attributes, Switch::On);
    assert_eq!(
        set_id(&volume),
        off(SetIdCause::Shared { at: at("/cache") })
    );
    // Any other writable mount is as bad.
    let other = working("standard", can(ALONE, true)).bind("/srv/cache", "/cache");
    let only_read = SetIdCause::Shared { at: at("/cache") };
    assert_eq!(set_id(&other), off(only_read));
    let written = other.site(write_cache);
    let cache = SetIdCause::Mount { at: at("/cache") };
    assert_eq!(set_id(&written), off(cache));
    let exec = working("standard", can(ALONE, true)).set("/process/user", "uid", json!(ME));
    assert_eq!(set_id(&exec), off(SetIdCause::Mount { at: work.clone() }));
    let mut handed = under("standard");
    handed.facts.handed_file = Some(1);
    assert_eq!(set_id(&handed), off(SetIdCause::Descriptor { fd: 1 }));
    let mut wrap = under("standard");
    wrap.facts.wrapped.system = [at("/usr")].into();
    assert_eq!(set_id(&wrap), off(SetIdCause::Wrap));
}

/// Another container passes its own files through a socket in a directory, or of a network; /proc shows them.
#[test]
fn f21_nor_where_another_container_can_hand_over_its_files() {
    let on = (Switch::On, None);
    let off = |cause| (Switch::Off, Some(cause));
    let reads = working("standard", |_| {}).options(&["ro"]);
    assert_eq!(set_id(&reads), off(SetIdCause::Shared { at: at("/work") }));
    let file = under("standard").bind_of(FileKind::File, "/srv/settings", "/etc/settings");
    assert_eq!(set_id(&file), on);
    for kind in ["pid", "ipc"] {
        let mut case = under("standard");
        let namespaces = case.spec.pointer_mut("/linux/namespaces").unwrap();
        let namespaces = namespaces.as_array_mut().unwrap();
        let own = namespaces.iter_mut().find(|one| one["type"] == kind);
        own.unwrap()["path"] = json!("/proc/7/ns/x");
        let case = case.neighbours(
            "/proc/7/ns/x",
            vec![super::namespaces::neighbour("standard")],
        );
        assert_eq!(set_id(&case), off(SetIdCause::Namespaces), "{kind}");
    }
    // Otherwise the sandbox of a pod would keep its containers from writing anything.
    for program in ["/pause", "/catatonit"] {
        let case = under("standard").set("/process", "args", json!([program, "-P"]));
        assert_eq!(set_id(&case), off(SetIdCause::Pod));
    }
    let role = json!({"io.kubernetes.cri.container-type": "sandbox"});
    let pod = under("standard").set("", "annotations", role);
    assert_eq!(set_id(&pod), off(SetIdCause::Pod));
}

#[test]
fn f21_no_container_with_the_nodes_ids_joins_one_that_makes_such_files() {
    let joining = |found: fn(&mut SourceFacts), sets_ids| {
        let mut case = working("standard", found);
        let namespaces = case.spec.pointer_mut("/linux/namespaces").unwrap();
        let namespaces = namespaces.as_array_mut().unwrap();
        let own = namespaces.iter_mut().find(|one| one["type"] == "pid");
        own.unwrap()["path"] = json!("/proc/7/ns/pid");
        let first = Neighbour {
            sets_ids,
            ..super::namespaces::neighbour("standard")
        };
        case.neighbours("/proc/7/ns/pid", vec![first])
    };
    let words = joining(|_| {}, true).refused();
    assert!(words.contains("container other"), "{words}");
    assert!(words.contains("privileges.set-id=off"), "{words}");
    let alone: fn(&mut SourceFacts) = |facts| can(ALONE, true)(facts);
    // Another container runs what is made in a volume.
    let volume = |sets_ids| {
        let case = joining(alone, sets_ids).bind("/var/lib/docker/volumes/cache/_data", "/cache");
        case.found(|facts| facts.engines_volume = true)
    };
    let words = volume(true).refused();
    assert!(words.contains("\"/cache\" has the node's ids"), "{words}");
    for case in [
        joining(|_| {}, false),
        joining(alone, true),
        volume(false),
        volume(true).options(&["ro"]),
    ] {
        case.plan();
    }
}

#[test]
fn f21_attributes_are_not_set_where_a_file_can_go_to_another_group() {
    let attributes = |case: &Case| case.plan().syscalls.attributes;
    for policy in ["strict", "standard"] {
        assert_eq!(attributes(&under(policy)), Switch::On);
        assert_eq!(attributes(&working(policy, can(ALONE, true))), Switch::On);
        let reads = working(policy, |_| {}).options(&["ro"]);
        assert_eq!(attributes(&reads), Switch::On);
        assert_eq!(attributes(&working(policy, |_| {})), Switch::Off);
        assert_eq!(
            attributes(&working(policy, can(SWAPPED, true))),
            Switch::Off
        );
        let mut wrap = working(policy, |_| {});
        wrap.facts.wrapped.system = [at("/usr")].into();
        assert_eq!(attributes(&wrap), Switch::On);
    }
    // Any set-group-ID file can be made there.
    assert_eq!(attributes(&working("permissive", |_| {})), Switch::On);
}

#[test]
fn only_auto_depends_on_the_mounts() {
    let case = |policy: &str| working(policy, |_| {});
    assert_eq!(set_id(&case("strict")), (Switch::Off, None));
    assert_eq!(set_id(&case("permissive")), (Switch::On, None));
    let off = working("standard", can(ALONE, true)).annotation("privileges.set-id", "off");
    assert_eq!(set_id(&off), (Switch::Off, None));
    assert_eq!(
        off.plan().syscalls.set_id_refused(),
        Some(SetIdCause::Policy)
    );
    let auto = under("permissive").annotation("privileges.set-id", "auto");
    assert_eq!(set_id(&auto), (Switch::On, None));
}

#[test]
fn the_engines_shared_memory_does_not_lead_to_the_node() {
    // /dev/shm of podman and containerd, which the node mounted `nosuid`.
    let shm = |inert| {
        let source = format!("/var/lib/containers/storage/overlay-containers/{ID}/userdata/shm");
        let case = under("standard").bind(&source, "/dev/shm");
        let plan = case.found(|facts| facts.ids.inert = inert).plan();
        assert_eq!(access(&plan, "/dev/shm"), "rw");
        (plan.syscalls.set_id, plan.syscalls.set_id_cause)
    };
    assert_eq!(shm(true), (Switch::On, None));
    let cause = SetIdCause::Mount { at: at("/dev/shm") };
    assert_eq!(shm(false), (Switch::Off, Some(cause)));
    // The node may mount any other tmpfs directory again.
    let other = working("standard", |facts| facts.ids.inert = true);
    assert_eq!(set_id(&other).0, Switch::Off);
}

#[test]
fn the_list_of_users_decides_if_a_group_is_the_owners_own() {
    let passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\nalso:x:1001:999::/:/bin/sh\n\
        twice:x:1002:1002::/:/bin/sh\nagain:x:1002:4::/:/bin/sh\noperator:x:11:0::/:/bin/sh\n";
    assert!(is_own_group(passwd, 1000, 1000));
    assert!(is_own_group(passwd, 1001, 999));
    for (uid, gid) in [(1000, 999), (1002, 1002), (1003, 1003), (11, 0), (0, 0)] {
        assert!(!is_own_group(passwd, uid, gid), "{uid} {gid}");
    }
    assert!(!is_own_group("", 1000, 1000));
}

#[test]
fn causes_name_the_mount_and_the_field() {
    let cause = SetIdCause::SeveralOwners { at: at("/work") };
    assert!(cause.to_string().contains("/work can be written"));
    assert!(cause.cure(Tool::Engine).contains("chown -R"));
    let field = annotation_key(Field::PrivilegesSetId);
    for (tool, sets) in [
        (Tool::Engine, format!("the annotation {field}=auto,")),
        (Tool::Annotating, format!("--annotation {field}=auto,")),
        (
            Tool::Pod,
            format!("the pod's annotation {field}: \"auto\","),
        ),
        (Tool::Wrap, "--set privileges.set-id=auto,".to_owned()),
    ] {
        let cure = SetIdCause::Policy.cure(tool);
        assert!(cure.starts_with(&sets), "{cure}");
    }
}

#[test]
fn a_record_keeps_the_id_map_of_a_mount() {
    let plan = working("standard", can(ALONE, true)).plan();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    assert!(
        text.contains(r#""ids":{"owner-alone":{"uid":1000,"gid":1000}}"#),
        "{text}"
    );
}
