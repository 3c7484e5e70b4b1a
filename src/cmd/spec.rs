//! `spec`

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use oci_spec::runtime::{LinuxDeviceCgroupBuilder, LinuxNamespaceType, LinuxResources, Spec};

use crate::cli::SpecArgs;

/// Writes an example config.json.
pub fn run(args: &SpecArgs) -> Result<ExitCode> {
    let path = args.bundle.join("config.json");
    if path.exists() {
        bail!("File {path:?} exists. Remove it first");
    }
    let mut spec = if args.rootless {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Spec::rootless(uid.as_raw(), gid.as_raw())
    } else {
        Spec::default()
    };
    like_runc(&mut spec);
    if !args.rootless {
        deny_devices(&mut spec)?;
    }
    let text = serde_json::to_string_pretty(&spec)?;
    // A link that leads nowhere does not exist either, and is not followed.
    let written = File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("write {path:?}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the library's example equal to that of `runc spec`.
fn like_runc(spec: &mut Spec) {
    spec.set_hostname(Some("agentbox".to_owned()));
    spec.set_annotations(None);
    if let Some(process) = spec.process_mut() {
        // The example is for a terminal.
        process.set_terminal(Some(true));
        if let Some(mut sets) = process.capabilities().clone() {
            // Inheritable capabilities outlive set-user-ID programs (CVE-2022-24769).
            sets.set_inheritable(None);
            process.set_capabilities(Some(sets));
        }
    }
    let unified = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    if let Some(linux) = spec.linux_mut().as_mut().filter(|_| !unified) {
        // The example's cgroup mount shows the node's cgroup v1 hierarchies.
        let mut namespaces = linux.namespaces().clone().unwrap_or_default();
        namespaces.retain(|n| n.typ() != LinuxNamespaceType::Cgroup);
        linux.set_namespaces(Some(namespaces));
    }
}

/// Denies all devices, for which an unprivileged user has no cgroup.
fn deny_devices(spec: &mut Spec) -> Result<()> {
    let nothing = LinuxDeviceCgroupBuilder::default()
        .allow(false)
        .access("rwm")
        .build()?;
    if let Some(linux) = spec.linux_mut() {
        let mut resources = LinuxResources::default();
        resources.set_devices(Some(vec![nothing]));
        linux.set_resources(Some(resources));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    #[test]
    fn an_example_is_not_written_through_a_link() {
        let scratch = TestDir::new("spec");
        let args = SpecArgs {
            bundle: scratch.0.clone(),
            rootless: false,
        };
        let (path, target) = (scratch.0.join("config.json"), scratch.0.join("target"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        run(&args).unwrap_err();
        assert!(!target.exists());
        std::fs::remove_file(&path).unwrap();
        run(&args).unwrap();
        assert!(path.exists());
    }
}
