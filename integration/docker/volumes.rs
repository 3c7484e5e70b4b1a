//! Named volumes and a second bind: which mounts besides the workspace a container may write.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::owners::{Disk, OWNER, mount, options};
use super::{Docker, NO_WALLS, Policy};
use crate::command::{Finished, run};
use crate::direct::{Scratch, program};

/// A named volume of Docker's, removed when dropped.
struct Volume<'a> {
    docker: &'a Docker,
    name: String,
    /// Mounts on the node that cover it or show it elsewhere.
    mounted: Vec<String>,
}

impl<'a> Volume<'a> {
    fn create(docker: &'a Docker, name: &str, options: &[&str]) -> Self {
        let name = format!("{name}-{}", std::process::id());
        docker
            .call(&[&["volume", "create"], options, &[&name]].concat())
            .ok();
        Self {
            docker,
            name,
            mounted: Vec::new(),
        }
    }

    /// Its directory on the node.
    fn path(&self) -> String {
        let inspect = ["volume", "inspect", "-f", "{{.Mountpoint}}", &self.name];
        self.docker.call(&inspect).ok().trim().to_owned()
    }

    fn at(&self, place: &str) -> String {
        format!("{}:{place}", self.name)
    }

    /// Mounts a directory of the node at another one.
    fn bind(&mut self, source: &str, place: &str) {
        run("mount", &["--bind", source, place]).ok();
        self.mounted.push(place.to_owned());
    }
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        for place in &self.mounted {
            run("umount", &[place]);
        }
        let gone = self.docker.call(&["volume", "rm", "-f", &self.name]);
        if !std::thread::panicking() {
            gone.ok();
        }
    }
}

/// Tries to write to /v.
const WRITES: [&str; 4] = [
    "test-musl",
    "sh",
    "-c",
    "test -e /v || echo absent; (echo x >/v/new) 2>/dev/null && echo written || echo refused",
];

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_named_volume_is_the_containers_to_write() {
    let docker = Docker::connect();
    let standard = Policy::Standard.options();
    let volume = Volume::create(&docker, "cache", &[]);
    let at = volume.at("/root/.npm");
    let scratch = Scratch::new();
    let project = format!("{}:/work", scratch.dir("project"));
    // The most usual day: a project, and a cache.
    let day = ["-v", &project, "-w", "/work", "-v", &at];
    let script = "echo one >/root/.npm/one && echo two >two && cat /root/.npm/*";
    let both = [&standard[..], &day, &["test-musl", "sh", "-c", script]].concat();
    assert_eq!(docker.run(&both, &[]).ok(), "one\n");
    assert!(fs::exists(scratch.path("project/two")).unwrap());
    // What one container wrote, another one reads and changes, also by `exec`.
    let container = docker.start(
        &[&standard[..], &["-v", &at]].concat(),
        &["test-musl", "sleep", "300"],
    );
    let more = "cat /root/.npm/one && rm /root/.npm/one && echo done";
    assert_eq!(container.exec(&[], &["sh", "-c", more]).ok(), "one\ndone\n");
    let id = container.inspect("{{.Id}}");
    let told = run(&program(), &["explain", &id]).ok();
    assert!(told.contains("a named volume of the engine"), "{told}");
    run(&program(), &["verify", &id]).ok();

    let v = volume.at("/v");
    let tried = |policy: &[&str], mount: &str| {
        let options = [policy, &["-v", mount]].concat();
        docker.run(&options, &WRITES).stdout
    };
    let tighter = ["--annotation", "dev.agentbox.filesystem.mounts=read-only"];
    let strict = Policy::Strict.options();
    assert_eq!(tried(&NO_WALLS, &v), "written\n");
    assert_eq!(tried(&standard, &v), "written\n");
    assert_eq!(tried(&standard, &format!("{v}:ro")), "refused\n");
    assert_eq!(tried(&[&standard[..], &tighter].concat(), &v), "refused\n");
    assert_eq!(tried(&strict, &v), "absent\nrefused\n");
}

