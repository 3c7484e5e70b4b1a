//! Properties of every shadow spec, for every bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use agentbox::plan::neutral;
use agentbox::plan::never::NeverList;
use agentbox::plan::{BundleFacts, DecidedPlan, EphemeralContent, MountReason, Plan, plan};
use agentbox::policy::{self, MountRule, ResolvedPolicy, RootAccess};
use agentbox::render::spec as shadow;
use oci_spec::runtime::{Mount, Spec};
use serde_json::{Value, json};

use super::Dice;
use super::hostile::{facts, policy as some_policy, spec as hostile};
use crate::fixtures::{self, POLICIES};

/// Docker 28's lists, which apply to every container under a policy, `--privileged` or not.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
];
const MASKED_SYS: [&str; 2] = ["/sys/devices/virtual/powercap", "/sys/firmware"];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Engines' support mounts that must be writable: shared memory, and kubelet's message.
const WRITABLE_SUPPORT: [&str; 2] = ["/dev/shm", "/dev/termination-log"];

/// Checks what every shadow spec must and must not have.
pub fn check(resolved: &ResolvedPolicy, spec: &Spec, facts: &BundleFacts, decided: &DecidedPlan) {
    let plan = &decided.plan;
    let rendered = shadow::confined(spec.clone(), plan, &fixtures::places());
    check_mounts(
        resolved,
        spec,
        (facts, plan),
        rendered.mounts().as_deref().unwrap(),
    );
    check_files(plan, &rendered);
    check_process(resolved, &rendered);
    check_linux(plan, &rendered);
    check_again(resolved, &rendered, facts, decided);
}

fn check_mounts(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    (facts, plan): (&BundleFacts, &Plan),
    mounts: &[Mount],
) {
    let never = NeverList::builtin();
    for mount in mounts {
        let destination = mount.destination();
        let options = mount.options().clone().unwrap_or_default();
        let has = |option: &str| options.iter().any(|o| o == option);
        assert!(is_canonical(destination), "{mount:?}");
        assert!(has("nosuid") && !has("suid") && !has("dev"), "{mount:?}");
        let own_nodes = destination == Path::new("/dev") || destination == Path::new("/dev/pts");
        assert!(has("nodev") || own_nodes, "{mount:?}");
        for shared in ["rbind", "shared", "rshared", "slave", "rslave"] {
            assert!(!has(shared), "{mount:?}");
        }
        assert_ne!(destination, Path::new("/"));
        let source = mount.source().as_deref().unwrap();
        if mount.typ().as_deref() != Some("bind") {
            assert!(!has("bind"), "{mount:?}");
            continue;
        }
        if plan.filesystem.replaced.contains(destination) && source.starts_with("/state") {
            assert!(has("ro"), "{mount:?}");
            continue;
        }
        let planned = plan.filesystem.mounts.iter();
        let planned: Vec<_> = planned
            .filter(|m| m.destination == *destination && m.source() == source)
            .collect();
        assert!(!planned.is_empty(), "{mount:?}");
        let support = WRITABLE_SUPPORT.iter().any(|s| destination == Path::new(s));
        let listed = is_writable_by_policy(resolved, plan, destination);
        assert!(has("ro") || listed || support, "{mount:?}");
        let from = fixtures_of(spec, destination, source);
        assert!(
            has("ro") || from.iter().any(|m| !asks_read_only(m)),
            "{mount:?}"
        );
        let why = &planned[0].why;
        if why.is_other() || matches!(why, MountReason::Workspace | MountReason::Home) {
            let all = facts.sources.iter().flatten();
            let same = all.filter(|s| s.path == source).map(|s| s.all_names());
            for name in same.flatten() {
                assert_eq!(never.refuses(name), None, "{mount:?}");
                assert!(has("ro") || never.read_only(name).is_none(), "{mount:?}");
            }
            assert!(!destination.starts_with("/proc") && !destination.starts_with("/sys"));
        }
    }
    for pruned in &plan.filesystem.pruned {
        // Two mounts may have the same destination; then the kept one counts.
        let kept = |d: &Path| plan.filesystem.mounts.iter().any(|m| m.destination == d);
        let there = mounts
            .iter()
            .any(|m| *m.destination() == pruned.destination);
        let replaced = plan.filesystem.replaced.contains(&pruned.destination);
        assert!(
            !there || kept(&pruned.destination) || replaced,
            "{pruned:?}"
        );
    }
}

