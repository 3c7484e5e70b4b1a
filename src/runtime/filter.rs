//! The syscall wall's program: compiled once at `create`, saved as bytes for every later `exec`.

use std::path::Path;

use oci_spec::runtime::LinuxSeccomp;

use crate::audit;
use crate::plan::{HostFacts, Plan, SyscallPlan};
use crate::policy::Switch;
use crate::runtime::RuntimeError;
use crate::runtime::files::write_whole;
use crate::seccomp::{self, DenyMode, FilterInput, FilterPolicy, SavedFilter, SyscallFilter};

/// The plan's request for a filter program.
#[derive(Debug, Clone, Copy)]
pub struct FilterRequest<'a> {
    /// The calls that are added to the base rules and removed from them.
    pub syscalls: &'a SyscallPlan,
    /// Whether the node gives devices.
    pub devices: bool,
    /// How denials are answered.
    pub denials: DenyMode,
}

impl<'a> FilterRequest<'a> {
    /// For a container on this kernel. Denied calls are logged only if a signal cannot interrupt a call that was taken:
    /// programs do not expect EINTR from them.
    pub fn of(plan: &'a Plan, host: &HostFacts) -> Self {
        Self {
            syscalls: &plan.syscalls,
            devices: !plan.devices.is_empty(),
            denials: match host.wait_killable {
                true => DenyMode::Notify,
                false => DenyMode::Errno,
            },
        }
    }

    /// Without a log of denied calls.
    pub fn unlogged(plan: &'a Plan) -> Self {
        Self {
            syscalls: &plan.syscalls,
            devices: !plan.devices.is_empty(),
            denials: DenyMode::Errno,
        }
    }
}

/// Compiles a container's program; `None` if neither a policy nor the engine has one.
pub fn compile(
    asked: Option<FilterRequest<'_>>,
    engine: Option<&LinuxSeccomp>,
) -> Result<Option<SyscallFilter>, RuntimeError> {
    let ours = asked.map(|asked| FilterPolicy {
        allow: &asked.syscalls.allow,
        deny: &asked.syscalls.deny,
        set_id: asked.syscalls.set_id == Switch::On,
        attributes: asked.syscalls.attributes == Switch::On,
        profile: asked.syscalls.profile,
        devices: asked.devices,
        denials: asked.denials,
    });
    let filter = seccomp::compile(&FilterInput { ours, engine })?;
    if let Some(filter) = &filter {
        // runc's words, which its tests search for.
        log::debug!("seccomp filter flags: {}", filter.flags);
        for note in &filter.notes {
            log::debug!("seccomp: {note:?}");
        }
    }
    Ok(filter)
}

/// Saves a program: its flags, 8 bytes in the machine's byte order, then its instructions.
pub fn save(path: &Path, filter: &SyscallFilter) -> Result<(), RuntimeError> {
    write_whole(path, &SavedFilter::from(filter).to_bytes())
}

/// The hash of the file in which a program is saved.
pub fn hash(filter: &SyscallFilter) -> String {
    audit::hash(&SavedFilter::from(filter).to_bytes())
}

/// Reads a saved program; `None` if the container has none. A program with another hash is an error.
pub fn read(path: &Path, hash: Option<&str>) -> Result<Option<SavedFilter>, RuntimeError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(RuntimeError::io(format!("read {path:?}"))(e)),
    };
    let bad = |why: &str| RuntimeError::Input {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    if hash.is_some_and(|hash| hash != audit::hash(&bytes)) {
        return Err(bad("it is not the one that was made for the container"));
    }
    let filter = SavedFilter::from_bytes(&bytes).ok_or_else(|| bad("it is cut short"))?;
    Ok(Some(filter.map_err(|e| bad(&e.to_string()))?))
}
