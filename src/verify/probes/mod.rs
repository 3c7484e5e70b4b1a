//! The attacks, one file for each wall. docs/threats.md has the numbers.

mod devices;
mod everyone;
mod files;
mod members;
mod mounts;
pub mod network;
mod network_answers;
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
    use super::super::promise::{Promise, PromisedWalls};
    use super::*;
    use crate::plan::tests::sample_under;

    /// The probes that a policy does not promise.
    fn not_promised(policy: &str) -> BTreeSet<&'static str> {
        let walls = PromisedWalls {
            filter: Some("a hash".to_owned()),
            ..PromisedWalls::of(&sample_under(policy))
        };
        let promise = Promise {
            walls: Some(walls),
            ..Promise::default()
        };
        let missing = all().filter(|probe| !(probe.promised)(&promise));
        missing.map(|probe| probe.id).collect()
    }

    #[test]
    fn a_policy_promises_all_walls_but_the_listed_ones() {
        let everywhere = ["executed-memory", "short-lists", "limit-of-processors"];
        // Without a writable mount no file can be another user's, so `auto` allows set-user-ID modes.
        let with_overlay = ["limit-of-memory", "root", "set-id-modes"];
        assert_eq!(not_promised("strict"), everywhere.into());
        for policy in ["standard", "permissive"] {
            let expected: BTreeSet<_> = everywhere.into_iter().chain(with_overlay).collect();
            assert_eq!(not_promised(policy), expected, "{policy}");
        }
        let none = Promise::default();
        assert!(all().all(|probe| !(probe.promised)(&none)));
    }

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
