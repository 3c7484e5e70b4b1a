//! config-linux.md: namespaces, user mappings, devices, cgroups, sysctl, seccomp, paths, propagation.

use std::fs;

use serde_json::json;

use super::trial::Trial;
use super::{ALL, PLAIN, cases};

/// The link `/proc/self/ns/KIND` of the container, and of this process.
fn namespace(t: &Trial, kind: &str) -> (String, String) {
    let pid = t.state()["pid"].as_u64().unwrap();
    let read = |path: String| fs::read_link(path).unwrap().display().to_string();
    (
        read(format!("/proc/{pid}/ns/{kind}")),
        read(format!("/proc/self/ns/{kind}")),
    )
}

cases! {
    config_linux_md_file_systems_must_be_as_programs_expect, ALL, |t: &mut Trial| {
        let script = "for d in null zero full random urandom tty; do [ -c /dev/$d ] || echo no $d; done; \
            for l in fd stdin stdout stderr ptmx; do [ -L /dev/$l ] || echo no link $l; done; \
            readlink /dev/fd; readlink /dev/stdin; readlink /dev/stdout; readlink /dev/stderr";
        let text = t.output_of(script);
        assert_eq!(text, "/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\n");
    };

    config_linux_md_namespaces_must_be_new, ALL, |t: &mut Trial| {
        t.run();
        for kind in ["pid", "ipc", "uts", "mnt", "net"] {
            let (seen, own) = namespace(t, kind);
            assert_ne!(seen, own, "{kind}");
        }
    };

    config_linux_md_namespaces_left_out_must_be_the_runtimes, PLAIN, |t: &mut Trial| {
        t.config["linux"]["namespaces"] = json!([{ "type": "mount" }, { "type": "pid" }]);
        t.config.as_object_mut().unwrap().remove("hostname");
        t.run();
        for kind in ["ipc", "uts", "net", "user"] {
            let (seen, own) = namespace(t, kind);
            assert_eq!(seen, own, "{kind}");
        }
    };

    config_linux_md_namespaces_path_must_be_joined, PLAIN, |t: &mut Trial| {
        let host = Trial::new(t.runtime);
        host.run();
        let pid = host.state()["pid"].as_u64().unwrap();
        for (index, file) in [(1, "ipc"), (2, "uts"), (4, "net")] {
            t.config["linux"]["namespaces"][index]["path"] = json!(format!("/proc/{pid}/ns/{file}"));
        }
        t.config.as_object_mut().unwrap().remove("hostname");
        t.run();
        for kind in ["ipc", "uts", "net"] {
            assert_eq!(namespace(t, kind).0, namespace(&host, kind).0, "{kind}");
        }
        assert_ne!(namespace(t, "pid").0, namespace(&host, "pid").0);
    };

    config_linux_md_namespaces_path_must_be_of_the_type, PLAIN, |t: &mut Trial| {
        t.config["linux"]["namespaces"][1]["path"] = json!("/proc/self/ns/net");
        t.create().failed();
        assert!(!t.exists());
    };

    config_linux_md_namespaces_path_must_be_absolute, PLAIN, |t: &mut Trial| {
        t.config["linux"]["namespaces"][1]["path"] = json!("proc/self/ns/ipc");
        t.create().failed();
        assert!(!t.exists());
    };

    config_linux_md_namespaces_must_not_be_listed_twice, ALL, |t: &mut Trial| {
        t.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "pid" }));
        t.create().failed();
        assert!(!t.exists());
    };

    config_linux_md_user_namespace_must_have_the_mappings, PLAIN, |t: &mut Trial| {
        t.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        t.config["linux"]["uidMappings"] = json!([{ "containerID": 0, "hostID": 100_000, "size": 1000 }]);
        t.config["linux"]["gidMappings"] = json!([{ "containerID": 0, "hostID": 200_000, "size": 500 }]);
        let text = t.output_of("cat /proc/self/uid_map /proc/self/gid_map; id -u");
        let numbers: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(numbers, ["0", "100000", "1000", "0", "200000", "500", "0"]);
    };

    config_linux_md_devices_must_be_made, PLAIN, |t: &mut Trial| {
        let device = json!({ "path": "/dev/spec", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 7, "gid": 8 });
        t.config["linux"]["devices"] = json!([device]);
        let text = t.output_of("stat -c '%F %a %u %g %t %T' /dev/spec");
        assert_eq!(text, "character special file 640 7 8 1 5\n");
    };

    config_linux_md_devices_fifo_must_be_made, PLAIN, |t: &mut Trial| {
        t.config["linux"]["devices"] = json!([{ "path": "/dev/pipe", "type": "p", "fileMode": 0o600 }]);
        assert_eq!(t.output_of("stat -c '%F %a' /dev/pipe"), "fifo 600\n");
    };

    config_linux_md_cgroups_path_must_hold_the_processes, ALL, |t: &mut Trial| {
        t.config["linux"]["cgroupsPath"] = json!(format!("/spec/{}", t.id));
        t.create().ok();
        let pid = t.state()["pid"].as_u64().unwrap();
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let inside = text.lines().filter(|l| l.ends_with(&format!("/spec/{}", t.id))).count();
        assert!(inside > 0, "{text}");
    };

    config_linux_md_resources_must_be_set, ALL, |t: &mut Trial| {
        t.config["linux"]["cgroupsPath"] = json!(format!("/spec/{}", t.id));
        t.config["linux"]["resources"] = json!({
            "memory": { "limit": 64 << 20 }, "pids": { "limit": 33 }, "cpu": { "shares": 513, "quota": 20_000, "period": 50_000 },
        });
        t.create().ok();
        // Each controller that this machine has: v1 by name, or the one hierarchy of v2.
        for (v1, v2, value) in [
            ("memory/PATH/memory.limit_in_bytes", "PATH/memory.max", "67108864"),
            ("pids/PATH/pids.max", "PATH/pids.max", "33"),
            ("cpu/PATH/cpu.cfs_quota_us", "PATH/cpu.max", "20000"),
        ] {
            let read = |path: &str| {
                let path = path.replace("PATH", &format!("spec/{}", t.id));
                fs::read_to_string(format!("/sys/fs/cgroup/{path}"))
            };
            let text = read(v1).or_else(|_| read(v2)).unwrap();
            assert_eq!(text.split_whitespace().next(), Some(value), "{v1}");
        }
    };

    config_linux_md_sysctl_must_be_set, PLAIN, |t: &mut Trial| {
        t.config["linux"]["sysctl"] = json!({ "net.ipv4.ip_unprivileged_port_start": "99", "kernel.shmmni": "555" });
        let text = t.output_of("cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shmmni");
        assert_eq!(text, "99\n555\n");
    };

    config_linux_md_sysctl_must_error_on_an_unknown_one, PLAIN, |t: &mut Trial| {
        t.config["linux"]["sysctl"] = json!({ "net.ipv4.nonsense": "1" });
        t.create().failed();
        assert!(!t.exists());
    };

    config_linux_md_seccomp_must_be_obeyed, ALL, |t: &mut Trial| {
        t.config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 99 }],
        });
        let text = t.output_of("mkdir /share/made; grep Seccomp: /proc/self/status");
        // EADDRNOTAVAIL, in glibc's words or musl's.
        assert!(text.contains("Seccomp:\t2") && text.to_lowercase().contains("address"), "{text}");
        assert!(fs::metadata(t.share("made")).is_err());
    };

    config_linux_md_seccomp_must_error_on_an_unknown_action, ALL, |t: &mut Trial| {
        t.config["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_NONSENSE" });
        t.create().failed();
        assert!(!t.exists());
    };

    config_linux_md_masked_and_readonly_paths_must_be_obeyed, ALL, |t: &mut Trial| {
        t.config["linux"]["maskedPaths"] = json!(["/proc/version", "/proc/acpi", "/no/such/path"]);
        t.config["linux"]["readonlyPaths"] = json!(["/proc/sys", "/no/such/path"]);
        let text = t.output_of("head -c1 /proc/version | wc -c; echo x >/proc/sys/kernel/domainname || echo refused");
        assert!(text.starts_with("0\n") && text.contains("refused\n"), "{text}");
    };

    config_linux_md_rootfs_propagation_must_be_set, PLAIN, |t: &mut Trial| {
        for (asked, seen) in [("shared", "shared:"), ("slave", ""), ("private", "")] {
            t.config["linux"]["rootfsPropagation"] = json!(asked);
            let text = t.output_of("grep ' / / \\| / ro\\| / rw' /proc/self/mountinfo | head -1");
            assert!(text.contains(seen), "{asked}: {text}");
            t.delete().ok();
        }
    };

    config_linux_md_rootfs_propagation_must_error_on_an_unknown_one, PLAIN, |t: &mut Trial| {
        t.config["linux"]["rootfsPropagation"] = json!("nonsense");
        t.create().failed();
        assert!(!t.exists());
    };

    config_linux_md_personality_must_be_set, PLAIN, |t: &mut Trial| {
        t.config["linux"]["personality"] = json!({ "domain": "LINUX32" });
        let text = t.output_of("uname -m");
        assert_eq!(text, "i686\n");
    };
}
