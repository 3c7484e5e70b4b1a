//! PURE. Settings that reach out of the container, refused under every policy and under `unconfined`: runc refuses them
//! too, but libcontainer 0.7.0 would apply them.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Linux, LinuxNamespaceType as Type, LinuxResources, Mount, Spec};

/// A setting of config.json or of `update` that reaches out of the container.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// A setting of the whole node, or of a namespace that the container shares with it.
    #[error("sysctl {key:?} {why}")]
    Sysctl {
        /// As the bundle names it.
        key: String,
        /// What it would change, in words after the key.
        why: &'static str,
    },
    /// A mount that would replace files of procfs, which the runtime and every program trust (CVE-2019-16884).
    #[error("the mount at {0:?} cannot be made: it is inside /proc, or is not of type proc")]
    Proc(PathBuf),
    /// A name that becomes part of a path below a kernel file system.
    #[error("{field} {name:?} must be a file name: no slash, not `.` or `..`, not empty")]
    FileName {
        /// The field of config.json.
        field: &'static str,
        /// Its value.
        name: String,
    },
}

/// The network namespace to which the spec's `net.*` settings apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetSettings {
    /// The container's own, or the inner namespace of a policy.
    Own,
    /// The runtime's own.
    Host,
}

/// Refuses a spec with a setting that reaches out of the container.
pub fn check(spec: &Spec, net: NetSettings) -> Result<(), ReachError> {
    let Some(linux) = spec.linux() else {
        return Ok(());
    };
    let keys = linux.sysctl().iter().flatten().map(|(key, _)| key);
    for key in keys {
        if let Some(why) = refused_sysctl(&dotted(key), linux, net) {
            let key = key.clone();
            return Err(ReachError::Sysctl { key, why });
        }
    }
    let class = linux.intel_rdt().as_ref().and_then(|r| r.clos_id().clone());
    if let Some(class) = class {
        file_name("linux.intelRdt.closID", &class)?;
    }
    match linux.resources() {
        Some(resources) => check_resources(resources),
        None => Ok(()),
    }
}

/// Refuses limits whose names lead out of the container's cgroup: libcgroups joins them to its path, and joining an
/// absolute path replaces it.
pub fn check_resources(resources: &LinuxResources) -> Result<(), ReachError> {
    for (name, _) in resources.unified().iter().flatten() {
        file_name("linux.resources.unified", name)?;
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        file_name("linux.resources.hugepageLimits.pageSize", limit.page_size())?;
    }
    Ok(())
}

/// Refuses a mount at or below /proc, unless it is procfs or a file that lxcfs provides (runc's list). `place` is the
/// destination after the image's own links.
pub fn check_mount(mount: &Mount, place: &Path) -> Result<(), ReachError> {
    const FILES: &[&str] = &[
        "cpuinfo",
        "diskstats",
        "loadavg",
        "meminfo",
        "slabinfo",
        "stat",
        "swaps",
        "uptime",
        "sys/kernel/ns_last_pid",
        "sys/crypto/fips_enabled",
    ];
    let Ok(below) = place.strip_prefix("/proc") else {
        return Ok(());
    };
    let procfs = mount.typ().as_deref() == Some("proc")
        // All of the node's /proc, as `-v /proc:/proc`.
        || mount.source().as_deref() == Some(Path::new("/proc"));
    // An empty directory over a file there only hides; runc allows it.
    let empty = mount.typ().as_deref() == Some("tmpfs");
    let allowed = match below.as_os_str().is_empty() {
        true => procfs,
        false => empty || FILES.iter().any(|file| below == Path::new(file)),
    };
    match allowed {
        true => Ok(()),
        false => Err(ReachError::Proc(place.to_owned())),
    }
}

fn file_name(field: &'static str, name: &str) -> Result<(), ReachError> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        let name = name.to_owned();
        return Err(ReachError::FileName { field, name });
    }
    Ok(())
}

/// `net/ipv4/conf/eth0.100/x` as `net.ipv4.conf.eth0/100.x`: the first separator decides (sysctl.d(5)).
fn dotted(key: &str) -> String {
    if key
        .find(['.', '/'])
        .is_none_or(|at| key[at..].starts_with('.'))
    {
        return key.to_owned();
    }
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    key.chars().map(swap).collect()
}