/// `docker run -v "$PWD:/work" IMAGE`, without `-w`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_only_bind_is_the_workspace_and_two_are_none() {
    let docker = Docker::connect();
    let scratch = Scratch::new();
    let volume = Volume::create(&docker, "beside", &[]);
    let hooks = scratch.dir("project/.git/hooks");
    fs::write(format!("{hooks}/pre-commit"), "own").unwrap();
    let project = |at: &str| format!("{}:{at}", scratch.path("project"));
    let other = format!("{}:/other:ro", scratch.dir("other"));
    let beside = volume.at("/cache");
    let standard = Policy::Standard.options();
    let tried = |policy: &[&str], mounts: &[&str], at: &str| {
        let mounts = mounts.iter().flat_map(|mount| ["-v", mount]);
        let options: Vec<&str> = policy.iter().copied().chain(mounts).collect();
        let write = format!("(echo x >{at}/new) 2>/dev/null && echo written || echo refused");
        let seen = docker.run(&options, &["test-musl", "sh", "-c", &write]);
        for new in ["project/new", "project/.git/hooks/new"] {
            let _gone = fs::remove_file(scratch.path(new));
        }
        seen.stdout.trim().to_owned()
    };
    let alone = project("/work");
    let denied = format!("{alone}:ro");
    let etc = project("/etc/project");
    let hooks_of = "/work/.git/hooks";
    for (policy, mounts, at, expect) in [
        (&standard[..], &[&*alone][..], "/work", "written"),
        (&standard, &[&alone, &beside], "/work", "written"),
        (&standard, &[&alone], hooks_of, "refused"),
        (&standard, &[&alone, &other], "/work", "refused"),
        (&standard, &[&denied], "/work", "refused"),
        (&standard, &[&etc], "/etc/project", "refused"),
        (&Policy::Strict.options(), &[&alone], "/work", "refused"),
        // The controls.
        (&NO_WALLS, &[&alone, &other], "/work", "written"),
        (&NO_WALLS, &[&alone], hooks_of, "written"),
        (&NO_WALLS, &[&etc], "/etc/project", "written"),
    ] {
        assert_eq!(
            tried(policy, mounts, at),
            expect,
            "{policy:?} {mounts:?} {at}"
        );
    }
}

/// The engine mounts, for a volume, another directory of the node; or a path only looks like a volume's.
#[test]
#[ignore = "needs the rig: hack/test"]
fn only_the_engines_own_storage_counts_as_a_named_volume() {
    let docker = Docker::connect();
    let scratch = Scratch::new();
    let node = scratch.dir("node");
    let volume = |name: &str, options: &[&str]| Volume::create(&docker, name, options);
    let device = format!("device={node}");
    let bound = ["-o", "type=none", "-o", "o=bind", "-o", &device];
    let memory = ["-o", "type=tmpfs", "-o", "device=tmpfs"];
    let mut covered = volume("covered", &[]);
    covered.bind(&node, &covered.path());
    let mut shown = volume("shown", &[]);
    shown.bind(&shown.path(), &scratch.dir("elsewhere"));
    let linked = volume("linked", &[]);
    fs::remove_dir(linked.path()).unwrap();
    symlink(&node, linked.path()).unwrap();
    let opened = volume("opened", &[]);
    let above = opened.path().replace("/_data", "");
    fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).unwrap();
    let part = volume("part", &[]);
    fs::create_dir(format!("{}/sub", part.path())).unwrap();
    let imitated = format!("/root/imitated-{}/volumes/v/_data", std::process::id());
    fs::create_dir_all(&imitated).unwrap();
    let (bound, memory) = (volume("bound", &bound), volume("memory", &memory));
    let options = [
        bound.at("/v"),
        memory.at("/v"),
        covered.at("/v"),
        shown.at("/v"),
        linked.at("/v"),
        opened.at("/v"),
        format!("{}/sub:/v", part.path()),
        format!("{imitated}:/v"),
    ];
    let tried = |policy: &[&str], mount: &str| -> Finished {
        docker.run(&[policy, &["-v", mount]].concat(), &WRITES)
    };
    let standard = Policy::Standard.options();
    for option in &options {
        let seen = tried(&standard, option);
        assert_eq!(
            seen.stdout.lines().last(),
            Some("refused"),
            "{option}: {seen}"
        );
        assert!(!fs::exists(format!("{node}/new")).unwrap(), "{option}");
        // The control.
        assert_eq!(tried(&NO_WALLS, option).stdout, "written\n", "{option}");
        fs::remove_file(format!("{node}/new")).ok();
    }
    // A directory that is never mounted.
    let etc = volume(
        "etc",
        &["-o", "type=none", "-o", "o=bind", "-o", "device=/etc"],
    );
    let seen = tried(&standard, &etc.at("/v"));
    assert_eq!(seen.stdout, "absent\nrefused\n", "{seen}");
    fs::remove_dir_all(imitated.replace("/volumes/v/_data", "")).unwrap();
    // Docker removes no volume that leads elsewhere.
    fs::remove_file(linked.path()).unwrap();
    fs::create_dir(linked.path()).unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn credentials_and_sockets_in_a_volume_are_hidden() {
    let docker = Docker::connect();
    let volume = Volume::create(&docker, "secrets", &[]);
    let path = volume.path();
    fs::create_dir(format!("{path}/.aws")).unwrap();
    fs::write(format!("{path}/.aws/credentials"), "the-secret").unwrap();
    let _server = std::os::unix::net::UnixListener::bind(format!("{path}/socket")).unwrap();
    let script = "cat /v/.aws/credentials; test -S /v/socket && echo socket; mv /v/.aws /v/moved; \
                  rm -rf /v/.aws; cat /v/moved/credentials; echo x >/v/new && echo written";
    let seen = |policy: &[&str]| {
        let at = volume.at("/v");
        let options = [policy, &["-v", &at, "test-musl", "sh", "-c", script]].concat();
        docker.run(&options, &[]).stdout
    };
    assert_eq!(seen(&Policy::Standard.options()), "written\n");
    assert!(fs::exists(format!("{path}/.aws/credentials")).unwrap());
    // The control.
    let control = seen(&NO_WALLS);
    assert!(
        control.contains("the-secret") && control.contains("socket\n"),
        "{control}"
    );
}

