//! The record of a container, as written before anything of the container is made.

use std::path::PathBuf;

use oci_spec::runtime::{Hooks, Spec};

use crate::cgroup::path;
use crate::cli::GlobalOptions;
use crate::plan::CapabilitySets;
use crate::runtime::create::decide::BundleDecision;
use crate::runtime::filter;
use crate::runtime::input::node_files::config;
use crate::runtime::network::companion;
use crate::runtime::state::decision::SavedDecision;
use crate::runtime::state::record::{self, CreateCall, Record};
use crate::runtime::state::store::ContainerPaths;

pub(super) fn new_record(
    global: &GlobalOptions,
    place: &ContainerPaths,
    decision: &BundleDecision,
) -> Record {
    let spec = &decision.bundle.spec;
    let process = spec.process().as_ref();
    let given = process.and_then(|p| p.capabilities().as_ref());
    Record {
        format: record::FORMAT,
        id: place.id.as_str().to_owned(),
        root: place.root.clone(),
        bundle: decision.bundle.dir.clone(),
        rootfs: decision.bundle.rootfs.clone(),
        cwd: spec
            .process()
            .as_ref()
            .map(|p| p.cwd().clone())
            .unwrap_or_default(),
        oci_version: spec.version().clone(),
        annotations: spec
            .annotations()
            .iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        hooks: Hooks::default(),
        systemd_cgroup: global.systemd_cgroup,
        capabilities: match decision.plan() {
            Some(plan) => plan.capabilities.clone(),
            None => CapabilitySets::of(given),
        },
        no_new_keyring: false,
        decided: decision.decided.clone().map(SavedDecision::from),
        chosen_by: decision.chosen_by.clone(),
        call: CreateCall {
            policy: global.policy.clone(),
            config: std::path::absolute(config(global))
                .unwrap_or_else(|_| config(global).to_owned()),
            asked: decision.asked.clone(),
            wrap: decision.wrapped,
        },
        init: None,
        cgroups: cgroups(global, spec, place),
        controllers: None,
        sidecar: None,
        timekeeper: None,
        filtered: decision.filter.is_some(),
        filter_hash: decision.filter.as_ref().map(filter::hash),
        netns_cookie: None,
        engine_files: decision.engine_files.clone(),
        started: false,
    }
}

/// The cgroups that libcontainer and the sidecar use; systemd removes its own.
fn cgroups(global: &GlobalOptions, spec: &Spec, place: &ContainerPaths) -> Vec<PathBuf> {
    let own = path::named(spec).filter(|_| !global.systemd_cgroup);
    let (parent, name) = companion::sidecar_cgroup(spec, place);
    own.into_iter().chain([parent.join(name)]).collect()
}
