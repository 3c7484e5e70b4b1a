//! Volumes of a pod in a kubelet's layout, whole and by subPath.

mod again;
mod own_secret;
mod workspace;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{Cgroup, chosen};
use crate::command::{Finished, run};
use crate::direct::Node;

/// `{"alg":"RS256"}.{"sub":"system:serviceaccount:default:app"}.signature`
const TOKEN: &str =
    "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6ZGVmYXVsdDphcHAifQ.c2lnbmF0dXJl";

/// A pod: its kubelet directory, its cgroup, its mounts.
struct Pod {
    uid: String,
    dir: String,
    cgroup: Cgroup,
    mounted: Vec<String>,
}

impl Pod {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let uid = format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id());
        let dir = format!("/var/lib/kubelet/pods/{uid}");
        fs::create_dir_all(&dir).unwrap();
        Self {
            cgroup: Cgroup::new(&format!("kubepods-{number}")),
            uid,
            dir,
            mounted: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// A volume of a plugin, on disk or in memory.
    fn volume(&mut self, plugin: &str, name: &str, memory: bool) -> String {
        let path = self.path(&format!("volumes/kubernetes.io~{plugin}/{name}"));
        fs::create_dir_all(&path).unwrap();
        if memory {
            self.mount(&["-t", "tmpfs", "tmpfs"], &path);
        }
        path
    }

    /// A volume that the kubelet fills: `KEY -> ..data/KEY`, `..data -> ..2026`.
    fn filled(&mut self, plugin: &str, name: &str, files: &[(&str, &str)]) -> String {
        let path = self.volume(plugin, name, plugin != "configmap");
        fs::create_dir(format!("{path}/..2026")).unwrap();
        std::os::unix::fs::symlink("..2026", format!("{path}/..data")).unwrap();
        for (key, content) in files {
            fs::write(format!("{path}/..2026/{key}"), content).unwrap();
            let link = format!("{path}/{key}");
            std::os::unix::fs::symlink(format!("..data/{key}"), link).unwrap();
        }
        path
    }

    /// A subPath of a volume: a bind mount of the resolved path.
    fn sub_path(&mut self, volume: &str, within: &str, number: usize) -> String {
        let source = fs::canonicalize(format!("{volume}/{within}")).unwrap();
        let name = Path::new(volume).file_name().unwrap().to_str().unwrap();
        let place = self.path(&format!("volume-subpaths/{name}/app/{number}"));
        match source.is_dir() {
            true => fs::create_dir_all(&place).unwrap(),
            false => {
                fs::create_dir_all(Path::new(&place).parent().unwrap()).unwrap();
                fs::write(&place, "").unwrap();
            }
        }
        self.mount(&["--bind", source.to_str().unwrap()], &place);
        place
    }

    fn mount(&mut self, arguments: &[&str], place: &str) {
        run("mount", &[arguments, &[place]].concat()).ok();
        self.mounted.push(place.to_owned());
    }

    /// A container of the pod that runs a script with these mounts: destination, source.
    fn run(&self, node: &Node, setting: &Setting<'_>, mounts: &[(&str, &str)]) -> Finished {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = format!("volumes-{}-{number}", std::process::id());
        let mut config = node.config(&["sh", "-c", setting.script]);
        let cgroup = format!("/{}/pod{}/{id}", self.cgroup.0, self.uid);
        config["linux"]["cgroupsPath"] = json!(cgroup);
        config["process"]["cwd"] = json!(setting.cwd);
        config["annotations"] = json!({"io.kubernetes.cri.container-type": "container"});
        for (key, value) in setting.annotations {
            config["annotations"][format!("dev.agentbox.{key}")] = json!(value);
        }
        let all = config["mounts"].as_array_mut().unwrap();
        all.extend(mounts.iter().map(|(place, source)| bind(place, source)));
        if let Some(name) = setting.network {
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.retain(|n| n["type"] != "network");
            namespaces.push(json!({"type": "network", "path": format!("/run/netns/{name}")}));
        }
        let (options, bundle) = chosen(node, &id, setting.policy, &config);
        let options = [setting.options, &options[..]].concat();
        let seen = node.call(&[&options[..], &["run", "--bundle", &bundle, &id]].concat());
        node.call(&["delete", "--force", &id]).ok();
        seen
    }

    /// What `explain` prints for a container of the pod with these mounts.
    fn explain(&self, node: &Node, mounts: &[(&str, &str)]) -> String {
        let id = format!("explained-{}", self.uid);
        let mut config = node.config(&["true"]);
        config["linux"]["cgroupsPath"] = json!(format!("/{}/pod{}/{id}", self.cgroup.0, self.uid));
        config["annotations"] = json!({"io.kubernetes.cri.container-type": "container"});
        let all = config["mounts"].as_array_mut().unwrap();
        all.extend(mounts.iter().map(|(place, source)| bind(place, source)));
        let (options, bundle) = chosen(node, &id, "standard", &config);
        let explain = ["explain", "--bundle", &bundle];
        node.call(&[&options[..], &explain].concat()).ok()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for place in self.mounted.iter().rev() {
            run("umount", &[place]).ok();
        }
        fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// The settings for a container of a pod.
#[derive(Clone, Copy)]
struct Setting<'a> {
    policy: &'a str,
    annotations: &'a [(&'a str, &'a str)],
    options: &'a [&'a str],
    script: &'a str,
    /// Its working directory.
    cwd: &'a str,
    /// The name of the pod's network namespace, which is otherwise a new one.
    network: Option<&'a str>,
}

