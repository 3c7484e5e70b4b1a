//! SHELL. A container of our own, created like an engine's: a root of empty directories, and the mounts, capabilities
//! and masks of an engine's spec. Its init process tries the attacks, then an exec process. Then the container is
//! removed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oci_spec::runtime::{LinuxDeviceCgroupBuilder, LinuxNamespaceType, LinuxResources, Spec};

use super::inside;
use super::probe_process::ProbePipes;
use super::program;
use super::report::{ProbeRunner, VerifyReport};
use super::running::{by_exec, not_enforced, policy, promise};
use crate::cli::{Create, GlobalOptions};
use crate::plan::CapabilitySets;
use crate::plan::process::to_spec;
use crate::plan::wrap_plan::WrapPlan;
use crate::runtime::create::{self, CreatedContainer, WrapParts};
use crate::runtime::delete::{self, DeleteScope};
use crate::runtime::launch::{RunRetention, Streams};
use crate::runtime::start;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::{ContainerPaths, Lock};
use crate::runtime::unprivileged;
use crate::sys::user_namespace::Ids;
use crate::wrap::leftovers::{self, NameMatch};

/// The minimum of an image, and the places where probes look.
const DIRECTORIES: [&str; 8] = ["dev", "etc", "proc", "root", "run", "sys", "tmp", "var"];

/// Makes all attempts in a container of the policy that `global` selects.
///
/// # Errors
/// The container cannot be created, started or removed.
pub fn sandbox(global: &GlobalOptions) -> Result<VerifyReport> {
    leftovers::sweep();
    // From now on, the next call removes what a killed process leaves behind.
    let claim = leftovers::claim(&global.root, NameMatch::Beginning("verify"))?;
    let directory = Directory(claim.dir.clone());
    write_bundle(&directory.0, &claim.id)?;
    let (stdio, talk) = ProbePipes::begin()?;
    let streams = Streams {
        stdio,
        program: program::own()?,
        leaves: RunRetention::Nothing,
        ..Streams::default()
    };
    let CreatedContainer { place, lock, .. } = create::create(
        global,
        &arguments(&directory.0, &claim.id),
        streams,
        WrapParts::without_secrets(&WrapPlan::default()),
    )?;
    let tried = by_both(global, &place, lock, talk);
    let deleted = delete::delete(&place, DeleteScope::Any);
    let report = tried?;
    deleted.context("delete the container")?;
    Ok(report)
}

fn by_both(
    global: &GlobalOptions,
    place: &ContainerPaths,
    lock: Lock,
    talk: ProbePipes,
) -> Result<VerifyReport> {
    start::start(global, place, lock, None)?;
    let record = Record::read(&place.dir())?;
    let promise = promise(&record)?;
    let subject = format!("a new container, {}", policy(&record));
    let mut report = VerifyReport::new(subject, &promise).without(not_enforced(&record));
    // This container's log is not kept.
    let said = talk.hear(&promise, |_| inside::Answer::Known)?;
    said.log_noise();
    report.add_inside(ProbeRunner::Init, &promise, &said.findings);
    let by_exec = by_exec(place, &record, &promise, &mut report);
    if let Some(init) = record.init {
        talk.end(init.pid)?;
    }
    by_exec?;
    Ok(report)
}

/// A directory that is removed with the value.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            log::warn!("remove {:?}: {error}", self.0);
        }
    }
}

fn arguments(bundle: &Path, id: &str) -> Create {
    Create {
        bundle: bundle.to_owned(),
        console_socket: None,
        pid_file: None,
        pidfd_socket: None,
        no_pivot: false,
        no_new_keyring: false,
        preserve_fds: 0,
        id: id.to_owned(),
    }
}

fn write_bundle(dir: &Path, id: &str) -> Result<()> {
    for name in DIRECTORIES {
        let path = dir.join("rootfs").join(name);
        fs::create_dir_all(&path).with_context(|| format!("make {path:?}"))?;
    }
    let path = dir.join("config.json");
    let text = serde_json::to_vec(&spec(id)?)?;
    fs::write(&path, text).with_context(|| format!("write {path:?}"))
}

/// The library's example spec, like an engine's: namespaces, the kernel's file systems, some capabilities, masks.
fn spec(id: &str) -> Result<Spec> {
    let mut spec = Spec::default();
    spec.set_hostname(Some("agentbox".to_owned()));
    spec.set_annotations(None);
    // Like most engines. Only the policy then protects the image.
    if let Some(root) = spec.root_mut() {
        root.set_readonly(Some(false));
    }
    if let Some(process) = spec.process_mut() {
        process.set_terminal(Some(false));
        process.set_args(Some(vec!["agentbox".to_owned(), inside::VERB.to_owned()]));
    }
    let nothing = LinuxDeviceCgroupBuilder::default()
        .allow(false)
        .access("rwm")
        .build()?;
    if let Some(linux) = spec.linux_mut() {
        // As `wrap` does: the sidecar dials from the node's own network, which the container gets without a policy.
        let mut namespaces = linux.namespaces().clone().unwrap_or_default();
        namespaces.retain(|namespace| namespace.typ() != LinuxNamespaceType::Network);
        linux.set_namespaces(Some(namespaces));
        let mut resources = LinuxResources::default();
        resources.set_devices(Some(vec![nothing]));
        linux.set_resources(Some(resources));
        let above = unprivileged::cgroup().unwrap_or_else(|| PathBuf::from("/"));
        linux.set_cgroups_path(Some(above.join(format!("agentbox-{id}"))));
    }
    if let Some(person) = unprivileged::inside() {
        as_wrap_does(&mut spec, person);
    }
    Ok(spec)
}

/// Leaves what a user without root's rights can make, as `wrap` does.
fn as_wrap_does(spec: &mut Spec, person: Ids) {
    if let Some(process) = spec.process_mut() {
        let mut user = process.user().clone();
        user.set_uid(person.uid);
        user.set_gid(person.gid);
        process.set_user(user);
        process.set_capabilities(Some(to_spec(&CapabilitySets::default())));
    }
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    mounts.retain(|mount| mount.typ().as_deref() != Some("cgroup"));
    for mount in &mut mounts {
        // No other group is mapped.
        let options = mount.options().iter().flatten();
        let kept = options.filter(|option| !option.starts_with("gid="));
        let kept = kept.cloned().collect();
        mount.set_options(Some(kept));
    }
    spec.set_mounts(Some(mounts));
}
