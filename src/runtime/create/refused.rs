//! Refusals of `create`, before it has made anything.

use std::path::Path;

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
    let call = CreateFacts {
        has_terminal: decision.has_terminal(),
        console: streams.console,
        relayed: streams.relayed,
        no_new_keyring: args.no_new_keyring,
        notify_socket: notify::host(),
        wrapped: decision.wrapped,
    };
    call.check_terminal()?;
    let linux = spec.linux().as_ref();
    if let Some(resources) = linux.and_then(|l| l.resources().as_ref()) {
        limits::warn_of_kernel_memory(resources);
    }
    let profile = linux.and_then(|l| l.seccomp().as_ref());
    let agent = SeccompAgent::of(profile, decision.filter.as_ref())?;
    if plan.is_none() {
        return Ok(agent);
    }
    call.check_under_policy()?;
    if call.is_left_alone() {
        streams.stdio = relay::detached("this command", std::mem::take(&mut streams.stdio))?;
    }
    Ok(agent)
}

/// What a caller gives to `create` besides the bundle.
struct CreateFacts<'a> {
    /// The init process gets a terminal.
    has_terminal: bool,
    /// `--console-socket`
    console: Option<&'a Path>,
    /// This process relays the container's streams.
    relayed: bool,
    /// `--no-new-keyring`
    no_new_keyring: bool,
    /// The socket in the caller's NOTIFY_SOCKET.
    notify_socket: Option<String>,
    /// The caller is `wrap`.
    wrapped: bool,
}

impl CreateFacts<'_> {
    /// Refuses a terminal that goes nowhere.
    fn check_terminal(&self) -> Result<(), CreateError> {
        match self.has_terminal && self.console.is_none() {
            true => Err(CreateError::NoConsoleSocket),
            false => Ok(()),
        }
    }

    /// Refuses what gives the workload keys or a socket of the node.
    fn check_under_policy(&self) -> Result<(), CreateError> {
        if self.no_new_keyring {
            return Err(CreateError::Keyring);
        }
        // `wrap`, which has mounts of its own, passes on only listed variables of its environment.
        if self.notify_socket.is_some() && !self.wrapped {
            return Err(CreateError::NotifySocket);
        }
        Ok(())
    }

    /// Whether the init process has the caller's own descriptors, and no process relays them.
    fn is_left_alone(&self) -> bool {
        !self.relayed && !self.has_terminal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `create` without an option.
    fn plain() -> CreateFacts<'static> {
        CreateFacts {
            has_terminal: false,
            console: None,
            relayed: false,
            no_new_keyring: false,
            notify_socket: None,
            wrapped: false,
        }
    }

    #[test]
    fn a_terminal_needs_a_console_socket_and_nothing_else_does() {
        let mut call = plain();
        assert!(call.check_terminal().is_ok());
        call.has_terminal = true;
        let refused = call.check_terminal();
        assert!(matches!(refused, Err(CreateError::NoConsoleSocket)));
        call.console = Some(Path::new("/run/console.sock"));
        assert!(call.check_terminal().is_ok());
    }

    #[test]
    fn under_a_policy_no_key_and_no_socket_of_the_node_is_handed_in() {
        let mut call = plain();
        assert!(call.check_under_policy().is_ok());
        call.notify_socket = Some("/run/systemd/notify".to_owned());
        let refused = call.check_under_policy();
        assert!(matches!(refused, Err(CreateError::NotifySocket)));
        call.wrapped = true;
        assert!(call.check_under_policy().is_ok());
        call.no_new_keyring = true;
        for wrapped in [true, false] {
            call.wrapped = wrapped;
            let refused = call.check_under_policy();
            assert!(matches!(refused, Err(CreateError::Keyring)));
        }
    }

    #[test]
    fn the_callers_input_is_replaced_where_neither_a_relay_nor_a_terminal_stands_between() {
        let of = |relayed, has_terminal| CreateFacts {
            relayed,
            has_terminal,
            ..plain()
        };
        assert!(of(false, false).is_left_alone());
        for (relayed, has_terminal) in [(true, false), (false, true), (true, true)] {
            assert!(!of(relayed, has_terminal).is_left_alone());
        }
    }
}
