//! config.md: root, mounts, process, hostname, annotations, extensibility, valid values.

use serde_json::json;

use super::trial::Trial;
use super::{ALL, PLAIN, cases};

cases! {
    config_md_oci_version_must_be_one_that_is_known, ALL, |t: &mut Trial| {
        for version in ["", "nonsense", "2.0.0"] {
            t.config["ociVersion"] = json!(version);
            t.create().failed();
            assert!(!t.exists(), "{version:?}");
        }
        t.config["ociVersion"] = json!("1.2.1");
        t.create().ok();
    };

    config_md_root_path_must_exist, ALL, |t: &mut Trial| {
        t.config["root"]["path"] = json!("/no/such/directory");
        t.create().failed();
        assert!(!t.exists());
    };

    config_md_root_path_may_be_relative_to_the_bundle, PLAIN, |t: &mut Trial| {
        t.scratch.dir("bundle/files");
        let script = "set -e; cp -a \"$1/.\" \"$2\"";
        let root = t.config["root"]["path"].as_str().unwrap().to_owned();
        let to = t.scratch.path("bundle/files");
        crate::command::run("bash", &["-c", script, "-", &root, &to]).ok();
        t.config["root"]["path"] = json!("files");
        assert_eq!(t.output_of("echo in it"), "in it\n");
    };

    config_md_mounts_source_may_be_relative_to_the_bundle, ALL, |t: &mut Trial| {
        t.scratch.file("bundle/data/file", "found\n");
        t.config["mounts"].as_array_mut().unwrap().push(
            json!({ "destination": "/mnt", "type": "bind", "source": "data", "options": ["bind", "ro"] }),
        );
        assert_eq!(t.output_of("cat /mnt/file"), "found\n");
    };

    config_md_root_readonly_must_be_obeyed, ALL, |t: &mut Trial| {
        let text = t.output_of("touch /made || echo refused");
        assert!(text.contains("refused") && text.contains("Read-only file system"), "{text}");
    };

    config_md_mounts_must_be_made_in_order, PLAIN, |t: &mut Trial| {
        let mounts = t.config["mounts"].as_array_mut().unwrap();
        for (at, size) in [("/tmp", "64k"), ("/tmp", "128k")] {
            mounts.push(json!({ "destination": at, "type": "tmpfs", "source": "tmpfs", "options": [format!("size={size}")] }));
        }
        let text = t.output_of("grep ' /tmp ' /proc/self/mounts");
        let sizes: Vec<&str> = text.lines().filter_map(|l| l.split("size=").nth(1)?.split([',', ' ']).next()).collect();
        assert_eq!(sizes, ["64k", "128k"], "{text}");
    };

    config_md_mounts_options_must_be_obeyed, PLAIN, |t: &mut Trial| {
        let options = json!(["nosuid", "nodev", "noexec", "ro", "noatime", "size=64k", "mode=0751"]);
        let mount = json!({ "destination": "/tmp", "type": "tmpfs", "source": "named", "options": options });
        t.config["mounts"].as_array_mut().unwrap().push(mount);
        let text = t.output_of("grep ' /tmp ' /proc/self/mounts; stat -c %a /tmp");
        for word in ["named ", "ro", "nosuid", "nodev", "noexec", "noatime", "size=64k", "\n751\n"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    };

    config_md_mounts_must_error_on_an_unknown_option_or_type, PLAIN, |t: &mut Trial| {
        for (kind, option) in [("tmpfs", "nonsense=1"), ("nosuchfs", "ro")] {
            let mount = json!({ "destination": "/tmp", "type": kind, "source": "x", "options": [option] });
            let mounts = t.config["mounts"].as_array_mut().unwrap();
            mounts.truncate(3);
            mounts.push(mount);
            t.create().failed();
            assert!(!t.exists(), "{kind} {option}");
        }
    };

    config_md_mounts_must_error_on_a_source_that_is_missing, ALL, |t: &mut Trial| {
        let mount = json!({ "destination": "/tmp", "type": "bind", "source": "/no/such", "options": ["bind"] });
        t.config["mounts"].as_array_mut().unwrap().push(mount);
        t.create().failed();
        assert!(!t.exists());
    };

    config_md_process_cwd_must_be_the_working_directory, ALL, |t: &mut Trial| {
        assert_eq!(t.output_of("pwd"), "/share\n");
    };

    config_md_process_cwd_must_be_absolute, ALL, |t: &mut Trial| {
        t.config["process"]["cwd"] = json!("share");
        t.create().failed();
        assert!(!t.exists());
    };

    config_md_process_env_must_be_exactly_the_given, ALL, |t: &mut Trial| {
        t.config["process"]["env"] = json!(["PATH=/bin", "A=1", "B=a=b", "HOME=/share", "C="]);
        t.config["process"]["args"] = json!(["/bin/env"]);
        t.run();
        t.await_status("stopped");
        let mut lines: Vec<String> = t.output().lines().map(str::to_owned).collect();
        lines.sort();
        // Under a policy with network none or allowlist, programs get proxy variables.
        lines.retain(|line| !line.to_ascii_lowercase().split('=').next().is_some_and(|name| name.ends_with("_proxy")));
        assert_eq!(lines, ["A=1", "B=a=b", "C=", "HOME=/share", "PATH=/bin"]);
    };

    config_md_process_args_must_be_the_argument_vector, ALL, |t: &mut Trial| {
        t.config["process"]["args"] = json!(["sh", "-c", "printf '%s|' \"$0\" \"$@\"", "a b", "", "$HOME", "é"]);
        t.run();
        t.await_status("stopped");
        assert_eq!(t.output(), "a b||$HOME|é|");
    };

    config_md_process_args_must_have_an_entry, ALL, |t: &mut Trial| {
        for args in [json!([]), json!(null)] {
            t.config["process"]["args"] = args;
            t.create().failed();
            assert!(!t.exists());
        }
    };

    config_md_process_user_must_be_obeyed, ALL, |t: &mut Trial| {
        t.config["process"]["user"] = json!({ "uid": 1234, "gid": 2345, "additionalGids": [7, 42], "umask": 0o27 });
        let text = t.output_of("id -u; id -g; id -G; umask");
        assert_eq!(text, "1234\n2345\n2345 7 42\n0027\n");
    };

    config_md_process_rlimits_must_be_set, ALL, |t: &mut Trial| {
        t.config["process"]["rlimits"] = json!([
            { "type": "RLIMIT_NOFILE", "soft": 100, "hard": 200 },
            { "type": "RLIMIT_FSIZE", "soft": 4096, "hard": 8192 },
        ]);
        let text = t.output_of("grep -E 'open files|Max file size' /proc/self/limits");
        let numbers: Vec<&str> = text.split_whitespace().filter(|w| w.parse::<u64>().is_ok()).collect();
        assert!(numbers == ["4096", "8192", "100", "200"], "{text}");
    };

    config_md_process_rlimits_must_error_on_an_unknown_one, ALL, |t: &mut Trial| {
        t.config["process"]["rlimits"] = json!([{ "type": "RLIMIT_NONSENSE", "soft": 1, "hard": 1 }]);
        t.create().failed();
        assert!(!t.exists());
    };

    config_md_process_rlimits_must_error_on_duplicates, ALL, |t: &mut Trial| {
        let limit = json!({ "type": "RLIMIT_NOFILE", "soft": 100, "hard": 200 });
        t.config["process"]["rlimits"] = json!([limit, limit]);
        t.create().failed();
        assert!(!t.exists());
    };

    config_md_process_rlimits_must_error_when_soft_exceeds_hard, ALL, |t: &mut Trial| {
        t.config["process"]["rlimits"] = json!([{ "type": "RLIMIT_NOFILE", "soft": 200, "hard": 100 }]);
        let failed = t.create().code != 0 || t.start().code != 0;
        assert!(failed);
    };

    config_md_process_capabilities_must_be_exactly_the_given, PLAIN, |t: &mut Trial| {
        let sets = json!(["CAP_CHOWN", "CAP_NET_RAW"]);
        t.config["process"]["capabilities"] = json!({
            "bounding": sets, "effective": sets, "permitted": sets, "inheritable": sets, "ambient": ["CAP_NET_RAW"],
        });
        let text = t.output_of("grep ^Cap /proc/self/status | cut -f2");
        let wanted = ["2001", "2001", "2001", "2001", "2000"];
        let seen: Vec<&str> = text.lines().map(|l| l.trim_start_matches('0')).collect();
        assert_eq!(seen, wanted);
    };

    config_md_process_capabilities_left_out_must_be_none, PLAIN, |t: &mut Trial| {
        t.config["process"].as_object_mut().unwrap().remove("capabilities");
        let text = t.output_of("grep -E '^Cap(Eff|Prm)' /proc/self/status | cut -f2");
        assert_eq!(text, "0000000000000000\n0000000000000000\n");
    };

    config_md_process_capabilities_must_warn_of_an_unknown_one, ALL, |t: &mut Trial| {
        t.config["process"]["capabilities"] = json!({ "bounding": ["CAP_NONSENSE"], "effective": ["NONSENSE"] });
        let created = t.create();
        assert!(created.stderr.contains("warning") && created.stderr.contains("CAP_NONSENSE"), "{created}");
        assert_eq!(created.code, 0, "{created}");
    };

    config_md_process_no_new_privileges_must_be_obeyed, PLAIN, |t: &mut Trial| {
        for (asked, seen) in [(true, "1"), (false, "0")] {
            t.config["process"]["noNewPrivileges"] = json!(asked);
            let text = t.output_of("grep NoNewPrivs /proc/self/status | cut -f2");
            assert_eq!(text.trim(), seen);
            t.delete().ok();
        }
    };

    config_md_process_oom_score_adj_must_be_set, ALL, |t: &mut Trial| {
        t.config["process"]["oomScoreAdj"] = json!(321);
        assert_eq!(t.output_of("cat /proc/self/oom_score_adj"), "321\n");
    };

    config_md_process_io_priority_and_scheduler_must_be_set, PLAIN, |t: &mut Trial| {
        t.config["process"]["scheduler"] = json!({ "policy": "SCHED_BATCH", "nice": 5 });
        // proc_pid_stat(5): field 19 is nice, field 41 the policy, 3 is SCHED_BATCH.
        let text = t.output_of("cat /proc/self/stat | cut -d' ' -f19,41");
        assert_eq!(text, "5 3\n");
    };

    config_md_hostname_must_be_set, ALL, |t: &mut Trial| {
        assert_eq!(t.output_of("hostname"), "spec\n");
    };

    config_md_domainname_must_be_set, ALL, |t: &mut Trial| {
        t.config["domainname"] = json!("spec.example");
        assert_eq!(t.output_of("cat /proc/sys/kernel/domainname"), "spec.example\n");
    };

    config_md_annotations_must_not_error_when_unknown, ALL, |t: &mut Trial| {
        t.config["annotations"] = json!({ "com.example.unknown": "", "b": "ünicode\n" });
        t.create().ok();
        assert_eq!(t.state()["annotations"], t.config["annotations"]);
    };

    config_md_extensibility_must_not_error_on_unknown_properties, ALL, |t: &mut Trial| {
        t.config["unknown"] = json!({ "anything": [1, 2] });
        t.config["process"]["unknown"] = json!(true);
        t.config["linux"]["unknown"] = json!("x");
        t.create().ok();
    };

    config_md_valid_values_must_error_on_wrong_types, ALL, |t: &mut Trial| {
        for (field, value) in [
            ("/process/user/uid", json!("root")),
            ("/process/args", json!("sh")),
            ("/mounts", json!({})),
            ("/linux/namespaces", json!("all")),
            ("/root", json!("/")),
        ] {
            let good = t.config.pointer(field).unwrap().clone();
            *t.config.pointer_mut(field).unwrap() = value;
            t.create().failed();
            assert!(!t.exists(), "{field}");
            *t.config.pointer_mut(field).unwrap() = good;
        }
        t.create().ok();
    };
}