/// F21: another container can pass its files through a socket in a volume. So none can be made set-user-ID.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f21_a_volume_turns_set_id_files_off_with_the_cause() {
    let docker = Docker::connect();
    let standard = Policy::Standard.options();
    let volume = Volume::create(&docker, "set-id", &[]);
    let at = volume.at("/v");
    let script = "echo x >/v/file; chmod 4755 /v/file; cp /bin/true /tmp/own; chmod 4755 /tmp/own; \
        for i in 1 2 3 4 5 6 7 8 9 10; do grep -q set-id /run/agentbox/denied && break; sleep 0.5; done; cat /run/agentbox/denied";
    let denied = ["--annotation", "dev.agentbox.report.denied=on"];
    let shell = ["test-workloads", "sh", "-c", script];
    let seen = docker.run(&[&standard[..], &["-v", &at], &denied].concat(), &shell);
    let mode = |name: &str| {
        let found = fs::metadata(format!("{}/{name}", volume.path())).unwrap();
        found.permissions().mode() & 0o7000
    };
    assert_eq!(mode("file"), 0, "{seen}");
    assert!(
        seen.stdout.contains("/v is a directory of the node"),
        "{seen}"
    );
    // The control.
    docker.run(&[&NO_WALLS[..], &["-v", &at]].concat(), &shell);
    assert_eq!(mode("file"), 0o4000);

    // A container that writes with the node's ids passes a file of its workspace.
    let attack = |policy: &[&str]| {
        let (disk, own) = (Disk::new("ext4"), Disk::new("ext4"));
        let (theirs, mine) = (mount(&disk), mount(&own));
        let taker = options(policy, &mine, &["-v", &at]);
        let takes = [
            "test-workloads",
            "python3",
            "-c",
            super::passed::TAKES,
            "/v/socket",
        ];
        let taker = docker.start(&taker, &takes);
        taker.await_log("waits");
        let unmapped = [
            "-v",
            &at,
            "--annotation",
            "dev.agentbox.filesystem.idmap=off",
        ];
        let giver = options(policy, &theirs, &unmapped);
        let gives = [
            "test-workloads",
            "python3",
            "-c",
            super::passed::GIVES,
            "/v/socket",
        ];
        docker.run(&giver, &gives).ok();
        let seen = taker.await_log("over");
        fs::remove_file(format!("{}/socket", volume.path())).ok();
        let mut found = disk.set_id();
        found.retain(|(_, uid, _)| *uid != OWNER);
        (seen, found)
    };
    let (seen, found) = attack(&NO_WALLS);
    assert_eq!(found.len(), 3, "{seen}{found:?}");
    let (seen, found) = attack(&standard);
    assert_eq!(found, [], "{seen}");
    assert!(!seen.contains("done"), "{seen}");
}

