//! PURE. The spec for libcontainer: under a policy the plan's, under `unconfined` the engine's. Both are changed so
//! that libcontainer 0.7.0 reads them like runc.

use std::path::PathBuf;

use oci_spec::runtime::{
    Linux, LinuxDevice, LinuxDeviceCgroup, LinuxNamespace, LinuxNamespaceBuilder,
    LinuxNamespaceType, Mount, MountBuilder, Root, Spec,
};

use crate::devices::{DeviceNumbers, nothing, planned};
use crate::plan::PlannedNamespace;
use crate::plan::namespaces::is_net;
use crate::plan::{MountKind, Plan, PlannedMount, neutral, process};
use crate::policy::RootAccess;
use crate::render::limits;

/// Host paths that the runtime chose for the spec.
#[derive(Debug, Clone)]
pub struct SpecPaths {
    /// Absolute path of the root file system.
    pub rootfs: PathBuf,
}

/// Changes an engine's spec so that libcontainer accepts it; nothing is weakened or added.
pub fn normalise(spec: &mut Spec) {
    if let Some(mounts) = spec.mounts_mut() {
        for mount in mounts.iter_mut() {
            if mount.source().is_none() {
                // libcontainer requires a source, even if the kernel does not.
                let name = mount.typ().clone().unwrap_or_else(|| "none".to_owned());
                mount.set_source(Some(PathBuf::from(name)));
            }
        }
    }
    if let Some(process) = spec.process_mut()
        && process.capabilities().is_none()
    {
        // An absent list means no capabilities (runc); libcontainer would keep all.
        process.set_capabilities(Some(process::to_spec(
            &crate::plan::CapabilitySets::default(),
        )));
    }
    if let Some(linux) = spec.linux_mut() {
        let propagation = linux.rootfs_propagation().as_deref().map(|p| {
            p.strip_prefix('r')
                .filter(|q| !q.is_empty())
                .unwrap_or(p)
                .to_owned()
        });
        linux.set_rootfs_propagation(propagation.filter(|p| !p.is_empty()));
        let mut resources = linux.resources().clone();
        for rule in resources.iter_mut().flat_map(|r| r.devices_mut()).flatten() {
            // runc ignores letters that the kernel refuses.
            let access = rule.access().clone();
            rule.set_access(access.map(|a| a.chars().filter(|c| "rwm".contains(*c)).collect()));
            // For all numbers, engines write -1, but cgroup v1 only knows `*`.
            rule.set_major(rule.major().filter(|number| *number != -1));
            rule.set_minor(rule.minor().filter(|number| *number != -1));
        }
        if let Some(resources) = &mut resources {
            limits::leave_out_zeros(resources);
        }
        linux.set_resources(resources);
        let new = |n: &mut LinuxNamespace| n.path().as_ref().is_some_and(|p| p.as_os_str() == "");
        for namespace in linux.namespaces_mut().iter_mut().flatten() {
            if new(namespace) {
                // An empty path means none (runc); libcontainer would open it.
                namespace.set_path(None);
            }
        }
    }
}

/// Whether the container joins an existing namespace of this type.
pub fn joins(spec: &Spec, typ: LinuxNamespaceType) -> bool {
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    let mut all = namespaces.into_iter().flatten();
    all.any(|n| n.typ() == typ && n.path().is_some())
}

/// The shadow spec of a container without a policy: the engine's, with an absolute root.
pub fn unconfined(mut spec: Spec, places: &SpecPaths) -> Spec {
    spec.set_root(Some(root_at(&spec, places)));
    if let Some(linux) = spec.linux_mut() {
        // Our own loader loads the filter, for the init process and exec processes alike.
        linux.set_seccomp(None);
        // runc starts without any device. libcontainer, without rules, would allow all of the host's.
        let mut resources = linux.resources().clone().unwrap_or_default();
        let mut rules = vec![nothing()];
        rules.extend(resources.devices().clone().unwrap_or_default());
        resources.set_devices(Some(rules));
        linux.set_resources(Some(resources));
    }
    spec
}

