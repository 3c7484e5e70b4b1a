//! F-H3, K-1 (F20): a source is judged by the file system mounted there, not by its path.

use std::fs;
use std::path::Path;

use super::{bind, seen};
use crate::command::run;
use crate::direct::{Node, Scratch};
use crate::docker::{Docker, Policy};

const SECRET: &str = "the-secret-of-the-node";

/// A directory below /etc with a secret, removed when dropped.
struct Settings(String);

impl Settings {
    fn new(name: &str) -> Self {
        let dir = format!("/etc/review-{name}-{}", std::process::id());
        fs::create_dir_all(&dir).unwrap();
        fs::write(format!("{dir}/secret"), SECRET).unwrap();
        Self(dir)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A mount of the node, unmounted when dropped.
struct Mounted(String);

impl Mounted {
    fn new(arguments: &[&str], place: &str) -> Self {
        run("mount", &[arguments, &[place]].concat()).ok();
        Self(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Another test's process may be in it.
        run("umount", &["--lazy", &self.0]).ok();
    }
}

/// A Docker volume with driver options.
struct Volume<'a> {
    docker: &'a Docker,
    name: String,
}

impl<'a> Volume<'a> {
    fn new(docker: &'a Docker, name: &str, options: &[&str]) -> Self {
        let name = format!("review-{name}");
        let options = options.iter().flat_map(|o| ["-o", o]);
        let arguments: Vec<&str> = ["volume", "create", "-d", "local"]
            .into_iter()
            .chain(options)
            .chain([name.as_str()])
            .collect();
        docker.call(&arguments).ok();
        Self { docker, name }
    }
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        let gone = self.docker.call(&["volume", "rm", "-f", &self.name]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

/// Never writes: it only opens core_pattern.
const LOOK: &str = "cat /x/secret /x/id; head -c 9 /x/version; \
    if [ -e /x/kernel/core_pattern ]; then exec 3>>/x/kernel/core_pattern && echo opened; fi; true";

#[track_caller]
fn is_kept_out(what: &str, output: &crate::command::Finished) {
    let text = output.to_string();
    for word in [SECRET, "Linux ver", "opened"] {
        assert!(!output.stdout.contains(word), "{what}: {text}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_volume_with_a_device_is_judged_as_the_device() {
    let docker = Docker::connect();
    let settings = Settings::new("volume");
    let home = Scratch::new();
    home.file("me/.ssh/id", SECRET);
    let ssh = home.path("me/.ssh");
    let empty = home.dir("empty");
    let device = |path: &str| format!("device={path}");
    let bound = |path: &str| vec!["type=none".to_owned(), "o=bind".to_owned(), device(path)];
    for (name, options) in [
        ("etc", bound(&settings.0)),
        ("ssh", bound(&ssh)),
        ("sysctl", bound("/proc/sys")),
        ("proc", vec!["type=proc".to_owned(), device("proc")]),
        (
            "overlay",
            vec![
                "type=overlay".to_owned(),
                device("overlay"),
                format!("o=lowerdir={}:{empty}", settings.0),
            ],
        ),
    ] {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let volume = Volume::new(&docker, name, &options);
        let mount = format!("-v={}:/x", volume.name);
        let look = ["test-musl", "sh", "-c", LOOK];
        let control = docker.run(&["--runtime=runc", &mount], &look);
        let words = [SECRET, "Linux ver", "opened"];
        assert!(
            words.iter().any(|w| control.stdout.contains(w)),
            "the control of {name}: {control}"
        );
        for policy in Policy::ALL {
            for workdir in ["-w=/x", "-w=/"] {
                let mut options = policy.options();
                options.extend([mount.as_str(), workdir]);
                let seen = docker.run(&options, &look);
                is_kept_out(name, &seen);
                let refused = seen.to_string().contains("the workspace");
                assert_eq!(refused, workdir == "-w=/x", "{name} {policy:?}: {seen}");
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn an_ordinary_volume_and_one_with_a_device_of_a_project_stay_workspaces() {
    let docker = Docker::connect();
    let home = Scratch::new();
    let project = home.dir("project");
    let device = format!("device={project}");
    for options in [
        vec![],
        vec!["type=none", "o=bind", &device],
        vec!["type=tmpfs", "device=tmpfs"],
    ] {
        let volume = Volume::new(&docker, "ordinary", &options);
        let mount = format!("-v={}:/x", volume.name);
        for policy in Policy::ALL {
            let mut all = policy.options();
            all.extend([mount.as_str(), "-w=/x"]);
            let script = ["test-musl", "sh", "-c", "echo text >file && cat file"];
            assert_eq!(docker.run(&all, &script).ok(), "text\n", "{options:?}");
        }
    }
    assert_eq!(
        fs::read_to_string(format!("{project}/file")).unwrap(),
        "text\n"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn the_kernels_file_systems_are_known_wherever_they_are_mounted() {
    let node = Node::new();
    for (kind, file) in [
        ("proc", "/x/version"),
        ("sysfs", "/x/kernel/mm"),
        ("mqueue", "/x"),
        ("devpts", "/x/ptmx"),
        ("devtmpfs", "/x/null"),
        ("binfmt_misc", "/x/register"),
    ] {
        let place = node.scratch.dir(&format!("elsewhere/{kind}"));
        // Not every kernel has all of them.
        if run("mount", &["-t", kind, kind, &place]).code != 0 {
            assert!(!["proc", "sysfs", "devpts"].contains(&kind), "{kind}");
            continue;
        }
        let _mounted = Mounted(place.clone());
        let script = format!("ls -d {file} && echo there");
        for policy in ["strict", "standard", "permissive"] {
            let seen = seen(&node, policy, bind(&place), &script);
            let message = seen.failed();
            assert!(
                message.contains("the workspace") && message.contains("file system of type"),
                "{kind}: {message}"
            );
            // Also below it.
            if kind == "proc" {
                let below = super::seen(&node, policy, bind(&format!("{place}/sys")), "echo there");
                assert!(below.failed().contains("file system of type"), "{policy}");
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_bind_of_a_bind_is_judged_as_what_it_shows() {
    let node = Node::new();
    let settings = Settings::new("bind");
    node.scratch.file("me/.ssh/id", SECRET);
    for what in [
        settings.0.clone(),
        node.scratch.path("me/.ssh"),
        "/usr/share".to_owned(),
    ] {
        let one = node.scratch.dir("one");
        let _one = Mounted::new(&["--bind", &what], &one);
        let two = node.scratch.dir("two");
        let _two = Mounted::new(&["--bind", &one], &two);
        for policy in ["strict", "standard", "permissive"] {
            let message = seen(&node, policy, bind(&two), LOOK).failed();
            assert!(
                message.contains("the workspace") && message.contains(&what),
                "{policy}: {message}"
            );
        }
        // As a submount of a directory: submounts stay outside.
        let inside = seen(
            &node,
            "permissive",
            bind(&node.scratch.path("")),
            "cat /x/one/* /x/two/*; true",
        );
        is_kept_out("a submount", &inside);
    }
    // A second mount of the node's whole root is not a new name for everything.
    let again = node.scratch.dir("again");
    // Shared, its end would also unmount what other tests have mounted below the root (mount_namespaces(7)).
    let _again = Mounted::new(&["--bind", "--make-private", "/"], &again);
    let project = node.scratch.dir("project");
    assert_eq!(
        seen(&node, "strict", bind(&project), "echo runs").ok(),
        "runs\n"
    );
    for below in ["", "/etc", "/root", "/usr/bin"] {
        let message = seen(&node, "strict", bind(&format!("{again}{below}")), LOOK).failed();
        assert!(message.contains("under another name"), "{below}: {message}");
    }
    let aliased = format!("{again}{project}");
    assert_eq!(
        seen(&node, "strict", bind(&aliased), "echo runs").ok(),
        "runs\n"
    );
}

/// A kubelet's layout: a pod's volumes, and subPaths, which are binds of paths in them.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_kubelets_sub_path_is_judged_as_the_volume_or_the_path_of_the_node() {
    let node = Node::new();
    let settings = Settings::new("kubelet");
    let pod = format!("/var/lib/kubelet/pods/review-{}", std::process::id());
    let at = |name: &str| {
        let path = format!("{pod}/{name}");
        fs::create_dir_all(&path).unwrap();
        path
    };
    let secret = at("volumes/kubernetes.io~secret/s");
    let _secret = Mounted::new(&["-t", "tmpfs", "tmpfs"], &secret);
    fs::create_dir(format!("{secret}/..data")).unwrap();
    fs::write(format!("{secret}/..data/secret"), SECRET).unwrap();
    let memory = at("volumes/kubernetes.io~empty-dir/memory");
    let _memory = Mounted::new(&["-t", "tmpfs", "tmpfs"], &memory);
    let cache = at("volumes/kubernetes.io~empty-dir/cache/sub");
    let _proc = {
        let place = node.scratch.dir("proc");
        Mounted::new(&["-t", "proc", "proc"], &place)
    };
    let file = format!("{secret}/..data/secret");
    for (number, (source, comes_in)) in [
        (format!("{secret}/..data"), false),
        (file, false),
        (settings.0.clone(), false),
        (node.scratch.path("proc/sys/kernel"), false),
        ("/usr/bin".to_owned(), false),
        ("/run/agentbox".to_owned(), false),
        (memory.clone(), true),
        (cache, true),
        (node.scratch.dir("project"), true),
    ]
    .into_iter()
    .enumerate()
    {
        let place = at(&format!("volume-subpaths/v/c/{number}"));
        if Path::new(&source).is_file() {
            fs::remove_dir(&place).unwrap();
            fs::write(&place, "").unwrap();
        }
        fs::create_dir_all("/run/agentbox").unwrap();
        let _sub = Mounted::new(&["--bind", &source], &place);
        for policy in ["strict", "standard", "permissive"] {
            let script = "cat /x /x/secret; ls /x/core_pattern; touch /x/new && echo written";
            let seen = seen(&node, policy, bind(&place), script);
            is_kept_out(&source, &seen);
            match comes_in {
                true => assert!(seen.stdout.contains("written"), "{source}: {seen}"),
                false => assert!(seen.failed().contains("the workspace"), "{source}"),
            }
        }
    }
    drop((_secret, _memory));
    fs::remove_dir_all(pod).unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn an_overlay_is_judged_as_its_layers() {
    let node = Node::new();
    let settings = Settings::new("overlay");
    let (lower, place) = (node.scratch.dir("lower"), node.scratch.dir("place"));
    node.scratch.file("lower/project/text", "a project\n");
    // Upper directories cannot be on an overlay such as the rig's own.
    let memory = node.scratch.dir("memory");
    let _memory = Mounted::new(&["-t", "tmpfs", "tmpfs"], &memory);
    for name in ["upper", "work"] {
        fs::create_dir(format!("{memory}/{name}")).unwrap();
    }
    for (layers, refused) in [
        (format!("lowerdir={}:{lower}", settings.0), true),
        (format!("lowerdir={lower}:/etc"), true),
        (format!("lowerdir={lower}:/usr/bin"), true),
        (
            format!("lowerdir={lower},upperdir={memory}/upper,workdir={memory}/work"),
            false,
        ),
    ] {
        let _mounted = Mounted::new(&["-t", "overlay", "overlay", "-o", &layers], &place);
        let seen = seen(
            &node,
            "standard",
            bind(&place),
            "cat secret shadow project/text",
        );
        is_kept_out(&layers, &seen);
        match refused {
            true => assert!(seen.failed().contains("the workspace"), "{layers}"),
            false => assert!(seen.stdout.contains("a project"), "{layers}: {seen}"),
        }
        if layers.contains("/etc") {
            // A part of an overlay consists of the same part of its layers.
            let below = super::seen(
                &node,
                "standard",
                bind(&format!("{place}/project")),
                "cat text",
            );
            assert!(below.failed().contains("the workspace"), "{layers}");
        }
    }
}
