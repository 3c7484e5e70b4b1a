//! The next `wrap`, `list` and `delete --force` remove a killed `wrap`'s leftovers, and no living one.

use crate::command::{Finished, finish};
use crate::direct::{Scratch, program};
use crate::docker::Docker;

/// With its own run directory, so that no other test cleans up. `has` reports whether anything of an id exists.
const KILLED: &str = r#"
mkdir -p /run/agentbox && mount -t tmpfs -o mode=700 none /run/agentbox && cd "$1" || exit 9
has() {
    found=$(find /run/agentbox/wrap /run/agentbox/index /sys/fs/cgroup -name "*$1*" 2>/dev/null)
    [ -n "$found" ] && echo yes || echo no
}
begin() {
    rm -f ready
    "$AGENTBOX" wrap -- bash -c 'echo >ready; sleep 50' &
    for n in {1..400}; do [ -e ready ] && return; sleep 0.05; done
    exit 8
}
begin; living=$!
alive=$(cd /run/agentbox/wrap; echo wrap-*)
begin; kill -9 $!; wait $! 2>/dev/null
dead=$(cd /run/agentbox/wrap; echo wrap-* | sed "s/$alive//; s/ //g")
echo "killed: $(has "$dead")"
eval "$2" >&2
echo "after: $(has "$dead")"
echo "living: $(has "$alive")"
kill -TERM $living; wait $living
echo "status: $?"
echo "rest: $(has "$alive")"
"#;

/// The next owner of a uid finds what the earlier one left in /dev/shm. `$2` is where a directory of the same name as a
/// bundle is.
const OBEYED: &str = r#"
mkdir -p /run/agentbox && mount -t tmpfs -o mode=700 none /run/agentbox && cd "$1" || exit 9
mkdir -p -m 700 /run/agentbox/wrap/Documents home/Documents home/box /run/agentbox/wrap/box
echo thesis >home/Documents/thesis; echo '{}' >home/box/state.json
printf %s "$PWD/home" | tee /run/agentbox/wrap/Documents/alive >/run/agentbox/wrap/box/alive
"$AGENTBOX" wrap -- true
ls /run/agentbox/wrap home
cat home/Documents/thesis
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn f49_the_next_run_removes_no_directory_that_is_no_containers() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let dir = scratch.dir("project");
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "bash", "-c", OBEYED, "-", &dir]);
    let ran = finish(command.env("AGENTBOX", program()));
    assert!(ran.stderr.contains("it is no container's"), "{ran}");
    // The control: libcontainer's directory is removed.
    assert_eq!(
        ran.ok(),
        "/run/agentbox/wrap:\n\nhome:\nDocuments\nthesis\n"
    );
}

fn after(verb: &str) -> Finished {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let dir = scratch.dir("project");
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "bash", "-c", KILLED, "-", &dir, verb]);
    finish(command.env("AGENTBOX", program()))
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a14_what_a_killed_one_left_is_removed_by_the_next_and_a_living_one_stays() {
    for verb in [
        "\"$AGENTBOX\" wrap -- true",
        "\"$AGENTBOX\" list",
        "\"$AGENTBOX\" delete --force $dead",
    ] {
        let seen = after(verb).ok();
        let wanted = "killed: yes\nafter: no\nliving: yes\nstatus: 143\nrest: no\n";
        assert_eq!(seen, wanted, "{verb}");
    }
    // The control: nothing else removes it.
    let seen = after("true").ok();
    assert!(seen.contains("killed: yes\nafter: yes\n"), "{seen}");
}
