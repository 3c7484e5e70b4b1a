//! `features`: the OCI features document (runtime-spec, features.md).

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::out;
use crate::cli::GlobalOptions;
use crate::policy::{Capability, Selection, WrapOptions};
use crate::runtime::input::node_files;

/// The newest specification version that bundles may use.
pub const SPEC_VERSION: &str = "1.2.0";

/// `integration/spec/options.rs` tries each of them.
const MOUNT_OPTIONS: &[&str] = &[
    "acl",
    "async",
    "atime",
    "bind",
    "defaults",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "idmap",
    "iversion",
    "lazytime",
    "loud",
    "mand",
    "noacl",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "noiversion",
    "nolazytime",
    "nomand",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nosymfollow",
    "private",
    "ratime",
    "rbind",
    "rdev",
    "rdiratime",
    "relatime",
    "rexec",
    "ridmap",
    "rnoatime",
    "rnodev",
    "rnodiratime",
    "rnoexec",
    "rnorelatime",
    "rnostrictatime",
    "rnosuid",
    "rnosymfollow",
    "ro",
    "rprivate",
    "rrelatime",
    "rro",
    "rrw",
    "rshared",
    "rslave",
    "rstrictatime",
    "rsuid",
    "rsymfollow",
    "runbindable",
    "rw",
    "shared",
    "silent",
    "slave",
    "strictatime",
    "suid",
    "symfollow",
    "sync",
    "tmpcopyup",
    "unbindable",
];

const ACTIONS: &[&str] = &[
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_LOG",
    "SCMP_ACT_NOTIFY",
    "SCMP_ACT_TRACE",
    "SCMP_ACT_TRAP",
];

const OPERATORS: &[&str] = &[
    "SCMP_CMP_EQ",
    "SCMP_CMP_GE",
    "SCMP_CMP_GT",
    "SCMP_CMP_LE",
    "SCMP_CMP_LT",
    "SCMP_CMP_MASKED_EQ",
    "SCMP_CMP_NE",
];

/// Flags that work without a listener, on any kernel that agentbox supports. WAIT_KILLABLE_RECV is supported too but
/// needs a listener: a program that tries each flag alone must not find it here.
const FLAGS: &[&str] = &[
    "SECCOMP_FILTER_FLAG_TSYNC",
    "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
    "SECCOMP_FILTER_FLAG_LOG",
];

/// Prints the features of this runtime with these options.
pub fn run(global: &GlobalOptions) -> Result<ExitCode> {
    // Under a policy no mount is id-mapped, and a pod with its own user namespace (`hostUsers: false`) is refused.
    // containerd asks here, so that the kubelet refuses the pod before it creates anything. If the settings cannot be
    // read nothing starts.
    let selection = node_files::selection(global, &BTreeMap::new(), WrapOptions::NOTHING);
    let id_mapped = matches!(selection, Ok(Selection::Unconfined { .. }));
    let capabilities: Vec<String> = Capability::all().map(|c| c.to_string()).collect();
    let document = json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": SPEC_VERSION,
        "hooks": ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
        "mountOptions": MOUNT_OPTIONS,
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"],
            "capabilities": capabilities,
            "cgroup": { "v1": true, "v2": true, "systemd": true, "systemdUser": false, "rdma": false },
            "seccomp": {
                "enabled": true,
                "actions": ACTIONS,
                "operators": OPERATORS,
                "knownFlags": FLAGS,
                "supportedFlags": FLAGS,
                "archs": ["SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_X86_64"],
            },
            "apparmor": { "enabled": true },
            "selinux": { "enabled": true },
            "intelRdt": { "enabled": true },
            "mountExtensions": { "idmap": { "enabled": id_mapped } },
        },
        "annotations": {
            "dev.agentbox.version": env!("CARGO_PKG_VERSION"),
        },
        "potentiallyUnsafeConfigAnnotations": ["dev.agentbox."],
    });
    out::line(&serde_json::to_string_pretty(&document)?)?;
    Ok(ExitCode::SUCCESS)
}
