//! More volumes: local disks, a message file with another name, a volume that needs two fields, and the container's own
//! keys.

use super::*;

/// A directory on the node, removed when dropped.
struct Disk(String);

impl Disk {
    fn new(name: &str) -> Self {
        let path = format!("/srv/{name}-{}", std::process::id());
        fs::create_dir_all(format!("{path}/data")).unwrap();
        fs::write(format!("{path}/data/file"), "kept\n").unwrap();
        Self(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A local PersistentVolume is a directory of the node that the cluster offers. It is storage, whole and by subPath,
/// and no Secret.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_local_volume_is_storage_whole_and_by_sub_path() {
    let node = Node::of_cri();
    let disk = Disk::new("local-volume");
    let mut pod = Pod::new();
    let volume = pod.path("volumes/kubernetes.io~local-volume/pv");
    fs::create_dir_all(&volume).unwrap();
    pod.mount(&["--bind", &disk.0], &volume);
    let sub = pod.sub_path(&volume, "data", 0);
    let whole = format!("{volume}/data");
    let mounts = [("/v-whole", whole.as_str()), ("/v-sub", &sub)];
    let script = "for v in /v-whole /v-sub; do
        test -e $v/file || { echo absent; continue; }
        cat $v/file; (echo more >>$v/new) 2>/dev/null && echo written || echo refused; done";
    for (policy, expect) in [
        ("strict", "absent\n"),
        ("standard", "kept\nrefused\n"),
        ("permissive", "kept\nwritten\n"),
    ] {
        for annotations in [&[][..], &[("filesystem.secrets", "read-only")]] {
            // Under strict, a container may not request them.
            if policy == "strict" && !annotations.is_empty() {
                continue;
            }
            let setting = Setting {
                annotations,
                ..Setting::of(policy, script)
            };
            let seen = pod.run(&node, &setting, &mounts).ok();
            assert_eq!(seen, expect.repeat(2), "{policy} {annotations:?}");
        }
    }
}

/// A hard link to the message file would make its target writable.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_termination_message_with_another_name_is_not_mounted() {
    let node = Node::of_cri();
    let pod = Pod::new();
    let file = pod.path("other");
    fs::write(&file, "kept").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let log = pod.path("containers/app/abfecb2f");
    fs::create_dir_all(Path::new(&log).parent().unwrap()).unwrap();
    fs::hard_link(&file, &log).unwrap();
    let script = "cat /tmp/why; echo written >/tmp/why; true";
    for policy in ["strict", "standard", "permissive"] {
        let seen = pod.run(&node, &Setting::of(policy, script), &[("/tmp/why", &log)]);
        assert_eq!(seen.ok(), "", "{policy}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept", "{policy}");
    }
}

/// `explain` names all fields that a volume needs.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_token_beside_other_data_needs_two_fields_and_both_are_named() {
    let node = Node::of_cri();
    let mut pod = Pod::new();
    let both = pod.filled("secret", "both", &[("key", "s3cr3t"), ("token", TOKEN)]);
    let mut config = node.config(&["sleep", "60"]);
    let id = format!("explained-both-{}", std::process::id());
    let cgroup = format!("/{}/pod{}/{id}", pod.cgroup.0, pod.uid);
    config["linux"]["cgroupsPath"] = json!(cgroup);
    config["annotations"] = json!({"io.kubernetes.cri.container-type": "container"});
    let all = config["mounts"].as_array_mut().unwrap();
    all.push(bind("/v-both", &both));
    let bundle = node.bundle(&id, &config);
    node.call(&["create", "--bundle", &bundle, &id]).ok();
    let explained = node.call(&["explain", &id]).ok();
    node.call(&["delete", "--force", &id]).ok();
    let why = explained.lines().find(|line| line.contains("/v-both"));
    let why = why.unwrap_or_else(|| panic!("{explained}"));
    for field in ["filesystem.service-account-token", "filesystem.secrets"] {
        assert!(why.contains(field), "{why}");
    }
}

/// A credential is recognized by its name on the node. A file that was put elsewhere for the container is the
/// container's own, and `explain` reports it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_key_of_the_container_is_visible_where_programs_look_for_it() {
    let node = Node::of_cri();
    let disk = Disk::new("deploy-keys");
    fs::write(format!("{}/id", disk.0), "own").unwrap();
    let home = Disk::new("home");
    fs::create_dir(format!("{}/.ssh", home.0)).unwrap();
    fs::write(format!("{}/.ssh/id", home.0), "the person's").unwrap();
    let theirs = format!("{}/.ssh", home.0);
    for policy in ["standard", "permissive"] {
        for (source, expect) in [(disk.0.as_str(), "own"), (&theirs, "")] {
            let mut config = node.config(&["sh", "-c", "cat /root/.ssh/id 2>/dev/null; true"]);
            let all = config["mounts"].as_array_mut().unwrap();
            all.push(bind("/root/.ssh", source));
            let id = format!("own-key-{}", std::process::id());
            let (options, bundle) = chosen(&node, &id, policy, &config);
            let explain = [&options[..], &["explain", "--bundle", &bundle]].concat();
            let explained = node.call(&explain).ok();
            let told = explained.contains("where programs look for credentials");
            assert_eq!(told, expect == "own", "{explained}");
            let run = [&options[..], &["run", "--bundle", &bundle, &id]].concat();
            let seen = node.call(&run);
            node.call(&["delete", "--force", &id]).ok();
            assert_eq!(seen.ok(), expect, "{policy} {source}");
        }
    }
}

