//! `create`: from a bundle to a process that waits behind its walls for `start`.
//!
//! [`create`] decides, and refuses while nothing has been made. [`make`] lists the steps in order. A failed step ends
//! the list, and [`Creation::take_away`] undoes the earlier ones, newest first.

mod begin;
mod complete;
mod creation;
mod decide;
mod disk;
pub mod error;
mod excludes;
mod first_process;
pub mod judged_mounts;
pub mod kernel_mounts;
pub mod neighbours;
mod process;
mod record;
mod refused;
mod shadow;
pub mod unconfined;
mod walls;
mod writable;

use super::error::RuntimeError;
use crate::cgroup::first_move;
use crate::cli::{self, GlobalOptions};
use crate::runtime::agent::SeccompAgent;
use crate::runtime::input::descriptors;
use crate::runtime::launch::Streams;
use crate::runtime::network::sandbox;
use crate::runtime::state::store::ContainerPaths;
use crate::sys::open_files;
use creation::Creation;
use walls::InitInherited;

pub use creation::CreatedContainer;
pub use decide::{BundleDecision, WrapParts, decide};

/// Creates a container; its process waits for `start`.
pub fn create(
    global: &GlobalOptions,
    args: &cli::Create,
    mut streams: Streams<'_>,
    wrapped: WrapParts<'_>,
) -> Result<CreatedContainer, RuntimeError> {
    // Everything that can be refused by looking. Nothing has been made yet, so a refusal leaves nothing.
    let place = ContainerPaths::new(&global.root, &args.id)?;
    // The bundle decides whether a console is used: the caller's own descriptors count as if they were no terminal.
    let handed = descriptors::handed_file(args.preserve_fds, streams.standard());
    let decision = decide(global, &args.bundle, wrapped, handed);
    let mut decision =
        decision.inspect_err(|_| sandbox::end_if_lost(&global.root, &args.bundle))?;
    refused::name_cgroup(global, &place, &mut decision.bundle.spec)?;
    let agent = refused::check(args, &mut streams, &decision)?;
    // If libcontainer makes the process, this process moves to its cgroups. The first move is slow, and begins here.
    let is_ours = first_process::is_ours(global, &decision.bundle.spec);
    let _first_move = (!is_ours).then(first_move::begin);
    // The lock comes last: it may have to wait for another call.
    let lock = creation::reserve(&place, &decision)?;
    let mut creation = Creation::begin(global, args, place, lock, decision)?;
    match make(&mut creation, streams, agent) {
        Ok(()) => {
            let done = creation.done();
            // The sources are closed. With a higher limit no harm is done here: what it executes gets its own.
            let _lowered = open_files::give_back(None);
            Ok(done)
        }
        Err(error) => {
            creation.take_away();
            Err(error)
        }
    }
}

/// The steps. A value here passes from one step to a later one; what must be ended or removed is in `creation`.
fn make(
    creation: &mut Creation<'_>,
    mut streams: Streams<'_>,
    agent: Option<SeccompAgent>,
) -> Result<(), RuntimeError> {
    // It changes the spec, which all later steps use.
    creation.mount_readiness_socket()?;
    // Before the things that it names are made: `delete --force` finds it after a SIGKILL.
    creation.save_record()?;

    // Children begin early and work in parallel. The disk comes first: it takes longest.
    creation.begin_disk()?;
    // It saves the record again, before the sidecar is used.
    creation.begin_network()?;
    // No child: a file, whose descriptor libcontainer's spec names.
    let hooks = creation.write_down_hooks()?;
    let shadow = creation.write_shadow(hooks.as_ref())?;
    // From libcontainer's spec, whose rules count. Rules that cannot be compiled must leave no process.
    let device_program = creation.compile_device_program(&shadow.spec)?;
    // While the node's files are in sight, and after the network wall's files, which are mounted with them.
    let judged_mounts = creation.open_judged_mounts()?;
    creation.keep_writable(&judged_mounts)?;
    // For every later `exec`; the init process has its copy in memory.
    creation.keep_filter()?;
    let (report, reports) = creation.make_report_pipe()?;
    // Not earlier: from here on poststop hooks have something to undo.
    creation.record_hooks()?;
    // After the pipe, through which the agent's child reports errors.
    let agent = creation.begin_agent(agent)?;
    let layers = creation.copy_layers()?;
    let executor = creation.executor(InitInherited {
        agent,
        report,
        kernel: shadow.kernel,
        rights: shadow.rights,
        judged_mounts,
        layers,
        unfinished: shadow.unfinished,
        keep_newlines: streams.relayed && creation.has_terminal(),
        leader: std::mem::take(&mut streams.leader),
        program: std::mem::take(&mut streams.program),
    })?;
    // As late as possible: after its files are written, and before libcontainer keeps this process busy.
    creation.configure_sidecar()?;
    // Last: an init process made by libcontainer is born in this process's cgroup.
    creation.enter_systemd_cgroup(&shadow.spec)?;

    let (leaves, tells) = (streams.leaves, creation.tells(&streams));
    // Makes the process, up to the end of `validate`. Its user namespace may be known by a descriptor of this process
    // only.
    let container =
        creation.make_process(streams, &shadow.spec, executor, hooks.as_ref(), &reports)?;
    drop(shadow.user_namespace);

    // The process exists, and runs nothing of the container yet. Helpers that must not count for it end first.
    creation.settle_disk()?;
    creation.leave_systemd_cgroup()?;
    creation.end_agents_child();
    // `kill` and `delete` go by the record, so the process is recorded before anything else can fail.
    let init = creation.record_process(&container)?;
    // The walls outside the process, while it waits.
    creation.check_cgroup()?;
    creation.check_joined_namespaces(init)?;
    creation.limit_devices(device_program.as_ref(), &shadow.spec)?;
    // Before the sidecar learns where its log is. If the node requires a log and none can be written, this refuses.
    let (watched, events) = creation.watch_writes();
    creation.begin_run(leaves, events)?;
    // Waits until the sidecar is confined, and gives it nothing before.
    let inner_network = creation.finish_network(init, watched)?;
    // In the sidecar's cgroup. Time counts from here on.
    creation.begin_clock(init)?;
    // From here on other verbs find the container, so it is complete, except for announcing it.
    creation.enter_index(init, inner_network)?;
    creation.announce(init)?;
    creation.save_record()?;
    creation.keep_record()?;
    // Last: an engine shows standard error of a failed `create` as the error.
    creation.tell_caller(tells)
}