fn is_canonical(path: &Path) -> bool {
    let again: PathBuf = path.components().collect();
    let plain = path
        .components()
        .all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    path.is_absolute() && plain && again.as_os_str() == path.as_os_str()
}

fn is_writable_by_policy(resolved: &ResolvedPolicy, plan: &Plan, destination: &Path) -> bool {
    let rules = &resolved.policy.filesystem;
    match rules.mounts {
        MountRule::Keep => true,
        _ if plan.filesystem.workspace.as_deref() == Some(destination) => {
            rules.workspace == policy::Access::ReadWrite
        }
        MountRule::Volumes
            if plan
                .filesystem
                .mounts
                .iter()
                .any(|m| m.destination == destination && m.why == MountReason::Volume) =>
        {
            true
        }
        MountRule::ReadOnly | MountRule::Volumes => rules
            .write
            .iter()
            .any(|w| Path::new(w.as_str()) == destination),
        MountRule::Drop => false,
    }
}

fn fixtures_of<'a>(spec: &'a Spec, destination: &Path, source: &Path) -> Vec<&'a Mount> {
    let all = spec.mounts().iter().flatten();
    all.filter(|m| m.destination() == destination && m.source().as_deref() == Some(source))
        .collect()
}

fn asks_read_only(mount: &Mount) -> bool {
    mount
        .options()
        .iter()
        .flatten()
        .any(|o| o == "ro" || o == "rro")
}

fn check_files(plan: &Plan, rendered: &Spec) {
    let files = &plan.filesystem;
    let linux = rendered.linux().as_ref().unwrap();
    let masked = linux.masked_paths().clone().unwrap();
    let readonly = linux.readonly_paths().clone().unwrap();
    // If the root is writable, the init process hides all paths outside of the kernel's own mounts.
    let late = |path: &str| {
        files.root != RootAccess::ReadOnly && files.mounted_by_init().hold(Path::new(path))
    };
    for path in MASKED {
        assert!(
            files.masked.contains(&PathBuf::from(path))
                && (masked.iter().any(|m| m == path) || late(path)),
            "{path}"
        );
    }
    for path in MASKED_SYS {
        assert!(files.masked.contains(&PathBuf::from(path)), "{path}");
        // A sysfs is replaced at start and masked there.
        assert!(
            plan.network.sysfs || masked.iter().any(|m| m == path) || late(path),
            "{path}"
        );
    }
    for path in READ_ONLY {
        let planned = files.readonly.contains(&PathBuf::from(path));
        assert!(
            planned && (readonly.iter().any(|r| r == path) || late(path)),
            "{path}"
        );
    }
    let read_only_root = rendered.root().as_ref().unwrap().readonly() == Some(true);
    assert_eq!(read_only_root, files.root == RootAccess::ReadOnly);
    for (index, dir) in files.ephemeral.iter().enumerate() {
        assert!(is_canonical(&dir.path), "{dir:?}");
        assert!(
            !dir.path.to_str().unwrap().contains([':', '\\']),
            "not a lower directory: {dir:?}"
        );
        // The kernel cannot stack an overlay on an overlay on the image's overlay.
        let others = files
            .ephemeral
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        for (_, other) in others {
            assert!(
                dir.content == EphemeralContent::Empty || !dir.path.starts_with(&other.path),
                "{dir:?} {other:?}"
            );
        }
    }
}