/// A directory of the node that is mounted at a second place until it is dropped.
struct Bound(String);

impl Bound {
    fn new(source: &str, place: &str) -> Self {
        fs::create_dir_all(place).unwrap();
        run("mount", &["--bind", source, place]).ok();
        Self(place.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        run("umount", &["--lazy", &self.0]).ok();
        fs::remove_dir(&self.0).unwrap();
    }
}

/// A container's view of its pod's volumes, one line each: what it reads, and whether it may write.
fn seen_of_volumes(node: &Node, pod: &mut Pod) -> String {
    let scratch = pod.volume("empty-dir", "scratch", false);
    fs::create_dir(format!("{scratch}/sub")).unwrap();
    let sub = pod.sub_path(&scratch, "sub", 0);
    let secret = pod.filled("secret", "secret", &[("key", "s3cr3t")]);
    let log = pod.path("containers/app/abfecb25");
    fs::create_dir_all(Path::new(&log).parent().unwrap()).unwrap();
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
    let mounts = [
        ("/v-scratch", scratch.as_str()),
        ("/v-sub", &sub),
        ("/v-secret", &secret),
        ("/dev/termination-log", &log),
    ];
    let script = "for v in /v-scratch /v-sub; do
        (echo x >$v/new) 2>/dev/null && echo written || echo refused; done
        cat /v-secret/key; echo; echo why >/dev/termination-log";
    let setting = Setting {
        annotations: &[("filesystem.secrets", "read-only")],
        ..Setting::of("standard", script)
    };
    let seen = pod.run(node, &setting, &mounts).ok();
    // `hostAliases`: the kubelet's own file with names, and one of the same name elsewhere.
    let aliases = pod.path("etc-hosts");
    fs::write(&aliases, "10.1.2.3 alias.test\n").unwrap();
    let other = format!("{scratch}/etc-hosts");
    fs::copy(&aliases, &other).unwrap();
    for (source, taken) in [(&aliases, true), (&other, false)] {
        let told = pod.explain(node, &[("/etc/hosts", source)]);
        let refused = told.contains("no names are taken from");
        assert_eq!(refused, !taken, "{source}: {told}");
    }
    format!("{seen}{}", fs::read_to_string(&log).unwrap())
}

/// A node whose kubelet directory is on another disk, and another pod of the node that has that directory by `subPath`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_kubelet_directory_at_a_second_place_reveals_no_pods_volumes() {
    // Other tests use the same kubelet directory.
    let own = std::thread::spawn(|| {
        agentbox::sys::netns::unshare_mounts().unwrap();
        run("mount", &["--make-rprivate", "/"]).ok();
        look_at_second_places();
    });
    own.join().unwrap();
}

fn look_at_second_places() {
    let node = Node::of_cri();
    let expect = "written\nwritten\ns3cr3t\nwhy\n";
    let disk = format!("/mnt/k8s-disks-{}/kubelet", std::process::id());
    fs::create_dir_all("/var/lib/kubelet/pods").unwrap();
    let of_disk = Bound::new("/var/lib/kubelet", &disk);
    assert_eq!(seen_of_volumes(&node, &mut Pod::new()), expect);
    drop(of_disk);
    for (source, name) in [
        ("/var/lib/kubelet/pods", "pods"),
        ("/var/lib/kubelet", "kubelet"),
        ("/var/lib", "lib"),
    ] {
        let other = Pod::new();
        let place = other.path(&format!("volume-subpaths/{name}/c/0"));
        let _bound = Bound::new(source, &place);
        let seen = seen_of_volumes(&node, &mut Pod::new());
        assert_eq!(seen, expect, "{source}");
    }
}

/// A pod's author names a directory of a hostPath like a volume, with the pod's own uid by `subPathExpr`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_name_like_that_of_a_volume_makes_none() {
    let node = Node::of_cri();
    let disk = Disk::new("named-like-a-volume");
    let mut pod = Pod::new();
    let volume = "volumes/kubernetes.io~empty-dir/v";
    let links = format!("{}/linked", disk.0);
    std::os::unix::fs::symlink("/var/lib/kubelet/pods", &links).unwrap();
    let script = "(echo x >/v/new) 2>/dev/null && echo written || echo refused";
    for below in ["pods", "var/lib/kubelet/pods", "data"] {
        let named = format!("{}/{below}/{}/{volume}", disk.0, pod.uid);
        fs::create_dir_all(&named).unwrap();
        let sub = pod.path(&format!("volume-subpaths/v/app/{}", below.len()));
        fs::create_dir_all(&sub).unwrap();
        pod.mount(&["--bind", &named], &sub);
        for source in [&named, &sub] {
            let seen = pod.run(&node, &Setting::of("strict", script), &[("/v", source)]);
            assert_eq!(seen.ok(), "refused\n", "{source}");
        }
    }
    // The control: the pod's own.
    let own = pod.volume("empty-dir", "v", false);
    let seen = pod.run(&node, &Setting::of("strict", script), &[("/v", &own)]);
    assert_eq!(seen.ok(), "written\n");
    // Another pod's, by any name.
    let other = Pod::new();
    let theirs = other.path(volume);
    fs::create_dir_all(&theirs).unwrap();
    let linked = format!("{links}/{}/{volume}", other.uid);
    for source in [&theirs, &linked] {
        let seen = pod.run(&node, &Setting::of("strict", script), &[("/v", source)]);
        assert_eq!(seen.ok(), "refused\n", "{source}");
    }
}