/// The shadow spec of a container under a policy.
pub fn confined(mut spec: Spec, plan: &Plan, places: &SpecPaths) -> Spec {
    let mut root = root_at(&spec, places);
    if plan.filesystem.root == RootAccess::ReadOnly {
        root.set_readonly(Some(true));
    }
    spec.set_root(Some(root));
    // The init process makes the others from descriptors.
    let mounts = plan.filesystem.mounts.iter();
    spec.set_mounts(Some(mounts.filter_map(mount).collect()));
    if let Some(process) = spec.process().clone() {
        spec.set_process(Some(process::confine(process, plan)));
    }
    if let Some(linux) = spec.linux().clone() {
        spec.set_linux(Some(confined_linux(linux, plan)));
    }
    spec
}

/// The spec's root, with an absolute path.
fn root_at(spec: &Spec, places: &SpecPaths) -> Root {
    let mut root: Root = spec.root().clone().unwrap_or_default();
    root.set_path(places.rootfs.clone());
    root
}

fn confined_linux(mut linux: Linux, plan: &Plan) -> Linux {
    linux.set_seccomp(None);
    neutral::linux(&mut linux);
    linux.set_namespaces(Some(plan.namespaces.iter().map(namespace).collect()));
    let kept: Vec<LinuxDevice> = linux
        .devices()
        .iter()
        .flatten()
        .filter(|d| plan.devices.contains(d.path()))
        .cloned()
        .collect();
    let mut resources = linux.resources().clone().unwrap_or_default();
    resources.set_devices(Some(device_rules(&kept)));
    plan.limits.apply(&mut resources);
    linux.set_resources(Some(resources));
    linux.set_devices(Some(kept));
    let sysctl = linux.sysctl().iter().flatten().filter(|(k, _)| !is_net(k));
    linux.set_sysctl(Some(sysctl.map(|(k, v)| (k.clone(), v.clone())).collect()));
    // A sysfs is replaced and masked at start. Paths within a mount of the init process are masked with it.
    let own = plan.filesystem.mounted_by_init();
    let masked = plan.filesystem.masked.iter();
    let masked = masked.filter(|p| !(own.hold(p) || plan.network.sysfs && p.starts_with("/sys")));
    linux.set_masked_paths(Some(masked.map(|p| p.display().to_string()).collect()));
    linux.set_readonly_paths(Some(
        plan.filesystem
            .readonly
            .iter()
            .filter(|p| !own.hold(p))
            .map(|p| p.display().to_string())
            .collect(),
    ));
    linux.set_rootfs_propagation(Some("private".to_owned()));
    linux.set_net_devices(None);
    linux
}

fn mount(planned: &PlannedMount) -> Option<Mount> {
    let kernel = match &planned.kind {
        MountKind::Kernel(kernel) => kernel,
        MountKind::Tmpfs(_) | MountKind::Bind(_) => return None,
    };
    let mount = MountBuilder::default()
        .destination(planned.destination.clone())
        .typ(kernel.what.type_name())
        .source(kernel.source.clone())
        .options(kernel.options.clone())
        .build();
    Some(mount.expect("all fields of a mount are set"))
}

fn namespace(planned: &PlannedNamespace) -> LinuxNamespace {
    let builder = LinuxNamespaceBuilder::default().typ(planned.isolates);
    match planned.path.clone() {
        Some(path) => builder.path(path),
        None => builder,
    }
    .build()
    .expect("the type of a namespace is set")
}

/// Device rules: deny all except the usual devices, pseudo-terminals, and those that the node's file allows.
fn device_rules(extra: &[LinuxDevice]) -> Vec<LinuxDeviceCgroup> {
    let numbers = extra.iter().map(|device| DeviceNumbers {
        kind: device.typ(),
        major: device.major(),
        minor: device.minor(),
    });
    planned(&numbers.collect::<Vec<_>>())
}
