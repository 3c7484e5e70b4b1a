//! Refusals of `create`, before it has made anything.

use oci_spec::runtime::Spec;

use super::decide::BundleDecision;
use super::error::CreateError;
use crate::cgroup::{limits, path};
use crate::cli::{self, GlobalOptions};
use crate::plan::CapabilitySets;
use crate::runtime::agent::SeccompAgent;
use crate::runtime::error::RuntimeError;
use crate::runtime::foreground::notify;
use crate::runtime::foreground::relay;
use crate::runtime::hooks;
use crate::runtime::input::descriptors::{self, DescriptorRule};
use crate::runtime::launch::{Streams, refuse_contradiction};
use crate::runtime::state::store::ContainerPaths;

/// Gives a spec without `linux.cgroupsPath` one; with systemd, checks the path.
pub(super) fn name_cgroup(
    global: &GlobalOptions,
    place: &ContainerPaths,
    spec: &mut Spec,
) -> Result<(), RuntimeError> {
    if global.systemd_cgroup {
        path::check_systemd(spec)?;
        path::warn_of_properties(spec);
    } else {
        path::name(spec, place.key());
    }
    Ok(())
}

/// Refuses what the container could not get, or must not get, and takes the caller's own file from a process that nothing relays
/// to. Returns the seccomp agent that the engine's profile needs.
pub(super) fn check(
    args: &cli::Create,
    streams: &mut Streams<'_>,
    decision: &BundleDecision,
) -> Result<Option<SeccompAgent>, RuntimeError> {
    let (spec, plan) = (&decision.bundle.spec, decision.plan());
    let process = spec.process().as_ref();
    refuse_contradiction(&CapabilitySets::of(
        process.and_then(|p| p.capabilities().as_ref()),
    ))?;
    descriptors::check(args.preserve_fds, DescriptorRule::of(plan))?;
    if let Some(process) = process {
        descriptors::check_limit(process, plan, decision.layers())?;
    }
    if let Some(all) = spec.hooks() {
        hooks::check(all)?;
    }
    let terminal = decision.has_terminal();
    if terminal && streams.console.is_none() {
        return Err(CreateError::NoConsoleSocket.into());
    }
    let linux = spec.linux().as_ref();
    if let Some(resources) = linux.and_then(|l| l.resources().as_ref()) {
        limits::warn_of_kernel_memory(resources);
    }
    let profile = linux.and_then(|l| l.seccomp().as_ref());
    let agent = SeccompAgent::of(profile, decision.filter.as_ref())?;
    if plan.is_none() {
        return Ok(agent);
    }
    if args.no_new_keyring {
        return Err(CreateError::Keyring.into());
    }
    // `wrap`, which has mounts of its own, passes on only listed variables of its environment.
    if notify::host().is_some() && !decision.wrapped {
        return Err(CreateError::NotifySocket.into());
    }
    if !streams.relayed && !terminal {
        streams.stdio = relay::detached("this command", std::mem::take(&mut streams.stdio))?;
    }
    Ok(agent)
}
