//! Hard links of files below our overlay. `cp` over such a file emptied it, and dpkg
//! could not restore its backup.

use std::fs;
use std::path::Path;

use crate::command::{Finished, run};
use crate::direct::{Node, Scratch};
use crate::docker::{Docker, NO_WALLS};

const IMAGE: &str = "test-workloads";
const EPHEMERAL: &str = "--annotation=dev.agentbox.filesystem.root=ephemeral";

/// Operations on a file's hard links: `cp` over one, dpkg's backup and restore, a rename over a link of the same file,
/// and `cp -a` of two links. Each line is the output of an ordinary file system.
const DOES: &str = r#"
import os, subprocess, sys, tempfile
path = sys.argv[1]
text = open(path).read()
link = path + '.link'
def say(what, is_so): print(what, 'yes' if is_so else 'NO')
def moved(*names):
    try:
        os.rename(*names)
        return True
    except OSError as error:
        return False
os.link(path, link)
say('one file', os.path.samefile(path, link) and os.stat(path).st_nlink == 2)
subprocess.run(['cp', path, link], capture_output=True)
say('kept by cp', text and open(path).read() == text)
with open(link, 'a') as file: file.write('more')
say('seen by both names', open(path).read() == text + 'more')
say('a rename over itself', moved(link, path) and os.path.samefile(path, link))
new = path + '.dpkg-new'
open(new, 'w').write('new')
say('restored', moved(new, path) and moved(link, path) and open(path).read() == text + 'more')
os.link(path, link)
into = tempfile.mkdtemp()
subprocess.run(['cp', '-a', path, link, into], check=True)
copy = os.path.join(into, os.path.basename(path))
say('copied as one', os.path.samefile(copy, copy + '.link'))
"#;

const RIGHT: &str = "one file yes\nkept by cp yes\nseen by both names yes\na rename over itself yes\nrestored yes\n\
    copied as one yes\n";

fn in_docker(docker: &Docker, options: &[&str], path: &str) -> Finished {
    docker.run(options, &["--user=0", IMAGE, "python3", "-c", DOES, path])
}

