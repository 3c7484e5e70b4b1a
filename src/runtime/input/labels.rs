//! Labels and profiles of security modules that this kernel lacks: an error before anything is made, as with runc.

use std::path::Path;

use oci_spec::runtime::Process;

use crate::runtime::RuntimeError;
use crate::runtime::input::ProcessRefusal;

/// Refuses labels and profiles that no security module of this kernel would enforce.
pub fn check(process: &Process) -> Result<(), RuntimeError> {
    let asked = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    if let Some(profile) = asked(process.apparmor_profile())
        && !has_apparmor()
    {
        return Err(ProcessRefusal::AppArmor(profile).into());
    }
    if asked(process.selinux_label()).is_some() && !Path::new("/sys/fs/selinux/enforce").exists() {
        return Err(ProcessRefusal::SeLinux.into());
    }
    Ok(())
}

fn has_apparmor() -> bool {
    let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    enabled.is_ok_and(|text| text.starts_with('Y'))
}
