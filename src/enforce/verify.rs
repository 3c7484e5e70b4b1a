//! The process looks at itself, in the kernel, before it executes anybody else's code.
//!
//! prctl(2) and capget(2) only: the container's /proc could be anything.

use super::{EnforceError, privileges};
use crate::plan::CapabilitySets;

/// The capability sets are those that were planned.
pub fn capabilities(planned: &CapabilitySets) -> Result<(), EnforceError> {
    let found = privileges::current()?;
    if found == *planned {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "the set of capabilities",
        planned: format!("{planned:?}"),
        found: format!("{found:?}"),
    })
}

/// no_new_privs is as planned: libcontainer throws away the result of setting it.
pub fn no_new_privs(planned: bool) -> Result<(), EnforceError> {
    let found = rustix::thread::no_new_privs().map_err(EnforceError::step("read no_new_privs"))?;
    if found == planned || !planned {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "no_new_privs",
        planned: planned.to_string(),
        found: found.to_string(),
    })
}

/// A seccomp filter is loaded.
pub fn seccomp() -> Result<(), EnforceError> {
    let found = rustix::thread::secure_computing_mode()
        .map_err(EnforceError::step("read the seccomp mode"))?;
    if found == rustix::thread::SecureComputingMode::Filter {
        return Ok(());
    }
    Err(EnforceError::Verify {
        what: "the seccomp mode",
        planned: "filter".to_owned(),
        found: format!("{found:?}"),
    })
}
