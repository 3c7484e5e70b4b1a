//! Set-user-ID files through another container: by its descriptors, its processes, and its changes to a file (F21).
//!
//! Root inside a container is root of the node. So access through a container that writes with the node's ids equals
//! access to its mounts. And a container may change files that another one left.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::owners::{Disk, OWNER, mount, options};
use super::{Docker, NO_WALLS, Policy};
use crate::command::await_that;

/// Writes with the node's ids, although the workspace is root's.
const UNMAPPED: [&str; 2] = ["--annotation", "dev.agentbox.filesystem.idmap=off"];

/// Waits for descriptors on a socket, and sets the set-user-ID bit of their files.
pub(super) const TAKES: &str = r#"
import os, socket, sys, time
os.umask(0)
def attempt(name, act):
    try:
        act()
        print(name, 'done', flush=True)
    except OSError as error:
        print(name, error.strerror, flush=True)
print('waits', flush=True)
s = socket.socket(socket.AF_UNIX)
for _ in range(300):
    try:
        s.connect(sys.argv[1].replace('@', '\0'))
        break
    except OSError:
        time.sleep(0.1)
_, (file, directory), _, _ = socket.recv_fds(s, 10, 2)
attempt('mode', lambda: os.fchmod(file, 0o6755))
attempt('file', lambda: os.open('made', os.O_CREAT | os.O_WRONLY, 0o6755, dir_fd=directory))
os.fchdir(directory)
attempt('name', lambda: os.chmod('by-name', 0o6755))
s.send(b'.')
print('over', flush=True)
"#;

/// Makes a socket, and passes a file and a directory of its own mount.
pub(super) const GIVES: &str = r#"
import os, shutil, socket, sys
for name in 'given', 'by-name':
    shutil.copy('/bin/true', name)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1].replace('@', '\0'))
if not sys.argv[1].startswith('@'):
    os.chmod(sys.argv[1], 0o777)
s.listen()
s.settimeout(30)
c, _ = s.accept()
socket.send_fds(c, [b'.'], [os.open('given', os.O_RDONLY), os.open('.', os.O_RDONLY)])
c.recv(1)
"#;

fn python<'a>(program: &'a str, argument: &'a str) -> [&'a str; 5] {
    ["test-workloads", "python3", "-c", program, argument]
}

