//! The first write to each watched mount (`report.learn`).

use std::rc::Rc;

use tokio::task::spawn_local;

use super::super::watched::WatchedMount;
use super::wall::Wall;
use crate::sys::event::readable;

/// Logs the first write to each mount, and stops watching it.
pub(super) fn serve(wall: &Rc<Wall>, mounts: Vec<WatchedMount>) {
    for mount in mounts {
        let wall = Rc::clone(wall);
        spawn_local(async move {
            match readable(&mount.writes).await {
                Ok(()) => wall.log(mount.written()),
                Err(error) => eprintln!("agentbox-sidecar: a mount is not watched: {error}"),
            }
        });
    }
}