/// Checks what every process must and must not have.
pub fn check_process(resolved: &ResolvedPolicy, rendered: &Spec) {
    let process = rendered.process().as_ref().unwrap();
    assert_eq!(process.no_new_privileges(), Some(true));
    assert!(process.oom_score_adj().is_none_or(|score| score >= 0));
    let mut same = process.clone();
    assert_eq!(neutral::process(&mut same), Vec::<String>::new());
    let limits = serde_json::to_value(process.rlimits()).unwrap();
    let core = limits
        .as_array()
        .unwrap()
        .iter()
        .filter(|l| l["type"] == "RLIMIT_CORE");
    let core: Vec<_> = core
        .map(|l| (l["soft"].as_u64(), l["hard"].as_u64()))
        .collect();
    assert_eq!(core, [(Some(1), Some(1))]);
    let limit = &resolved.policy.privileges.capabilities;
    let limit: BTreeSet<String> = limit.iter().map(ToString::to_string).collect();
    let sets = serde_json::to_value(process.capabilities().as_ref().unwrap()).unwrap();
    let sets: BTreeMap<String, BTreeSet<String>> = serde_json::from_value(sets).unwrap();
    assert_eq!(sets.len(), 5);
    for (set, names) in sets {
        assert!(names.is_subset(&limit), "{set}: {names:?}");
    }
}

fn check_linux(plan: &Plan, rendered: &Spec) {
    let linux = serde_json::to_value(rendered.linux()).unwrap();
    for gone in [
        "seccomp",
        "netDevices",
        "personality",
        "intelRdt",
        "memoryPolicy",
        "timeOffsets",
    ] {
        assert_eq!(linux.get(gone), None);
    }
    let mut same = rendered.linux().clone().unwrap();
    assert_eq!(neutral::linux(&mut same), Vec::<String>::new());
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let namespaces = list(&linux["namespaces"]);
    for kind in ["pid", "ipc", "uts", "mount", "cgroup", "network"] {
        let of_kind: Vec<_> = namespaces.iter().filter(|n| n["type"] == kind).collect();
        assert_eq!(of_kind.len(), 1, "{kind}: {namespaces:?}");
    }
    for namespace in &namespaces {
        assert!(
            namespace.get("path").is_none() || namespace["type"] == "network",
            "{namespace:?}"
        );
    }
    for device in list(&linux["devices"]) {
        let path = PathBuf::from(device["path"].as_str().unwrap());
        assert!(plan.devices.contains(&path), "{device:?}");
    }
    let rules = list(&linux["resources"]["devices"]);
    assert_eq!(
        rules[0],
        json!({"allow": false, "type": "a", "access": "rwm"})
    );
    for rule in &rules[1..] {
        assert!(rule["type"] != "a" && rule["major"].is_i64(), "{rule:?}");
    }
    let sysctl = linux["sysctl"].as_object().unwrap();
    assert!(
        sysctl.keys().all(|key| !key.starts_with("net.")),
        "{sysctl:?}"
    );
}