/// Files of node accounts other than the owner.
fn of_others(disk: &Disk) -> Vec<(String, u32, u32)> {
    let mut found = disk.set_id();
    found.retain(|(_, uid, _)| *uid != OWNER);
    found
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f21_a_descriptor_from_a_socket_in_a_read_only_directory_becomes_no_set_id_file() {
    let docker = Docker::connect();
    let attack = |taker: &[&str], giver: &[&str]| {
        let disk = Disk::new("ext4");
        let reads = format!("{}:/shared:ro", disk.path(""));
        let taker = [taker, &["-v", &reads]].concat();
        let taker = docker.start(&taker, &python(TAKES, "/shared/socket"));
        taker.await_log("waits");
        let writes = mount(&disk);
        let giver = options(giver, &writes, &UNMAPPED);
        docker.run(&giver, &python(GIVES, "/work/socket")).ok();
        (taker.await_log("over"), of_others(&disk))
    };
    let (seen, found) = attack(&NO_WALLS, &NO_WALLS);
    assert_eq!(found.len(), 3, "{seen}{found:?}");
    let standard = Policy::Standard.options();
    let (seen, found) = attack(&standard, &standard);
    assert_eq!(found, [], "{seen}");
    assert!(!seen.contains("done"), "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f21_a_container_in_anothers_namespaces_makes_no_set_id_file_there() {
    let docker = Docker::connect();
    let standard = Policy::Standard.options();
    // Through an abstract socket of the network, and through /proc of the other's processes.
    let by_process = "import os; os.umask(0); print('waits', flush=True); os.chmod('/proc/1/root/work/given', 0o6755); \
        print('mode done')";
    let attack = |policy: &[&str], kind: &str, taker: [&str; 5]| {
        let disk = Disk::new("ext4");
        let writes = mount(&disk);
        let giver = docker.start(&options(policy, &writes, &UNMAPPED), &python(GIVES, "@x"));
        await_that("a file to give", || {
            fs::exists(disk.path("by-name")).unwrap()
        });
        let shares = format!("container:{}", giver.name);
        let options = [policy, &[kind, &shares]].concat();
        let seen = docker.run(&options, &taker);
        (seen.stdout, of_others(&disk).len())
    };
    for (kind, taker, all) in [
        ("--network", python(TAKES, "@x"), 3),
        ("--pid", python(by_process, "-"), 1),
    ] {
        let (seen, found) = attack(&NO_WALLS, kind, taker);
        assert_eq!(found, all, "{kind}: {seen}");
        let (seen, found) = attack(&standard, kind, taker);
        assert!(seen.contains("waits"), "{kind}: {seen}");
        assert!(!seen.contains("done"), "{kind}: {seen}");
        assert_eq!(found, 0, "{kind}: {seen}");
    }
}

/// The reverse: the container that may make such files is there first.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f21_no_container_with_the_nodes_ids_comes_to_one_that_makes_set_id_files() {
    let docker = Docker::connect();
    let standard = Policy::Standard.options();
    let disk = Disk::new("ext4");
    let writes = mount(&disk);
    let sleeps = ["test-workloads", "sleep", "300"];
    let off = ["--annotation", "dev.agentbox.privileges.set-id=off"];
    for kind in ["--network", "--pid", "--ipc"] {
        for (more, refused) in [(&[][..], true), (&off[..], false)] {
            let shareable = ["--ipc", "shareable"];
            let first = docker.start(&[&standard[..], &shareable, more].concat(), &sleeps);
            let joins = format!("container:{}", first.name);
            // The walls must be the same.
            let joins = [&UNMAPPED[..], more, &[kind, &joins]].concat();
            let seen = docker.run(
                &options(&standard, &writes, &joins),
                &["test-workloads", "true"],
            );
            assert_eq!(seen.code != 0, refused, "{kind}: {seen}");
            let why = "has the node's ids here; start";
            assert_eq!(seen.stderr.contains(why), refused, "{kind}: {seen}");
            // A container that writes nothing may join.
            let joins = format!("container:{}", first.name);
            let options = [&standard[..], more, &[kind, &joins]].concat();
            docker.run(&options, &["test-workloads", "true"]).ok();
        }
    }
}

/// Left by a container that may make such files: a set-group-ID file of the owner's group that nothing can execute.
const LEAVES: &str =
    "import os, shutil; os.umask(0); shutil.copy('/bin/true', 'f'); os.chmod('f', 0o2644)";

/// Another container's change to it, without setting a bit: it gives the file to a node group, and lets that group
/// execute it.
const TURNS: &str = r"
import os, struct
os.umask(0)
owner = os.stat('f')
os.setgroups([owner.st_gid, 4])
os.chown('f', -1, 4)
entries = ((1, 6), (4, 5), (32, 5))
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', tag, perm, 2**32 - 1) for tag, perm in entries)
for name in 'f', '/tmp/own':
    open('/tmp/own', 'w').close()
    try:
        os.setxattr(name, 'system.posix_acl_access', acl)
        print(name, 'done')
    except OSError as error:
        print(name, error.strerror)
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn f21_a_set_group_id_file_is_executed_for_no_other_group() {
    let docker = Docker::connect();
    let attack = |leaves: &[&str], turns: &[&str], between: fn(&Disk)| {
        let disk = Disk::new("ext4");
        fs::set_permissions(disk.path(""), fs::Permissions::from_mode(0o777)).unwrap();
        let mount = mount(&disk);
        docker
            .run(&options(leaves, &mount, &[]), &python(LEAVES, "-"))
            .ok();
        between(&disk);
        let seen = docker
            .run(&options(turns, &mount, &[]), &python(TURNS, "-"))
            .ok();
        let found = fs::metadata(disk.path("f")).unwrap();
        (seen, found.gid(), found.mode() & 0o2010)
    };
    let nothing = |_: &Disk| {};
    // The same container's next run, in a project where the user has used sudo since: root and the owner change places.
    let sudo = |disk: &Disk| disk.file("left", (0, 0, 0o644));
    let standard = Policy::Standard.options();
    let unmapped = [&standard[..], &UNMAPPED].concat();
    let (seen, gid, mode) = attack(&NO_WALLS, &NO_WALLS, nothing);
    assert_eq!((gid, mode), (4, 0o2010), "{seen}");
    for (turns, between) in [(&standard[..], sudo as fn(&Disk)), (&unmapped[..], nothing)] {
        let (seen, _, mode) = attack(&standard, turns, between);
        assert_ne!(mode, 0o2010, "{seen}");
        assert!(seen.contains("f Operation not supported"), "{seen}");
    }
    // If the owner is alone there is no other group, and attributes can be set.
    let (seen, gid, _) = attack(&standard, &standard, nothing);
    assert!(gid > 0x7ffe_0000, "{gid}: {seen}");
    assert!(seen.contains("f done"), "{seen}");
}