/// The same over the root of the rig, an overlay with only an overlay's usual options. There the kernel does not keep
/// hard links, and the script detects that.
fn control() {
    let scratch = Scratch::new();
    let file = scratch.file("lower/d/file", "text");
    let memory = scratch.dir("memory");
    let script = format!(
        "mount -t tmpfs none {memory} && mkdir {memory}/u {memory}/w && cd {} && \
         mount -t overlay none -o lowerdir=lower,upperdir=memory/u,workdir=memory/w lower && python3 -c \"$1\" {file}; \
         umount lower {memory}",
        scratch.path(".")
    );
    let seen = run("bash", &["-c", &script, "-", DOES]);
    assert!(
        seen.stdout.contains("one file NO\nkept by cp NO\n"),
        "{seen:?}"
    );
    assert!(seen.stdout.contains("restored NO\n"), "{seen:?}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn hard_links_of_the_image_hold_wherever_it_is_written() {
    let docker = Docker::connect();
    control();
    for (options, path) in [
        // The root over layers: scratch in memory and on disk.
        (
            &["--runtime=agentbox", EPHEMERAL][..],
            "/etc/apt/sources.list",
        ),
        (
            &[
                "--runtime=agentbox",
                EPHEMERAL,
                "--annotation=dev.agentbox.filesystem.scratch-on=memory",
            ],
            "/etc/apt/sources.list",
        ),
        // Private directories over a read-only root.
        (
            &["--runtime=agentbox", "--read-only"],
            "/var/lib/dpkg/status",
        ),
        (&["--runtime=agentbox", "--read-only"], "/root/.profile"),
        // An anonymous volume, which the engine filled from the image.
        (
            &["--runtime=agentbox", "--read-only", "-v", "/etc/apt"],
            "/etc/apt/sources.list",
        ),
        (
            &["--runtime=agentbox", EPHEMERAL, "-v", "/etc"],
            "/etc/issue",
        ),
        (&["--runtime=runc"], "/etc/apt/sources.list"),
    ] {
        let seen = in_docker(&docker, options, path);
        assert_eq!(seen.ok(), RIGHT, "{options:?} {path}");
    }
}

/// Files that an upper layer deletes, or replaces with a directory, are absent in the root and in private directories.
#[test]
#[ignore = "needs the rig: hack/test"]
fn files_that_a_layer_hides_are_absent() {
    let docker = Docker::connect();
    let image = format!("links-{}", std::process::id());
    let commit = |from: &str, script: &str| {
        let made = docker.create(&["--runtime=runc", from], &["sh", "-c", script]);
        docker.call(&["start", "--attach", &made.name]).ok();
        docker.call(&["commit", &made.name, &image]).ok();
    };
    commit(
        IMAGE,
        "for d in /opt /var/opt; do mkdir -p $d/d $d/gone $d/e/f; echo hidden | tee $d/file $d/d/a $d/gone/a $d/e/f/a; done",
    );
    let all = "find /opt /var/opt | sort; cat /opt/d/* /var/opt/d/*";
    let before = docker
        .run(&["--runtime=runc", &image], &["sh", "-c", all])
        .ok();
    assert!(before.contains("hidden\n"), "{before}");
    commit(
        &image,
        "for d in /opt /var/opt; do rm -r $d/d $d/gone $d/file $d/e/f && mkdir $d/d && echo seen >$d/d/b && echo file >$d/gone; done",
    );
    let control = docker
        .run(&["--runtime=runc", &image], &["sh", "-c", all])
        .ok();
    assert!(
        !control.contains("hidden") && control.contains("seen\n"),
        "{control}"
    );
    for option in [EPHEMERAL, "--read-only"] {
        let seen = docker.run(&["--runtime=agentbox", option, &image], &["sh", "-c", all]);
        assert_eq!(seen.ok(), control, "{option}");
    }
    docker.call(&["rmi", &image]).ok();
}

/// An overlay like an engine's, on a file system in memory; unmounted when dropped.
struct Stacked {
    scratch: Scratch,
}

impl Stacked {
    /// `layers` lower ones, the lowest with the image's files; `options` follow the usual ones.
    fn new(node: &Node, layers: usize, options: &str) -> Self {
        let scratch = Scratch::new();
        let (base, merged) = (scratch.dir("layers"), scratch.dir("merged"));
        let image = node.config(&["true"])["root"]["path"]
            .as_str()
            .unwrap()
            .to_owned();
        let names: Vec<String> = (0..layers).map(|n| format!("{n} c:d")).collect();
        let script = r#"set -e; cd "$1"; mount -t tmpfs -o mode=755 none .; cd "$PWD"; mkdir work upper; shift
            options=$1 image=$2 merged=$3; shift 3; lower=
            for name; do mkdir "$name"; touch "$name/${name##*/} a,b"; lower=$lower:${name//:/\\:}; done
            cp -a "$image/." "${!#}/"; mkdir "${!#}/opt"; echo hidden | tee "${!#}/opt/file" >"${!#}/gone"
            mount -t overlay none -o "lowerdir=${lower#:},upperdir=$PWD/upper,workdir=$PWD/work$options" "$merged" ||
                { cd /; umount "$merged/../layers"; exit 9; }
            chmod 604 "$merged/etc/group"
            rm -r "$merged/gone" "$merged/opt"; mkdir "$merged/opt" "$merged/proc" "$merged/sys" "$merged/dev" 2>/dev/null || true"#;
        let absolute = names.iter().map(|name| format!("{base}/{name}"));
        let mut arguments = vec![
            "-c".to_owned(),
            script.to_owned(),
            "-".to_owned(),
            base.clone(),
        ];
        arguments.extend([options.to_owned(), image, merged]);
        arguments.extend(absolute);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run("bash", &arguments).ok();
        Self { scratch }
    }

    fn root(&self) -> String {
        self.scratch.path("merged")
    }
}

impl Drop for Stacked {
    fn drop(&mut self) {
        for name in ["merged", "layers"] {
            run("umount", &["--lazy", &self.scratch.path(name)]);
        }
    }
}

fn runs(node: &Node, root: &str, name: &str, script: &str) -> Finished {
    let mut config = node.config(&["sh", "-c", script]);
    config["root"]["path"] = root.into();
    config["root"]["readonly"] = false.into();
    config["annotations"] = serde_json::json!({"dev.agentbox.filesystem.root": "ephemeral"});
    let bundle = node.bundle(name, &config);
    let id = format!("links-{name}-{}", std::process::id());
    node.call(&["run", "--bundle", &bundle, &id])
}

/// More layers than the kernel accepts in one option, names with spaces and colons, and files that the upper one hides.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_layers_of_an_overlay_are_read_from_the_kernel() {
    let node = Node::new();
    let script = "ls / /opt | sort; ln /etc/passwd /etc/p && echo >>/etc/p && cmp /etc/p /etc/passwd && echo one; \
        mv /home/dev /home/other && grep -c root /etc/group && stat -c %a /etc/group && echo moved";
    for (layers, options) in [
        (1, ",index=off"),
        (3, ",index=off"),
        (110, ""),
        // The upper layer has only a file's mode, and one below has its content.
        (3, ",metacopy=on,redirect_dir=on"),
    ] {
        let stacked = Stacked::new(&node, layers, options);
        let name = format!("many-{layers}-{}", options.len());
        let seen = runs(&node, &stacked.root(), &name, script).ok();
        assert!(seen.ends_with("one\n1\n604\nmoved\n"), "{seen}");
        assert!(seen.contains("0 c:d a,b\n"), "{seen}");
        assert_eq!(seen.matches(" a,b\n").count(), layers, "{seen}");
        assert!(!seen.contains("gone") && !seen.contains("file"), "{seen}");
    }
}

/// If the layers are unavailable, or another overlay of them would show other files, such a root is refused, and the
/// error names the alternative.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_root_whose_hard_links_would_break_is_refused() {
    let node = Node::new();
    let refused = |root: &str, name: &str, why: &str| {
        let said = runs(&node, root, name, "true").failed().replace('\\', "");
        assert!(said.contains(why), "{name}: {said}");
        assert!(
            said.contains("\"engine\" or \"read-only\""),
            "{name}: {said}"
        );
    };
    // A directory on the rig's root, which is an overlay.
    let plain = node.config(&["true"])["root"]["path"]
        .as_str()
        .unwrap()
        .to_owned();
    refused(&plain, "part", "not an overlay mount itself");
    // With this option, whiteouts and opaque directories are other attributes.
    let stacked = Stacked::new(&node, 2, ",userxattr");
    refused(&stacked.root(), "userxattr", "\"userxattr\"");
    drop(stacked);
    // Another user may have put another directory there since.
    let stacked = Stacked::new(&node, 2, "");
    let layers = stacked.scratch.path("layers");
    run("chmod", &["777", &layers]).ok();
    refused(&stacked.root(), "writable", "mode 777");
    run("chmod", &["755", &layers]).ok();
    runs(&node, &stacked.root(), "as-before", "true").ok();
    // The names lead elsewhere now.
    let hides =
        format!("mount -t tmpfs none '{layers}/0 c:d' && cp -a /bin/true '{layers}/0 c:d/other'");
    run("bash", &["-c", &hides]).ok();
    let said = runs(&node, &stacked.root(), "moved", "true").failed();
    assert!(said.contains("is not as it was made"), "{said}");
    run("umount", &[&format!("{layers}/0 c:d")]).ok();
}

