//! The scratch disk: begun early, made by a child ([`crate::scratch::maker`]), settled when libcontainer is done.

use std::io;

use oci_spec::runtime::Spec;

use crate::plan::{self, ScratchStorage};
use crate::policy::{PolicyName, ScratchOn};
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
    let why = match maker.outcome().map_err(RuntimeError::io(words))? {
        None => return Ok(()),
        Some(why) => why,
    };
    let decided = &mut **decided;
    let plan = &mut decided.plan;
    match plan.filesystem.scratch_on {
        ScratchOn::Disk => Err(no_disk(&decided.resolved.name, why)),
        ScratchOn::Auto | ScratchOn::Memory => {
            let files = &mut plan.filesystem;
            plan.warnings
                .push(plan::scratch::in_memory_instead(files, &why));
            Ok(())
        }
    }
}

fn no_disk(policy: &PolicyName, why: String) -> RuntimeError {
    plan::PlanError::NoDisk {
        policy: policy.to_string(),
        why,
    }
    .into()
}
