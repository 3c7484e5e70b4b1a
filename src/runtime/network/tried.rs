//! Tells the sidecar the source ports of `verify`'s attempts, so that they are not logged as the container's.

use std::path::PathBuf;

use super::ControlError;
use super::control::ask_living;
use crate::egress::tried::TriedPorts;
use crate::runtime::RuntimeError;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::{ControlReply, ControlRequest};

/// Tells the sidecar that serves a container's network. Without a sidecar nothing is logged.
///
/// # Errors
/// The sidecar cannot be asked.
pub fn announce(
    place: &ContainerPaths,
    record: &Record,
    from: TriedPorts,
) -> Result<(), RuntimeError> {
    let Some((dir, record)) = serving(place, record)? else {
        return Ok(());
    };
    match ask_living(&dir, &record, &ControlRequest::Tried(from))? {
        ControlReply::Done => Ok(()),
        ControlReply::Failed(why) => Err(ControlError::Refused(why).into()),
        _ => Err(ControlError::Unexpected.into()),
    }
}

/// The directory and the record of the container whose sidecar serves the network.
fn serving(
    place: &ContainerPaths,
    record: &Record,
) -> Result<Option<(PathBuf, Record)>, RuntimeError> {
    let (dir, record) = match record.shared_network() {
        None => (place.dir(), record.clone()),
        Some(shared) => {
            let first = ContainerPaths::new(&record.root, &shared.container)?;
            let dir = first.dir();
            let record = Record::read(&dir)?;
            (dir, record)
        }
    };
    let is_served = record
        .plan()
        .is_some_and(|plan| plan.network.is_served_by_own());
    Ok(is_served.then_some((dir, record)))
}
