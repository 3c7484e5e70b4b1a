//! The spec that libcontainer reads, at `create` and at every `exec`, in place of the engine's.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Capability, LinuxNamespaceType, Spec, User};

use super::decide::BundleDecision;
use super::kernel_mounts;
use super::unconfined;
use crate::cgroup::joined_mount;
use crate::enforce::home;
use crate::enforce::kernel::KernelFiles;
use crate::enforce::privileges::{self, SetupRights};
use crate::enforce::unconfined::setup::UnconfinedSetup;
use crate::render::files;
use crate::render::spec::{self as shadow, SpecPaths};
use crate::runtime::error::RuntimeError;
use crate::runtime::files::write_whole;
use crate::runtime::hooks::CreateHooks;
use crate::runtime::launch::own_oom_score;
use crate::runtime::network::{denial_dir, resolver};
use crate::runtime::unprivileged;
use crate::runtime::user_relay;

/// libcontainer's spec, and the work that remains for the container's init process.
pub(super) struct Shadow {
    /// The spec as it was written, without the process's rights.
    pub(super) spec: Spec,
    /// The kernel's file systems that the process mounts itself, under a policy.
    pub(super) kernel: KernelFiles,
    /// What the spec had of the process's rights: our code sets them.
    pub(super) rights: SetupRights,
    /// The work that the init process does itself without a policy.
    pub(super) unfinished: Option<UnconfinedSetup>,
    /// A user namespace that was made here. The spec names its descriptor, which stays open until libcontainer is done.
    pub(super) user_namespace: Option<OwnedFd>,
}

/// Writes the spec that libcontainer reads, now and at every `exec`, and the files of the network wall.
pub(super) fn write_shadow(
    dir: &Path,
    decision: &BundleDecision,
    hooks: Option<&CreateHooks>,
) -> Result<Shadow, RuntimeError> {
    let places = SpecPaths {
        rootfs: decision.bundle.rootfs.clone(),
    };
    let spec = decision.bundle.spec.clone();
    let mut split = None;
    let mut spec = match decision.plan() {
        Some(plan) => {
            let own = resolver::own_line(&decision.engine_files, &plan.network.own_names)?;
            write_whole(&dir.join("hosts"), files::hosts(&own).as_bytes())?;
            write_whole(
                &dir.join("resolv.conf"),
                files::resolv_conf(&plan.network).as_bytes(),
            )?;
            for name in ["hosts", "resolv.conf"] {
                let path = dir.join(name);
                let mode = rustix::fs::Mode::from_raw_mode(0o644);
                rustix::fs::chmod(&path, mode)
                    .map_err(RuntimeError::io(format!("chmod {path:?}")))?;
            }
            denial_dir::make(dir, plan)?;
            user_relay::make_socket_directories(dir, plan)?;
            shadow::confined(spec, plan, &places)
        }
        None => {
            let mut spec = shadow::unconfined(spec, &places);
            split = Some(unconfined::split(&mut spec, &places.rootfs)?);
            spec
        }
    };
    let more = match &split {
        Some(split) if split.for_init.makes_nodes() => &[Capability::Mknod],
        _ => for_setup(decision),
    };
    if shadow::joins(&spec, LinuxNamespaceType::Pid) {
        joined_mount::replace(&mut spec);
    }
    let person = unprivileged::inside().filter(|_| decision.plan().is_some());
    if person.is_some() {
        as_the_only_user(&mut spec);
    }
    let mut kernel = match decision.plan() {
        Some(_) => kernel_mounts::split(&mut spec, &places.rootfs)?,
        None => KernelFiles::default(),
    };
    if person.is_some() {
        // The kernel mounts sysfs only for the owner of the network namespace, so it is mounted with the inner one
        // (fs/sysfs/mount.c).
        kernel.mounts.retain(|m| !m.is(Path::new("/sys"), "sysfs"));
    }
    if let Some(process) = spec.process_mut() {
        home::settle(process);
        if decision.plan().is_some() {
            own_oom_score(process);
        }
        let sets = process.capabilities().clone().unwrap_or_default();
        process.set_capabilities(Some(privileges::for_setup(&sets, more)));
        if decision.plan().is_some() {
            // The real cwd may lie in a mount that our own code makes after libcontainer enters it.
            process.set_cwd(PathBuf::from("/"));
        }
    }
    spec.set_hooks(hooks.map(CreateHooks::stand_in));
    // The file has the rights too: `exec` copies its process, and libcontainer reads it where it makes the process alone.
    save_json(&dir.join("config.json"), &spec)?;
    let rights = spec.process_mut().as_mut().map(SetupRights::take);
    let (unfinished, user_namespace) =
        split.map_or((None, None), |s| (Some(s.for_init), s.user_namespace));
    Ok(Shadow {
        spec,
        kernel,
        rights: rights.unwrap_or_default(),
        unfinished,
        user_namespace,
    })
}

/// The capabilities that this container's set-up needs beyond those that every set-up needs.
fn for_setup(decision: &BundleDecision) -> &'static [Capability] {
    let has_overlay = decision.plan().is_some_and(|p| p.filesystem.has_overlay());
    match has_overlay || unprivileged::inside().is_some() {
        // The kernel copies files up with the rights of the process that mounted the overlay, and some files have
        // capabilities or set-group-ID bits. To find the original of a copied file, and so its other names, it needs
        // DacReadSearch (ovl_can_decode_fh). And mapping a user namespace to root of its parent needs Setfcap there
        // (verify_root_map, kernel/user_namespace.c).
        true => &[
            Capability::Setfcap,
            Capability::Fsetid,
            Capability::DacReadSearch,
        ],
        false => &[],
    }
}

/// Limits a spec to what a caller without root's rights can make, as root of their own user namespace.
fn as_the_only_user(spec: &mut Spec) {
    if let Some(process) = spec.process_mut() {
        // No other user is mapped; the process becomes the caller at the end.
        process.set_user(User::default());
    }
    if let Some(linux) = spec.linux_mut() {
        // Until it enters the inner network the process is in the node's, which only root can join (setns(2)).
        let mut namespaces = linux.namespaces().clone().unwrap_or_default();
        namespaces.retain(|n| n.typ() != LinuxNamespaceType::Network);
        linux.set_namespaces(Some(namespaces));
    }
}

fn save_json(path: &Path, value: &impl serde::Serialize) -> Result<(), RuntimeError> {
    let text = serde_json::to_vec(value).map_err(|e| RuntimeError::Input {
        path: path.to_owned(),
        why: e.to_string(),
    })?;
    write_whole(path, &text)
}
