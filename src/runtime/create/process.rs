//! The step of `create` that makes the process, within a time limit: our own clone with libcontainer's work, or
//! libcontainer alone.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use libcontainer::container::Container;
use oci_spec::runtime::Spec;

use super::creation::Creation;
use super::first_process::{self, CreateOptions};
use crate::cgroup::birthplace::Birthplace;
use crate::enforce::executor::WallExecutor;
use crate::runtime::error::RuntimeError;
use crate::runtime::hooks::CreateHooks;
use crate::runtime::launch::{Streams, builder};
use crate::runtime::state::half_made;
use crate::runtime::state::report;
use crate::runtime::state::store::make_private;

impl Creation<'_> {
    /// Makes the init process. Of several errors, returns the one nearest to the cause.
    pub(super) fn make_process(
        &mut self,
        streams: Streams<'_>,
        spec: &Spec,
        executor: WallExecutor,
        hooks: Option<&CreateHooks>,
        reports: &OwnedFd,
    ) -> Result<Container, RuntimeError> {
        let halt = hooks.map(CreateHooks::halt);
        let of_hooks = hooks.map_or(Duration::ZERO, CreateHooks::time_inside);
        let within = half_made::WITHIN.saturating_add(of_hooks);
        let what = "container's init process";
        let built = half_made::limited(what, within, &self.place.report(), halt, |_| {
            self.build(streams, spec, executor).map_err(|error| {
                // Errors of our own code in the container's process are nearer to the cause.
                let of_hooks = || Some(hooks?.failure()?.into());
                let reported = report::pending(reports).map(RuntimeError::Init);
                reported.or_else(of_hooks).unwrap_or(error)
            })
        });
        // An error of the disk is nearer still.
        let (container, born) = built.map_err(|error| self.settle_disk().err().unwrap_or(error))?;
        self.born = born;
        Ok(container)
    }

    fn build(
        &self,
        streams: Streams<'_>,
        spec: &Spec,
        executor: WallExecutor,
    ) -> Result<(Container, Option<Birthplace>), RuntimeError> {
        let (args, place) = (self.args, &self.place);
        let process = spec.process().as_ref();
        let cwd = process.map(|p| p.cwd().clone()).unwrap_or_default();
        let failed = RuntimeError::process("create the container", &cwd);
        crate::log::keep_causes().map_err(RuntimeError::io("make a pipe"))?;
        make_private(&place.root)?;
        let terminal = process.and_then(|p| p.terminal()).unwrap_or(false);
        let console = streams.console.filter(|_| terminal);
        if first_process::is_ours(self.global, spec) {
            let asked = CreateOptions {
                place,
                spec,
                stdio: streams.stdio,
                console,
                preserve_fds: args.preserve_fds,
                no_pivot: args.no_pivot,
            };
            let (container, born) = first_process::make(asked, executor)?;
            return Ok((container, Some(born)));
        }
        let builder = match builder(place, executor, streams.stdio) {
            Ok(builder) => builder,
            Err(e) => return Err(failed(e)),
        };
        let built = builder
            .with_console_socket(console)
            .with_preserved_fds(args.preserve_fds)
            .as_init(place.dir())
            .with_systemd(self.global.systemd_cgroup)
            .with_detach(true)
            .with_no_pivot(args.no_pivot)
            .build()
            .map_err(failed)?;
        // libcontainer made it with the caller's umask.
        let dir = place.libcontainer_dir();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))
            .map_err(RuntimeError::io(format!("close {dir:?}")))?;
        Ok((built, None))
    }
}
