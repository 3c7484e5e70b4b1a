//! Findings of a hostile review about files of pods and names: claims that any caller of Docker could make.

use std::fs;
use std::path::{Path, PathBuf};

use crate::docker::Docker;

const IMAGE: &str = "test-musl";

/// A directory on the node, removed when dropped.
struct Made(PathBuf);

impl Made {
    fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// 1: reading a file that is never visible through the container's hosts file.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_caller_reads_no_file_of_the_node_through_hosts() {
    let docker = Docker::connect();
    let made = Made::new(format!("/root/.files-again-{}", std::process::id()));
    let netrc = made.file(
        ".netrc",
        "machine git.example.test login bot password hunter2\n10.0.0.1 password hunter3\n",
    );
    let link = made.0.join("link");
    std::os::unix::fs::symlink(&netrc, &link).unwrap();
    for source in [netrc.as_str(), link.to_str().unwrap()] {
        for runtime in ["agentbox-strict", "agentbox", "agentbox-permissive"] {
            let runtime = format!("--runtime={runtime}");
            let mount = format!("{source}:/etc/hosts");
            let options = [&runtime, "--hostname=password", "-v", &mount, IMAGE];
            let seen = docker.run(&options, &["cat", "/etc/hosts"]).ok();
            assert!(seen.contains("password"), "{seen}");
            assert!(!seen.contains("hunter"), "{runtime} {source}: {seen}");
        }
    }
}

/// 2: getting another pod's scratch and Secrets by claiming to Docker to be that pod.
#[test]
#[ignore = "needs the rig: hack/test"]
fn dockers_caller_is_no_pod() {
    let docker = Docker::connect();
    let uid = format!("{:08x}-0000-4000-8000-00000000d0c8", std::process::id());
    let pod = Made::new(format!("/var/lib/kubelet/pods/{uid}"));
    let volumes = "volumes/kubernetes.io~";
    let scratch = pod.file(&format!("{volumes}empty-dir/e/there"), "theirs");
    let secret = pod.file(&format!("{volumes}secret/s/key"), "hunter2");
    let above = |file: &str| Path::new(file).parent().unwrap().display().to_string();
    let mounts = [
        format!("{}:/e", above(&scratch)),
        format!("{}:/s", above(&secret)),
    ];
    let parent = format!("--cgroup-parent=/kubepods/pod{uid}");
    for runtime in ["agentbox-strict", "agentbox", "agentbox-permissive"] {
        let runtime_option = format!("--runtime={runtime}");
        let options = [
            &runtime_option,
            "--annotation=io.kubernetes.cri.container-type=container",
            "--annotation=dev.agentbox.filesystem.secrets=read-only",
            &parent,
            "-v",
            &mounts[0],
            "-v",
            &mounts[1],
            IMAGE,
        ];
        let seen = docker.run(&options, &["sh", "-c", "cat /s/key; echo x >/e/new; true"]);
        assert!(!seen.stdout.contains("hunter2"), "{runtime}: {seen}");
        let written = Path::new(&above(&scratch)).join("new").exists();
        assert!(
            !written || runtime == "agentbox-permissive",
            "{runtime}: {seen}"
        );
    }
}
