//! Profiles of system calls: `debug` allows its extra calls and no more, and `paranoid` executes no written memory.

use super::{Docker, runtime};
use crate::command::Finished;

const PROFILE: &str = "dev.agentbox.syscalls.profile";

fn under(docker: &Docker, profile: &str, command: &[&str]) -> Finished {
    let annotation = format!("{PROFILE}={profile}");
    let options = [
        runtime(),
        "--user=1000:1000",
        "--annotation",
        &annotation,
        "test-workloads",
    ];
    docker.run(&options, command)
}

const DEBUGGED: &str = r#"
set -eu
cd /tmp
printf 'int twice(int n){return 2*n;}\nint main(void){return twice(3);}\n' >d.c
gcc -g -O0 -o d d.c
gdb --batch -ex 'break twice' -ex run -ex 'print n' -ex 'set var n=5' -ex continue ./d 2>&1 | tee gdb.log
grep -q '[$]1 = 3' gdb.log
grep -q 'exited with code 012' gdb.log
strace -f -o strace.log sh -c 'cat /etc/hostname | wc -l' >/dev/null
grep -q 'openat.*/etc/hostname' strace.log
sleep 60 & strace -p $! -o attached.log & sleep 1; kill %1; wait %2 || true
grep -q 'SIGTERM' attached.log
echo debugged
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn gdb_and_strace_work_under_debug_and_only_there() {
    let docker = Docker::connect();
    let done = under(&docker, "debug", &["bash", "-c", DEBUGGED]);
    assert_eq!(done.stdout.lines().last(), Some("debugged"), "{done}");
    // By exec too: an exec process has the init process's filter.
    let agent = docker.start(
        &[
            runtime(),
            "--annotation",
            &format!("{PROFILE}=debug"),
            "test-workloads",
        ],
        &["sleep", "300"],
    );
    let traced = ["strace", "-o", "/tmp/log", "true"];
    agent.exec(&[], &traced).ok();
    // The container's first process is its own. No other process is visible to trace.
    agent.exec(
        &[],
        &["timeout", "5", "strace", "-o", "/tmp/log", "-p", "1"],
    );
    let seen = agent.exec(&[], &["sh", "-c", "cat /proc/[0-9]*/comm"]).ok();
    assert!(
        !seen.contains("agentbox") && !seen.contains("dockerd"),
        "{seen}"
    );
    let other = agent.exec(&[], &["unshare", "--mount", "true"]);
    assert!(other.stderr.contains("not permitted"), "{other}");
    // The control: without the profile, and beyond a ceiling.
    for profile in ["agent", "paranoid"] {
        let refused = under(&docker, profile, &traced);
        assert!(refused.code != 0, "{profile}: {refused}");
    }
    let beyond = docker.run(
        &[
            runtime(),
            "--annotation=dev.agentbox.policy=strict",
            "--annotation",
            &format!("{PROFILE}=debug"),
            "test-workloads",
        ],
        &["true"],
    );
    assert!(beyond.failed().contains("syscalls.profile"));
}

/// Ways to execute written memory. Each prints its name if it works. The code returns 42.
const MEMORY: &str = r#"
import ctypes, mmap, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.pkey_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
libc.shmat.restype = ctypes.c_void_p
CODE = bytes.fromhex("b82a000000c3")
BAD = ctypes.c_void_p(-1).value
def run(address):
    ctypes.memmove(address, CODE, len(CODE)) if address else None
    return call(address)
def call(address):
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 42
def page(prot, flags=0x22, fd=-1):
    address = libc.mmap(None, 4096, prot, flags, fd, 0)
    if address == BAD: raise OSError(ctypes.get_errno(), "mmap")
    return address
def check(result):
    if result != 0: raise OSError(ctypes.get_errno(), "refused")
def writable_and_executable():
    return run(page(7))
def made_executable():
    address = page(3)
    ctypes.memmove(address, CODE, len(CODE))
    check(libc.mprotect(address, 4096, 5))
    return call(address)
def made_executable_with_a_key():
    address = page(3)
    ctypes.memmove(address, CODE, len(CODE))
    check(libc.pkey_mprotect(address, 4096, 5, -1))
    return call(address)
def shared_segment():
    segment = libc.shmget(0, 4096, 0o1700)
    address = libc.shmat(segment, None, 0o100000)
    if address == BAD: raise OSError(ctypes.get_errno(), "shmat")
    return run(address)
def file_in_memory():
    fd = os.memfd_create("x", 0)
    with open("/bin/true", "rb") as program: os.write(fd, program.read())
    return subprocess.run([f"/proc/self/fd/{fd}"], pass_fds=[fd]).returncode == 0
def sealed_file_in_memory():
    fd = os.memfd_create("x", 8)
    with open("/bin/true", "rb") as program: os.write(fd, program.read())
    try:
        os.fchmod(fd, 0o700)
    except OSError:
        pass
    return subprocess.run([f"/proc/self/fd/{fd}"], pass_fds=[fd]).returncode == 0
for way in [writable_and_executable, made_executable, made_executable_with_a_key, shared_segment, file_in_memory, sealed_file_in_memory]:
    child = os.fork()
    if child == 0:
        try:
            print("executed" if way() else "not executed", way.__name__, flush=True)
        except OSError as error:
            print("refused", way.__name__, error.errno, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn s16_s17_memory_that_was_written_is_not_executed_under_paranoid() {
    let docker = Docker::connect();
    let ways = |profile| {
        let done = under(&docker, profile, &["python3", "-c", MEMORY]).ok();
        assert_eq!(done.lines().count(), 6, "{done}");
        done
    };
    let paranoid = ways("paranoid");
    assert!(
        !paranoid.contains("executed w")
            && !paranoid.lines().any(|line| line.starts_with("executed")),
        "{paranoid}"
    );
    // The control: all work but the sealed file, which the kernel itself refuses.
    let agent = ways("agent");
    let worked = agent.lines().filter(|line| line.starts_with("executed"));
    assert_eq!(worked.count(), 5, "{agent}");
}
