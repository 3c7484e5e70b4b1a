//! The names of runs: when a run started, and the container's id.

use crate::runtime::state::store::ContainerId;

/// Letters of a run's name before the container's id: its start time, and a dash.
pub(super) const BEFORE_ID: usize = "20260102T030405.678Z-".len();

/// The name of a run that starts at `started`.
pub(super) fn of(started: chrono::DateTime<chrono::Utc>, id: &ContainerId) -> String {
    format!("{}-{}", started.format("%Y%m%dT%H%M%S%.3fZ"), id.as_str())
}

/// The container's id in the name of a run.
pub(super) fn id_of(name: &str) -> Option<&str> {
    let id = name.get(BEFORE_ID..)?;
    (name.as_bytes().get(BEFORE_ID - 1) == Some(&b'-') && !id.is_empty()).then_some(id)
}
