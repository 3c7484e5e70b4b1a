//! The step of `create` that makes the process: libcontainer's work, within a time.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use libcontainer::container::Container;
use oci_spec::runtime::Spec;

use super::creation::Creation;
use crate::enforce::executor::WallExecutor;
use crate::runtime::RuntimeError;
use crate::runtime::hooks::CreateHooks;
use crate::runtime::launch::{Streams, builder};
use crate::runtime::state::half_made;
use crate::runtime::state::report;

impl Creation<'_> {
    /// Has libcontainer make the first process. Of several errors the one that is nearest to the cause is returned.
    pub(super) fn run_libcontainer(
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
        let what = "container's first process";
        let built = half_made::limited(what, within, &self.place.report(), halt, || {
            self.build(streams, spec, executor).map_err(|error| {
                // What our own code in the container's process says is nearer to the cause.
                let of_hooks = || Some(hooks?.failure()?.into());
                let reported = report::pending(reports).map(RuntimeError::Init);
                reported.or_else(of_hooks).unwrap_or(error)
            })
        });
        // A disk that could not be made is nearer still.
        built.map_err(|error| self.settle_disk().err().unwrap_or(error))
    }

    fn build(
        &self,
        streams: Streams<'_>,
        spec: &Spec,
        executor: WallExecutor,
    ) -> Result<Container, RuntimeError> {
        let (args, place) = (self.args, &self.place);
        let process = spec.process().as_ref();
        let cwd = process.map(|p| p.cwd().clone()).unwrap_or_default();
        let failed = RuntimeError::process("create the container", &cwd);
        crate::log::keep_causes().map_err(RuntimeError::io("make a pipe"))?;
        fs::create_dir_all(&place.root)
            .map_err(RuntimeError::io(format!("make {:?}", place.root)))?;
        let console = streams.console;
        let builder = match builder(place, executor, streams.stdio, args.pid_file.as_deref()) {
            Ok(builder) => builder,
            Err(e) => return Err(failed(e)),
        };
        let terminal = process.and_then(|p| p.terminal()).unwrap_or(false);
        builder
            .with_console_socket(console.filter(|_| terminal))
            .with_preserved_fds(args.preserve_fds)
            .as_init(place.dir())
            .with_systemd(self.global.systemd_cgroup)
            .with_detach(true)
            .with_no_pivot(args.no_pivot)
            .build()
            .map_err(failed)
    }
}
