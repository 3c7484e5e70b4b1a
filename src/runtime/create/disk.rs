//! The scratch disk: begun early, made by a child ([`crate::scratch::maker`]), settled when libcontainer is done.

use std::io;

use oci_spec::runtime::Spec;

use crate::plan::{self, DecidedPlan, ScratchStorage};
use crate::policy::PolicyName;
use crate::runtime::error::RuntimeError;
use crate::runtime::state::record::Record;
use crate::runtime::state::user_dirs::{DirUse, check_way};
use crate::scratch::maker::DiskMaker;

/// Begins to make the scratch disk, if the plan has one.
pub(super) fn begin(record: &Record, spec: &Spec) -> Result<Option<DiskMaker>, RuntimeError> {
    let Some(plan) = record.plan() else {
        return Ok(None);
    };
    let files = &plan.filesystem;
    if !files.needs_scratch() || files.scratch_place != ScratchStorage::Disk {
        return Ok(None);
    }
    let begun = DiskMaker::begin(files.scratch_bytes, spec, |directory| {
        check_way(directory, DirUse::Disks).map_err(io::Error::other)
    });
    Ok(Some(
        begun.map_err(RuntimeError::io("begin to make a disk"))?,
    ))
}

/// Waits for the result; the disk itself went to the init process. Without a disk that process uses memory, if the
/// policy leaves it open, and the record says so.
pub(super) fn settle(record: &mut Record, maker: Option<DiskMaker>) -> Result<(), RuntimeError> {
    let (Some(decided), Some(maker)) = (&mut record.decided, maker) else {
        return Ok(());
    };
    let words = "make the scratch disk";
    match maker.outcome().map_err(RuntimeError::io(words))? {
        None => Ok(()),
        Some(why) => without_disk(decided, why),
    }
}

fn without_disk(decided: &mut DecidedPlan, why: String) -> Result<(), RuntimeError> {
    let plan = &mut decided.plan;
    match plan::scratch::without_disk(&mut plan.filesystem, &why) {
        Some(warning) => {
            plan.warnings.push(warning);
            Ok(())
        }
        None => Err(no_disk(&decided.resolved.name, why)),
    }
}

fn no_disk(policy: &PolicyName, why: String) -> RuntimeError {
    plan::PlanError::NoDisk {
        policy: policy.to_string(),
        why,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::sample;
    use crate::policy::ScratchOn;

    #[test]
    fn the_record_says_that_memory_is_used_and_a_demanded_disk_fails_create() {
        let settled = |on| {
            let mut plan = sample();
            plan.filesystem.scratch_on = on;
            plan.filesystem.scratch_place = ScratchStorage::Disk;
            let mut record = Record::with_plan("c1", plan);
            let decided = record.decided.as_mut().unwrap();
            let settled = without_disk(decided, "full".to_owned());
            let place = decided.plan.filesystem.scratch_place;
            settled.map(|()| (place, decided.plan.warnings.len()))
        };
        let before = sample().warnings.len();
        for on in [ScratchOn::Auto, ScratchOn::Memory] {
            assert_eq!(settled(on).unwrap(), (ScratchStorage::Memory, before + 1));
        }
        let error = settled(ScratchOn::Disk).unwrap_err().to_string();
        assert!(error.contains("full"), "{error}");
    }
}