impl<'a> Setting<'a> {
    fn of(policy: &'a str, script: &'a str) -> Self {
        Self {
            policy,
            annotations: &[],
            options: &[],
            script,
            cwd: "/",
            network: None,
        }
    }
}

fn bind(destination: &str, source: &str) -> Value {
    let options = json!(["rbind", "rprivate", "rw"]);
    json!({"destination": destination, "type": "bind", "source": source, "options": options})
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn an_init_container_fills_an_empty_dir_and_the_app_works_in_it() {
    let node = Node::of_cri();
    for (policy, runs) in [("strict", false), ("standard", true), ("permissive", true)] {
        let mut pod = Pod::new();
        let disk = pod.volume("empty-dir", "disk", false);
        let memory = pod.volume("empty-dir", "memory", true);
        fs::create_dir(format!("{disk}/sub")).unwrap();
        fs::create_dir(format!("{memory}/sub")).unwrap();
        let [disk_sub, memory_sub] = [&disk, &memory].map(|volume| pod.sub_path(volume, "sub", 0));
        let mounts = [
            ("/e0", disk.as_str()),
            ("/e1", &memory),
            ("/e2", &disk_sub),
            ("/e3", &memory_sub),
        ];
        let fill = "for e in /e0 /e1 /e2 /e3; do
            printf '#!/bin/sh\\necho ran\\n' >$e/tool && chmod 755 $e/tool && echo filled; done";
        let filled = pod.run(&node, &Setting::of(policy, fill), &mounts).ok();
        assert_eq!(filled, "filled\n".repeat(4), "{policy}");
        let work = "for e in /e0 /e1 /e2 /e3; do
            test -s $e/tool && echo more >>$e/log && echo worked; $e/tool 2>/dev/null; done; true";
        let worked = pod.run(&node, &Setting::of(policy, work), &mounts).ok();
        assert_eq!(worked.matches("worked").count(), 4, "{policy}: {worked}");
        let expect = if runs { 4 } else { 0 };
        assert_eq!(worked.matches("ran").count(), expect, "{policy}: {worked}");
        // Another pod's volume is an ordinary mount.
        let other = Pod::new();
        let refused = other.run(&node, &Setting::of(policy, fill), &mounts[..1]);
        assert_eq!(refused.stdout.contains("filled"), policy == "permissive");
    }
}

/// A container's output for each place: `PLACE TEXT` if the file is readable, else `PLACE -`, with `written` if a file
/// can be created next to it.
const LOOK: &str = "for p in /v-*; do
    f=$p; [ ! -d $p ] || f=$p/key; [ ! -e $p/token ] || f=$p/token
    n=$p; [ ! -d $p ] || n=$p/new
    t=$(cat $f 2>/dev/null); w=; echo x 2>/dev/null >>$n && w=written
    echo ${p#/} ${t:--} $w; done";

#[test]
#[ignore = "needs the rig: hack/test"]
fn each_kind_of_volume_follows_its_field_whole_and_by_sub_path() {
    let node = Node::of_cri();
    let mut pod = Pod::new();
    let config = pod.filled("configmap", "config", &[("key", "setting")]);
    let downward = pod.filled("downward-api", "labels", &[("key", "label")]);
    let secret = pod.filled(
        "secret",
        "secret",
        &[("key", "s3cr3t"), (".npmrc", "s3cr3t")],
    );
    let mixed = pod.filled("projected", "mixed", &[("key", "s3cr3t")]);
    let token = pod.filled(
        "projected",
        "kube-api-access-x",
        &[
            ("token", TOKEN),
            ("namespace", "default"),
            ("ca.crt", "-----BEGIN CERTIFICATE-----"),
        ],
    );
    let subs = [
        pod.sub_path(&config, "key", 0),
        pod.sub_path(&secret, "key", 0),
        pod.sub_path(&secret, ".npmrc", 1),
        pod.sub_path(&mixed, "..data", 0),
        pod.sub_path(&token, "token", 0),
        pod.sub_path(&token, "..data", 1),
    ];
    let mounts = [
        ("/v-config", config.as_str()),
        ("/v-config-sub", &subs[0]),
        ("/v-downward", &downward),
        ("/v-secret", &secret),
        ("/v-secret-sub", &subs[1]),
        ("/v-secret-npmrc", &subs[2]),
        ("/v-mixed", &mixed),
        ("/v-mixed-sub", &subs[3]),
        ("/v-token", &token),
        ("/v-token-sub", &subs[4]),
        ("/v-token-data", &subs[5]),
    ];
    let policies = node.scratch.dir("policies");
    let text = "base = \"standard\"\nfilesystem.service-account-token = \"read-only\"\n";
    node.scratch.file("policies/tokens.toml", text);
    let file = format!("policy-dir = \"{policies}\"\nceiling = \"tokens\"\ndefault = \"tokens\"\n");
    let file = node.scratch.file("config.toml", &file);
    let with_tokens = ["--config", &file];
    let read = [("filesystem.secrets", "read-only")];
    for (policy, annotations, options, expect) in [
        ("strict", &[][..], &[][..], [false, false, false]),
        ("standard", &[], &[], [true, false, false]),
        ("standard", &read, &[], [true, true, false]),
        ("permissive", &[], &[], [true, true, false]),
        ("tokens", &[], &with_tokens, [true, false, true]),
    ] {
        let setting = Setting {
            annotations,
            options,
            ..Setting::of(policy, LOOK)
        };
        let seen = pod.run(&node, &setting, &mounts).ok();
        assert!(!seen.contains("written"), "{policy}: {seen}");
        for (place, _) in mounts {
            let place = &place[1..];
            let (text, given) = match place {
                "v-config" | "v-config-sub" => ("setting", expect[0]),
                "v-downward" => ("label", expect[0]),
                "v-token" | "v-token-sub" | "v-token-data" => (TOKEN, expect[2]),
                _ => ("s3cr3t", expect[1]),
            };
            let line = format!("{place} {text} \n");
            let line = line.trim_end();
            let there = seen.lines().any(|l| l.trim_end() == line);
            assert_eq!(there, given, "{policy} {annotations:?} {place}: {seen}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn explain_says_why_a_volume_is_omitted_and_which_field_mounts_it() {
    let node = Node::of_cri();
    let mut pod = Pod::new();
    let secret = pod.filled("secret", "secret", &[("key", "s3cr3t")]);
    let token = pod.filled("projected", "kube-api-access-x", &[("token", TOKEN)]);
    let mounts = [("/v-secret", secret.as_str()), ("/v-token", &token)];
    let mut config = node.config(&["sleep", "60"]);
    let id = format!("explained-{}", std::process::id());
    let cgroup = format!("/{}/pod{}/{id}", pod.cgroup.0, pod.uid);
    config["linux"]["cgroupsPath"] = json!(cgroup);
    config["annotations"] = json!({"io.kubernetes.cri.container-type": "container"});
    let all = config["mounts"].as_array_mut().unwrap();
    all.extend(mounts.iter().map(|(place, source)| bind(place, source)));
    let bundle = node.bundle(&id, &config);
    node.call(&["create", "--bundle", &bundle, &id]).ok();
    let explained = node.call(&["explain", &id]).ok();
    node.call(&["delete", "--force", &id]).ok();
    let of = |place: &str| {
        let mut lines = explained.lines();
        let line = lines.find(|line| line.contains(place));
        line.unwrap_or_else(|| panic!("{place}: {explained}"))
            .to_owned()
    };
    assert!(
        of("/v-secret").contains("filesystem.secrets"),
        "{explained}"
    );
    let why = of("/v-token");
    assert!(why.contains("filesystem.service-account-token"), "{why}");
}

/// Files again, 3: an optional Secret that a kubelet fills later may contain a token.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_secret_that_does_not_exist_yet_stays_out() {
    let node = Node::of_cri();
    let mut pod = Pod::new();
    let later = pod.filled("secret", "later", &[]);
    let there = pod.filled("secret", "there", &[("key", "s3cr3t")]);
    let mounts = [("/later", later.as_str()), ("/there", &there)];
    let script = "cat /there/key; test -e /later && echo mounted || echo absent";
    for (policy, annotations) in [
        ("standard", &[("filesystem.secrets", "read-only")][..]),
        ("permissive", &[]),
    ] {
        let setting = Setting {
            annotations,
            ..Setting::of(policy, script)
        };
        let seen = pod.run(&node, &setting, &mounts).ok();
        assert_eq!(seen, "s3cr3tabsent\n", "{policy}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_termination_message_arrives() {
    let node = Node::of_cri();
    let pod = Pod::new();
    for (number, place) in ["/dev/termination-log", "/tmp/why"].iter().enumerate() {
        for policy in ["strict", "standard", "permissive"] {
            let log = pod.path(&format!("containers/app/abfecb2{number}"));
            fs::create_dir_all(Path::new(&log).parent().unwrap()).unwrap();
            fs::write(&log, "").unwrap();
            fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
            let script = format!("echo why-I-died >{place}; exit 3");
            let setting = Setting::of(policy, &script);
            let ended = pod.run(&node, &setting, &[(place, &log)]);
            assert_eq!(ended.code, 3, "{policy} {place}: {ended}");
            let arrived = fs::read_to_string(&log).unwrap();
            assert_eq!(arrived, "why-I-died\n", "{policy} {place}: {ended}");
        }
    }
}

/// F37: a path of the node is protected, and the pod's own scratch is its author's.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_host_path_has_protected_files_and_an_empty_dir_has_none() {
    let node = Node::of_cri();
    let mut pod = Pod::new();
    let (host, disk) = (
        node.scratch.dir("host"),
        pod.volume("empty-dir", "disk", false),
    );
    let mounts = [("/host", host.as_str()), ("/e", &disk)];
    let script = "for d in /host /e; do echo evil >$d/.envrc; echo evil >$d/.mcp.json; done 2>/dev/null; true";
    let text = |name: &str| fs::read_to_string(name).unwrap_or_default();
    let seen =
        || [&host, &disk].map(|d| [".envrc", ".mcp.json"].map(|f| text(&format!("{d}/{f}"))));
    for (policy, annotations) in [
        ("standard", &[("filesystem.write", "/host")][..]),
        ("permissive", &[]),
        // The control.
        ("permissive", &[("filesystem.unprotected", "*")]),
    ] {
        fs::write(format!("{host}/.envrc"), "kept").unwrap();
        let setting = Setting {
            annotations,
            ..Setting::of(policy, script)
        };
        pod.run(&node, &setting, &mounts).ok();
        let free = annotations.contains(&("filesystem.unprotected", "*"));
        let expect = match free {
            true => ["evil\n", "evil\n"],
            false => ["kept", ""],
        };
        assert_eq!(seen(), [expect, ["evil\n", "evil\n"]], "{policy}");
    }
}
