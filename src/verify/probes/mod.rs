//! The attacks, one file for each wall. docs/threats.md has the numbers.

mod devices;
mod everyone;
mod files;
mod mounts;
pub mod network;
mod node;
mod privileges;
pub mod processes;
mod resources;
mod syscalls;

use super::probe::Probe;

/// All probes, by wall.
pub fn all() -> impl Iterator<Item = &'static Probe> {
    [
        network::PROBES,
        syscalls::PROBES,
        privileges::PROBES,
        files::PROBES,
        devices::PROBES,
        processes::PROBES,
        resources::PROBES,
        node::PROBES,
        mounts::PROBES,
        everyone::PROBES,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::probe::ProbedWall;
    use super::*;

    #[test]
    fn every_wall_is_tried_and_every_probe_has_its_own_name() {
        for wall in ProbedWall::ALL {
            assert!(
                all().any(|probe| probe.wall == wall),
                "{wall:?} has no probe"
            );
        }
        let ids: BTreeSet<_> = all().map(|probe| probe.id).collect();
        assert_eq!(ids.len(), all().count());
        for probe in all() {
            assert!(!probe.threats.is_empty(), "{} has no number", probe.id);
        }
    }
}