/// Why a setting is refused; `None` if it is not. The list and its words are runc's (libcontainer/configs/validate).
fn refused_sysctl(key: &str, linux: &Linux, net: NetSettings) -> Option<&'static str> {
    const IPC: &[&str] = &[
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
    ];
    let has = |typ| linux.namespaces().iter().flatten().any(|n| n.typ() == typ);
    let in_host = "is not allowed in the host's namespace";
    if IPC.contains(&key) || key.starts_with("fs.mqueue.") {
        return (!has(Type::Ipc)).then_some(in_host);
    }
    if key.starts_with("net.") {
        return (net == NetSettings::Host).then_some(in_host);
    }
    match key {
        "kernel.domainname" if has(Type::Uts) => None,
        "kernel.hostname" if has(Type::Uts) => {
            Some("is not allowed: it conflicts with the field hostname")
        }
        _ => Some("is not in a separate kernel namespace: it would change the whole node"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(namespaces: &[&str], key: &str, value: Value) -> Spec {
        let namespaces: Vec<Value> = namespaces.iter().map(|t| json!({ "type": t })).collect();
        let mut spec = json!({"ociVersion": "1.2.0", "linux": {"namespaces": namespaces}});
        spec["linux"][key] = value;
        serde_json::from_value(spec).unwrap()
    }

    fn sysctl(namespaces: &[&str], key: &str, net: NetSettings) -> Result<(), ReachError> {
        check(&spec(namespaces, "sysctl", json!({ key: "1" })), net)
    }

    #[test]
    fn a_setting_of_the_containers_own_namespace_is_allowed() {
        for key in [
            "kernel.msgmax",
            "kernel/shmmax",
            "kernel.shm_rmid_forced",
            "fs.mqueue.msg_max",
            "net.core.somaxconn",
            "net/ipv4/conf/eth0.100/rp_filter",
            "net.ipv4.conf.eth0/100.rp_filter",
            "kernel.domainname",
        ] {
            let seen = sysctl(&["ipc", "uts", "network"], key, NetSettings::Own);
            assert_eq!(seen, Ok(()), "{key}");
        }
    }

    #[test]
    fn a_setting_of_the_node_is_refused_by_name() {
        for key in [
            "kernel.core_pattern",
            "kernel/core_pattern",
            "kernel.modprobe",
            "vm.overcommit_memory",
            "fs.protected_symlinks",
            "kernel.msgmax.x",
            "kernel.msgmax/../core_pattern",
            "user.max_user_namespaces",
            "kernel.hostname",
            "netfilter.x",
            "",
            "/",
            "..",
        ] {
            let seen = sysctl(&["ipc", "uts", "network"], key, NetSettings::Own);
            let message = seen.unwrap_err().to_string();
            assert!(message.contains(&format!("{key:?}")), "{message}");
        }
    }

    #[test]
    fn a_setting_of_a_shared_namespace_is_refused() {
        for key in ["kernel.msgmax", "fs.mqueue.msg_max", "kernel.domainname"] {
            assert!(
                sysctl(&["network"], key, NetSettings::Own).is_err(),
                "{key}"
            );
        }
        assert!(sysctl(&["ipc", "uts"], "net.core.somaxconn", NetSettings::Host).is_err());
    }

    #[test]
    fn only_procfs_and_a_few_files_are_mounted_at_proc() {
        let at = |place: &str, typ: &str, source: &str| {
            let mount = json!({"destination": place, "type": typ, "source": source});
            check_mount(&serde_json::from_value(mount).unwrap(), Path::new(place))
        };
        for place in [
            "/proc",
            "/proc/self/attr",
            "/proc/sys",
            "/proc/1",
            "/proc/sysrq-trigger",
        ] {
            assert!(at(place, "bind", "/srv").is_err(), "{place}");
        }
        assert!(at("/proc/sys", "proc", "proc").is_err());
        assert!(at("/proc", "tmpfs", "tmpfs").is_err());
        assert_eq!(at("/proc/acpi", "tmpfs", "tmpfs"), Ok(()));
        for (place, typ, source) in [
            ("/proc", "proc", "proc"),
            ("/proc", "bind", "/proc"),
            ("/proc/meminfo", "bind", "/var/lib/lxcfs/proc/meminfo"),
            ("/process", "bind", "/srv"),
        ] {
            assert_eq!(at(place, typ, source), Ok(()), "{place}");
        }
    }

    #[test]
    fn a_name_that_leads_out_of_the_cgroup_is_refused() {
        for name in [
            "/proc/sys/kernel/core_pattern",
            "../memory.max",
            "a/b",
            "..",
            "",
        ] {
            let unified = spec(&[], "resources", json!({"unified": {name: "1"}}));
            let huge = json!({"hugepageLimits": [{"pageSize": name, "limit": 1}]});
            let class = spec(&[], "intelRdt", json!({ "closID": name }));
            for spec in [unified, spec(&[], "resources", huge), class] {
                let error = check(&spec, NetSettings::Own).unwrap_err();
                assert!(matches!(error, ReachError::FileName { .. }), "{error}");
            }
        }
        let plain = json!({"unified": {"memory.high": "1"}, "hugepageLimits": [{"pageSize": "2MB", "limit": 1}]});
        let plain = spec(&[], "resources", plain);
        assert_eq!(check(&plain, NetSettings::Own), Ok(()));
    }
}