/// Planning a planned container again changes nothing.
///
/// Differences with a good reason are not compared. The engine's profile and `net.*` settings are in the filter program
/// and the inner namespace, not in the shadow spec. Masks below /sys are made at start, so it omits them. Pruned fields
/// are no longer there to be pruned again.
fn check_again(
    resolved: &ResolvedPolicy,
    rendered: &Spec,
    facts: &BundleFacts,
    decided: &DecidedPlan,
) {
    let before = &decided.plan;
    let rendered = &with_late_mounts(rendered, before);
    let judged = before
        .filesystem
        .mounts
        .iter()
        .map(|m| m.bind().map(|bind| &bind.source));
    let by_path = facts.sources.iter().flatten();
    let by_path: BTreeMap<&PathBuf, _> = by_path.map(|s| (&s.path, s)).collect();
    let kept = judged.map(|path| path.map(|p| by_path[p].clone()));
    // The shell's files are regular ones. Their type does not matter, because they are replaced again.
    let ours = fixtures::facts(rendered)
        .sources
        .into_iter()
        .skip(before.filesystem.mounts.len());
    let facts = BundleFacts {
        sources: kept.chain(ours).collect(),
        ..facts.clone()
    };
    let again = plan(resolved, rendered, &facts, &fixtures::newest()).unwrap();
    let after = &again.plan;
    let same = |paths: &[PathBuf]| -> Vec<PathBuf> {
        let paths = paths
            .iter()
            .filter(|p| !(before.network.sysfs && p.starts_with("/sys")));
        paths.cloned().collect()
    };
    let (was, is) = (&before.filesystem, &after.filesystem);
    assert_eq!(was.mounts, is.mounts);
    assert_eq!(
        (was.root, &was.ephemeral, &was.workspace),
        (is.root, &is.ephemeral, &is.workspace)
    );
    assert_eq!(same(&was.masked), same(&is.masked));
    assert_eq!((&was.readonly, &was.replaced), (&is.readonly, &is.replaced));
    assert_eq!(is.pruned, []);
    assert_eq!(
        (&before.capabilities, &before.capability_limit),
        (&after.capabilities, &after.capability_limit)
    );
    assert_eq!(
        (&before.namespaces, &before.devices),
        (&after.namespaces, &after.devices)
    );
    assert_eq!(
        (before.network.mode, before.network.sysfs),
        (after.network.mode, after.network.sysfs)
    );
    assert_eq!(
        (&decided.resolved, &before.syscalls.deny),
        (&again.resolved, &after.syscalls.deny)
    );
}

#[test]
fn the_walls_stand_for_every_bundle_of_an_engine() {
    let mut planned = 0;
    for policy in POLICIES {
        let resolved = fixtures::policy(policy, &[]);
        for (_, spec) in fixtures::bundles() {
            if let Ok(plan) = fixtures::planned(&resolved, &spec) {
                check(&resolved, &spec, &fixtures::facts(&spec), &plan);
                planned += 1;
            }
        }
    }
    assert!(planned > 100, "{planned}");
}

#[test]
fn the_walls_stand_whatever_a_bundle_says() {
    let mut dice = Dice::new(0x9e37_79b9_7f4a_7c15);
    let base = serde_json::to_value(fixtures::bundle("docker26-run")).unwrap();
    let mut planned = 0;
    for round in 0..1500 {
        let spec = hostile(&mut dice, &base);
        let mut spec: Spec = serde_json::from_value(spec).unwrap();
        shadow::normalise(&mut spec);
        let facts = facts(&mut dice, &spec);
        let resolved = some_policy(&mut dice);
        match plan(&resolved, &spec, &facts, &fixtures::newest()) {
            Ok(plan) => {
                planned += 1;
                let result = std::panic::catch_unwind(|| check(&resolved, &spec, &facts, &plan));
                assert!(
                    result.is_ok(),
                    "round {round}:\n{:#?}\n{facts:#?}",
                    spec.mounts()
                );
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(
        planned > 400,
        "most rounds must get as far as a plan: {planned}"
    );
}

/// The shadow spec with the mounts and masks that the container's init process makes.
fn with_late_mounts(rendered: &Spec, plan: &Plan) -> Spec {
    let fs = &plan.filesystem;
    let one = |destination: &Path, kind: &str, source: &Path, options: &[String]| {
        oci_spec::runtime::MountBuilder::default()
            .destination(destination)
            .typ(kind)
            .source(source)
            .options(options)
            .build()
            .unwrap()
    };
    let planned = fs
        .mounts
        .iter()
        .map(|m| one(&m.destination, m.type_name(), m.source(), &m.options()));
    let bind = ["bind".to_owned(), "ro".to_owned()];
    let replaced = fs
        .replaced
        .iter()
        .map(|path| one(path, "bind", path, &bind));
    let mut whole = rendered.clone();
    whole.set_mounts(Some(planned.chain(replaced).collect()));
    let mut linux = whole.linux().clone().unwrap();
    let text = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect();
    linux.set_masked_paths(Some(text(&fs.masked)));
    linux.set_readonly_paths(Some(text(&fs.readonly)));
    whole.set_linux(Some(linux));
    whole
}