/// F21: a neighbour gets descriptors through an abstract socket of the network. Another container runs what it makes.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f21_a_neighbour_makes_no_set_id_file_in_a_volume() {
    let docker = Docker::connect();
    let volume = Volume::create(&docker, "neighbour", &[]);
    let (at, path) = (volume.at("/v"), volume.path());
    let made = || {
        let names = ["given", "by-name", "made"].map(|name| format!("{path}/{name}"));
        let found = names.map(|name| fs::metadata(name).map_or(0, |m| m.permissions().mode()));
        found.into_iter().filter(|mode| mode & 0o6000 != 0).count()
    };
    let attack = |first: &[&str], second: &[&str]| {
        let takes = [
            "test-workloads",
            "python3",
            "-c",
            super::passed::TAKES,
            "@x",
        ];
        let taker = docker.start(first, &takes);
        taker.await_log("waits");
        let net = format!("--network=container:{}", taker.name);
        let all = [second, &[&net, "-v", &at, "-w", "/v"]].concat();
        let gives = [
            "test-workloads",
            "python3",
            "-c",
            super::passed::GIVES,
            "@x",
        ];
        (docker.run(&all, &gives), made())
    };
    let standard = Policy::Standard.options();
    // The workspace is one of the caller's, so that the volume is no workspace.
    let scratch = Scratch::new();
    let project = format!("{}:/work:ro", scratch.dir("project"));
    let named = [
        "-v",
        &project,
        "--annotation",
        "dev.agentbox.workspace=/work",
    ];
    let (seen, found) = attack(&standard, &[&standard[..], &named].concat());
    assert!(
        seen.code != 0 && seen.stderr.contains("privileges.set-id=off"),
        "{seen}"
    );
    assert_eq!(found, 0, "{seen}");
    // What the error says helps, and the bits are not set.
    let off = ["--annotation", "dev.agentbox.privileges.set-id=off"];
    let first = [&standard[..], &off].concat();
    let (seen, found) = attack(&first, &[&standard[..], &named].concat());
    assert_eq!((seen.code, found), (0, 0), "{seen}");
    // The control.
    let (seen, found) = attack(&NO_WALLS, &NO_WALLS);
    assert_eq!((seen.code, found), (0, 3), "{seen}");
}

/// Other users of the node may enter a volume by an access list (acl(5)), which the mode does not show; and in a pod the
/// author names paths of the node.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_volume_that_others_may_enter_or_a_pod_names_is_not_written() {
    let docker = Docker::connect();
    let standard = Policy::Standard.options();
    let tried = |more: &[&str], mount: &str| {
        let options = [&standard[..], more, &["-v", mount]].concat();
        let seen = docker.run(&options, &WRITES).stdout;
        seen.trim_end().to_owned()
    };
    // podman's storage, which no other test uses here.
    let store = format!(
        "/var/lib/containers/storage/volumes/acl-{}",
        std::process::id()
    );
    fs::create_dir_all(format!("{store}/_data")).unwrap();
    let mode = |mode| fs::set_permissions(&store, fs::Permissions::from_mode(mode)).unwrap();
    let at = format!("{store}/_data:/v");
    mode(0o711);
    assert_eq!(tried(&[], &at), "refused");
    mode(0o710);
    assert_eq!(tried(&[], &at), "written");
    // setfacl -m u:1234:x
    let list = "020000000100 0700 ffffffff 0200 0100 d2040000 0400 0000 ffffffff 1000 0100 ffffffff 2000 0000 ffffffff";
    let script = format!(
        "import os; os.setxattr('{store}', 'system.posix_acl_access', bytes.fromhex('{list}'))"
    );
    run("python3", &["-c", &script]).ok();
    let shown = fs::metadata(&store).unwrap().permissions().mode() & 0o777;
    assert_eq!(shown, 0o710, "the control: the mode is the same");
    assert_eq!(tried(&[], &at), "refused");
    fs::remove_dir_all(&store).unwrap();

    // cri-dockerd's names, also of a container that shares the network of its pod's sandbox.
    let volume = Volume::create(&docker, "cri", &[]);
    let at = format!("{}:/v", volume.path());
    let name = |name: &str| format!("--name={name}-{}", std::process::id());
    assert_eq!(tried(&[&name("plain")], &at), "written");
    assert_eq!(tried(&[&name("k8s_c_pod_ns_uid_0")], &at), "refused");
    let first = docker.start(&standard, &["test-musl", "sleep", "300"]);
    let off = format!("--network=container:{}", first.name);
    assert_eq!(tried(&[&name("k8s_d_pod_ns_uid_0"), &off], &at), "refused");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_second_bind_is_written_if_an_annotation_lists_it() {
    let docker = Docker::connect();
    let scratch = Scratch::new();
    let [project, second] = ["project", "second"].map(|name| scratch.dir(name));
    let project = format!("{project}:/work");
    let standard = Policy::Standard.options();
    let listed = ["--annotation", "dev.agentbox.filesystem.write=/v"];
    let tried = |source: &str, more: &[&str]| {
        let second = format!("{source}:/v");
        let all = options(&standard, &project, &["-v", &second]);
        docker.run(&[&all, more].concat(), &WRITES)
    };
    assert_eq!(tried(&second, &[]).stdout, "refused\n");
    assert!(!fs::exists(format!("{second}/new")).unwrap());
    assert_eq!(tried(&second, &listed).stdout, "written\n");
    assert!(fs::exists(format!("{second}/new")).unwrap());
    // Never written, whatever is listed: the node's programs run from there.
    let never = format!("/usr/local/share/never-{}", std::process::id());
    fs::create_dir(&never).unwrap();
    let seen = tried(&never, &listed).stdout;
    let left = fs::exists(format!("{never}/new")).unwrap();
    fs::remove_dir_all(&never).unwrap();
    assert_eq!((seen.as_str(), left), ("refused\n", false));
    // Under `strict` nothing besides the workspace is there to be listed.
    let strict = Policy::Strict.options();
    let at = format!("{second}:/v");
    let all = options(&strict, &project, &["-v", &at]);
    let refused = docker.run(&[&all[..], &listed].concat(), &WRITES);
    assert_ne!(refused.code, 0, "{refused}");
}