/// On a file system that is not the rig's: hard links of the image stay hard links there too.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_root_that_is_a_plain_directory_keeps_its_own_links() {
    let node = Node::new();
    let scratch = Scratch::new();
    let image = node.config(&["true"])["root"]["path"]
        .as_str()
        .unwrap()
        .to_owned();
    let root = scratch.dir("root");
    // Without a UUID, like the root of virtual machines.
    let script = r#"set -e; truncate -s 64M "$1.img"; mkfs.ext4 -q -U 00000000-0000-0000-0000-000000000000 "$1.img"
        mount -o loop "$1.img" "$1"; cp -a "$2/." "$1/"; echo text >"$1/etc/a"; ln "$1/etc/a" "$1/etc/b""#;
    run("bash", &["-c", script, "-", &root, &image]).ok();
    let script = "echo more >>/etc/a; cat /etc/b; ln /etc/passwd /etc/p && echo >>/etc/p && cmp /etc/p /etc/passwd && echo one";
    let seen = runs(&node, &root, "plain", script);
    run("umount", &[&root]).ok();
    assert_eq!(seen.ok(), "text\nmore\none\n");
    assert!(!Path::new(&format!("{root}/etc")).exists());
}

/// A user namespace has no file handles. The text says what happens to hard links there.
#[test]
#[ignore = "needs the rig: hack/test"]
fn explain_says_where_hard_links_break() {
    let node = Node::new();
    let mut config = node.config(&["true"]);
    let told = |config: &serde_json::Value, name: &str| {
        let bundle = node.bundle(name, config);
        node.call(&["explain", "--bundle", &bundle])
    };
    // Under standard itself: the root is not an engine's, and the caller did not name the policy.
    config["root"]["readonly"] = false.into();
    let said = told(&config, "by-default").ok();
    assert!(
        said.contains("a new hard link to a file of the image becomes a copy"),
        "{said}"
    );
    config["root"]["readonly"] = true.into();
    let said = told(&config, "read-only").ok();
    assert!(
        said.contains("a new hard link to a file of the image becomes a copy"),
        "{said}"
    );
    let stacked = Stacked::new(&node, 2, "");
    config["root"]["path"] = stacked.root().into();
    let said = told(&config, "over-layers").ok();
    assert!(!said.contains("becomes a copy"), "{said}");
    let id_map = serde_json::json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
    config["linux"]["uidMappings"] = id_map.clone();
    config["linux"]["gidMappings"] = id_map;
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.push(serde_json::json!({"type": "user"}));
    let said = told(&config, "users").ok();
    assert!(said.contains("in a user namespace"), "{said}");
    config["root"]["readonly"] = false.into();
    config["annotations"] = serde_json::json!({"dev.agentbox.filesystem.root": "ephemeral"});
    let said = told(&config, "users-root").failed().replace('\\', "");
    assert!(said.contains("\"engine\" or \"read-only\""), "{said}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f08_layers_are_not_mounted_on_the_node_and_not_written() {
    let docker = Docker::connect();
    let container = docker.start(&["--runtime=agentbox", EPHEMERAL, IMAGE], &["sleep", "60"]);
    docker
        .call(&[
            "exec",
            &container.name,
            "sh",
            "-c",
            "echo x >/etc/new && rm /etc/issue",
        ])
        .ok();
    let diff = docker.call(&["diff", &container.name]).ok();
    assert!(
        !diff.contains("/etc/new") && !diff.contains("/etc/issue"),
        "{diff}"
    );
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(" agentbox "), "{table}");
    // Inside, none of the node's names are visible; without walls all are.
    let mounts = ["exec", &container.name, "cat", "/proc/self/mountinfo"];
    let seen = docker.call(&mounts).ok();
    let root = seen.lines().find(|line| line.contains(" / / ")).unwrap();
    assert!(
        root.contains("overlay agentbox") && !root.contains("/diff"),
        "{root}"
    );
    let control = docker.run(
        &[&NO_WALLS[..], &[IMAGE]].concat(),
        &["cat", "/proc/self/mountinfo"],
    );
    assert!(control.ok().contains("/diff"));
}
