//! F37: a pod's workspace, whatever its volume is, and writable claims beside it: what the tools of people and of other
//! containers run in it later.

use super::*;

/// Files that exist at the start, and files that the tools would run if they were made.
const THERE: [&str; 3] = [".envrc", ".git/hooks/post-commit", ".vscode/tasks.json"];
const PLANTED: [&str; 3] = [".mcp.json", ".zed", "new/.git/hooks/update"];

/// Every way to change the first, and to make the second.
const PLANT: &str = "for f in .envrc .git/hooks/post-commit .vscode/tasks.json; do echo evil >$f; rm -f $f; echo evil >new-file; mv new-file $f; done; \
                     mv .git .git2; mv .vscode .vscode2; echo evil >.mcp.json; mkdir .zed; echo evil >.zed/tasks.json; \
                     mkdir -p new/.git/hooks new/.git/objects new/.git/refs; echo evil >new/.git/hooks/update; \
                     printf '[core]\\n\\tfsmonitor = evil\\n' >>.git/config; echo ok >file";

/// Makes a repository of a directory, again.
fn fresh(dir: &str) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let gone = match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        };
        gone.unwrap();
    }
    for name in [".git/objects", ".git/refs", ".git/hooks", ".vscode"] {
        fs::create_dir_all(format!("{dir}/{name}")).unwrap();
    }
    fs::write(format!("{dir}/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(format!("{dir}/.git/config"), "[core]\n\tpager = less\n").unwrap();
    for name in THERE {
        fs::write(format!("{dir}/{name}"), "kept").unwrap();
    }
}

/// What has changed, and what was made.
fn planted(dir: &str) -> Vec<&'static str> {
    let text = |name: &str| fs::read_to_string(format!("{dir}/{name}")).unwrap_or_default();
    let mut all: Vec<&str> = THERE
        .into_iter()
        .filter(|name| text(name) != "kept")
        .collect();
    let is_there = |name: &&str| Path::new(dir).join(name).symlink_metadata().is_ok();
    all.extend(PLANTED.into_iter().filter(is_there));
    let settings = text(".git/config");
    if settings.contains("evil") || !settings.contains("pager = less") {
        all.push(".git/config");
    }
    all
}

/// A pod's volumes, by name: the directory on the node, and the mount's source.
fn volumes(pod: &mut Pod, node: &Node) -> Vec<(&'static str, String, String)> {
    let disk = pod.volume("empty-dir", "disk", false);
    let memory = pod.volume("empty-dir", "memory", true);
    let host = node.scratch.dir("host");
    let claim = pod.path("volumes/kubernetes.io~csi/pvc-1/mount");
    fs::create_dir_all(&claim).unwrap();
    pod.mount(&["-t", "tmpfs", "tmpfs"], &claim);
    let local = pod.path("volumes/kubernetes.io~local-volume/pv");
    fs::create_dir_all(&local).unwrap();
    pod.mount(&["--bind", &node.scratch.dir("disk")], &local);
    fs::create_dir(format!("{local}/data")).unwrap();
    let sub = pod.sub_path(&local, "data", 0);
    vec![
        ("emptyDir", disk.clone(), disk),
        ("emptyDir in memory", memory.clone(), memory),
        ("hostPath", host.clone(), host),
        ("claim", claim.clone(), claim),
        ("subPath of a claim", format!("{local}/data"), sub),
    ]
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_pods_workspace_has_protected_files_whatever_its_volume_is() {
    let node = Node::of_cri();
    let mut pod = Pod::new();
    for (kind, dir, source) in volumes(&mut pod, &node) {
        let mounts = [("/work", source.as_str())];
        let run = |policy: &str, annotations: &[(&str, &str)]| {
            fresh(&dir);
            let setting = Setting {
                annotations,
                cwd: "/work",
                ..Setting::of(policy, PLANT)
            };
            let seen = pod.run(&node, &setting, &mounts);
            assert!(
                Path::new(&dir).join("file").exists(),
                "{kind} {policy} {seen}"
            );
            (planted(&dir), seen)
        };
        for policy in ["strict", "standard", "permissive"] {
            let (found, seen) = run(policy, &[]);
            assert_eq!(found, [""; 0], "{kind} {policy} {seen}");
        }
        // The control.
        let (found, seen) = run("permissive", &[("filesystem.unprotected", "*")]);
        assert_eq!(found.len(), 7, "{kind} {found:?} {seen}");
    }
}

/// As `hack/kubernetes/pod.yaml` does it: the init container works elsewhere, so what it fills in stays, and the agent cannot change it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_what_an_init_container_fills_in_stays_and_the_agent_changes_none_of_it() {
    let node = Node::of_cri();
    let mut pod = Pod::new();
    let disk = pod.volume("empty-dir", "disk", false);
    let mounts = [("/work", disk.as_str())];
    let fill = "cd /work; mkdir -p .git/hooks .git/objects .git/refs .vscode; echo 'ref: refs/heads/main' >.git/HEAD; \
                printf '[core]\\n\\tpager = less\\n' >.git/config; for f in .envrc .git/hooks/post-commit .vscode/tasks.json; do printf kept >$f; done";
    let filled = pod.run(&node, &Setting::of("standard", fill), &mounts);
    assert_eq!(planted(&disk), [""; 0], "{filled}");
    let agent = Setting {
        cwd: "/work",
        ..Setting::of("standard", PLANT)
    };
    let seen = pod.run(&node, &agent, &mounts);
    assert_eq!(planted(&disk), [""; 0], "{seen}");
    assert!(seen.stderr.contains("Read-only file system"), "{seen}");
    // The control: the same program changes all of it where the volume is no workspace.
    let elsewhere = format!("cd /work; {PLANT}");
    let seen = pod.run(&node, &Setting::of("standard", &elsewhere), &mounts);
    assert_eq!(planted(&disk).len(), 7, "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_claim_beside_a_pods_workspace_has_protected_files() {
    let node = Node::of_cri();
    let mut pod = Pod::new();
    let work = node.scratch.dir("work");
    let script = format!("cd /v; {PLANT}");
    for (kind, dir, source) in volumes(&mut pod, &node) {
        let mounts = [("/work", work.as_str()), ("/v", source.as_str())];
        for (policy, annotations) in [
            ("standard", &[("filesystem.write", "/v")][..]),
            ("permissive", &[]),
            // The control.
            ("permissive", &[("filesystem.unprotected", "*")]),
        ] {
            // A subPath beside the workspace is read-only under `standard`.
            if kind.starts_with("subPath") && policy == "standard" {
                continue;
            }
            fresh(&dir);
            let setting = Setting {
                annotations,
                cwd: "/work",
                ..Setting::of(policy, &script)
            };
            let seen = pod.run(&node, &setting, &mounts);
            assert!(
                Path::new(&dir).join("file").exists(),
                "{kind} {policy} {seen}"
            );
            let is_control = annotations.contains(&("filesystem.unprotected", "*"));
            // The pod's scratch is its author's.
            let expect = if is_control || kind.starts_with("emptyDir") {
                7
            } else {
                0
            };
            let found = planted(&dir);
            assert_eq!(found.len(), expect, "{kind} {policy} {found:?} {seen}");
        }
    }
}