/// F37: a bind that is too large for the search of `permissive` has the user's own hooks and settings at the end.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_nothing_of_a_large_directory_is_taken_for_planted() {
    const OWN: &str = "[core]\n\thooksPath = .husky\n[alias]\n\tx = !make\n";
    const ENTRIES: usize = 100_001;
    let docker = Docker::connect();
    let scratch = Scratch::new();
    let plants =
        "printf '[core]\\n\\tfsmonitor = evil\\n' >>/work/.git/config; echo x >/work/.envrc";
    for files in [ENTRIES, 10] {
        let name = format!("of-{files}");
        let many = scratch.dir(&format!("{name}/many"));
        for number in 0..files {
            fs::File::create(format!("{many}/{number}")).unwrap();
        }
        let tops = [name.clone(), format!("{name}/many/sub")];
        for top in &tops {
            let hooks = scratch.dir(&format!("{top}/.git/hooks"));
            fs::write(format!("{hooks}/pre-commit"), "own").unwrap();
            fs::write(scratch.path(&format!("{top}/.git/config")), OWN).unwrap();
        }
        let is_kept = |top: &String| {
            let config = scratch.path(&format!("{top}/.git/config"));
            let hook = scratch.path(&format!("{top}/.git/hooks/pre-commit"));
            fs::read_to_string(config).unwrap() == OWN && fs::exists(hook).unwrap()
        };
        let volume = format!("{}:/work", scratch.path(&name));
        let options = [&Policy::Permissive.options()[..], &["-v", &volume]].concat();
        let runs = |script: &str| {
            docker
                .run(&options, &["test-musl", "sh", "-c", script])
                .ok()
        };
        // The container looks: nothing of it is its own.
        runs("ls /work >/dev/null");
        assert!(tops.iter().all(is_kept), "{files}");
        // What it plants at the top is known by name.
        runs(plants);
        let config = fs::read_to_string(scratch.path(&format!("{name}/.git/config"))).unwrap();
        assert!(
            config.starts_with(OWN) && !config.contains("evil"),
            "{config}"
        );
        assert!(!fs::exists(scratch.path(&format!("{name}/.envrc"))).unwrap());
        // The control: in a repository below only a whole search finds it.
        let below = "for d in new/.git/objects new/.git/refs; do mkdir -p /work/$d; done; \
                     printf '[core]\\n\\tfsmonitor = evil\\n' >/work/new/.git/config";
        runs(below);
        let config = fs::read_to_string(scratch.path(&format!("{name}/new/.git/config")));
        assert_eq!(config.unwrap().contains("evil"), files == ENTRIES);
        assert!(is_kept(&tops[1]), "{files}");
    }
}
