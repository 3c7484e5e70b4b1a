#!/usr/bin/env bash
# Pid 1 of a rig: makes the root, starts the engine, runs the command, ends the engine. Called by hack/rig only, in
# namespaces of its own (private mounts), with RIG_* and AGENTBOX_BIN set.
#   rig-inner.sh DIRECTORY COMMAND...
set -Eeuo pipefail
trap 'echo "hack/rig: line $LINENO failed: $BASH_COMMAND" >&2' ERR

say() { printf 'hack/rig: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}
# shellcheck source=cgroups.sh
. "$(dirname "${BASH_SOURCE[0]}")/cgroups.sh"

# The kind of the engine is its name without the version. Each file has:
#   lay_over ROOT         puts the engine into the rig's root (optional: the others are on PATH)
#   configure_engine      writes its configuration, with the runtimes agentbox and agentbox-POLICY
#   start_engine          starts it (ENGINE_PID, if it is a service) and waits until it answers
#   remove_containers     what a command, or a rig that was killed, left; images stay
#   image_ids, load_image FILE NAME ID, prune_images
KIND=${RIG_ENGINE%%[0-9]*}
# shellcheck source=engine-docker.sh
. "$(dirname "${BASH_SOURCE[0]}")/engine-$KIND.sh"

# The machine's root, as an overlay whose upper half is memory: what the rig writes is gone with it.
make_root() {
    local root=$RIG_STATE/root
    # Relative paths, because ':' and ',' mean something in overlay's options.
    cd "$RIG_STATE"
    mount -t tmpfs -o mode=755 rig-scratch scratch
    mkdir scratch/upper scratch/work
    mount -t overlay -o lowerdir=/,upperdir=scratch/upper,workdir=scratch/work rig-root root
    keep_other_file_systems "$root"
    mkdir -p "$root$RIG_REPO" "$root/.old"
    mount --bind "$RIG_REPO" "$root$RIG_REPO"
    # What containers throw away lies on a disk, as on a real machine.
    mkdir -p "$RIG_STATE/agentbox" "$root/var/lib/agentbox"
    mount --bind "$RIG_STATE/agentbox" "$root/var/lib/agentbox"
    if [ -n "${CARGO_TARGET_DIR:-}" ] && [ -d "$CARGO_TARGET_DIR" ]; then
        mount --bind "$CARGO_TARGET_DIR" "$root$CARGO_TARGET_DIR"
    fi
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    # This machine's own settings are not the rig's.
    mkdir -p "$root/etc/agentbox"
    mount -t tmpfs -o mode=755 tmpfs "$root/etc/agentbox"
    if declare -F lay_over >/dev/null; then lay_over "$root"; fi
    make_wrappers "$root/usr/local/bin"
    make_dev "$root/dev"
    mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
    mount -t sysfs -o nosuid,nodev,noexec sysfs "$root/sys"
    mount_cgroups "$RIG_CGROUP" "$root/sys/fs/cgroup"
    cd "$root"
    mount --make-rprivate /
    pivot_root . .old
    umount --lazy /.old
    cd /
    # What Docker expects, and what systemd gives it on a real machine.
    mount --make-rshared /
}

# An overlay shows one file system: others (/home, /usr ...) are bound in, read-only.
keep_other_file_systems() {
    local root=$1 point type
    while read -r point type; do
        case $type in ext[234] | xfs | btrfs | zfs | f2fs | overlay | 9p | virtiofs | nfs*) ;; *) continue ;; esac
        case $point in / | /proc* | /sys* | /dev* | /run* | "$RIG_STATE"/*) continue ;; esac
        [ -d "$point" ] || continue
        mount --bind "$point" "$root$point"
        mount -o remount,bind,ro "$root$point"
    done < <(awk '{ print $2, $3 }' /proc/mounts)
}

# A private, minimal /dev with its own terminals.
make_dev() {
    local dev=$1 node mode major minor
    mount -t tmpfs -o mode=755,nosuid tmpfs "$dev"
    mkdir "$dev"/{pts,shm,net,mqueue}
    mount -t devpts -o newinstance,mode=620,ptmxmode=666,gid=5 devpts "$dev/pts"
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$dev/shm"
    ln -s pts/ptmx "$dev/ptmx"
    while read -r node mode major minor; do
        mknod -m "$mode" "$dev/$node" c "$major" "$minor"
    done <<'NODES'
null 666 1 3
zero 666 1 5
full 666 1 7
random 666 1 8
urandom 666 1 9
tty 666 5 0
kmsg 644 1 11
fuse 666 10 229
net/tun 666 10 200
loop-control 600 10 237
NODES
    # The machine's: no namespace has loop devices of its own.
    for node in {0..255}; do mknod -m 600 "$dev/loop$node" b 7 "$node"; done
    ln -s /proc/self/fd "$dev/fd"
    ln -s fd/0 "$dev/stdin"
    ln -s fd/1 "$dev/stdout"
    ln -s fd/2 "$dev/stderr"
}

# make_wrappers DIRECTORY: agentbox and agentbox-POLICY, for engines that take a path and no arguments.
make_wrappers() {
    local policy
    mkdir -p "$1"
    ln -sfn "$AGENTBOX_BIN" "$1/agentbox"
    for policy in strict standard permissive unconfined; do
        printf '#!/bin/sh\nexec "%s" --policy %s "$@"\n' "$AGENTBOX_BIN" "$policy" >"$1/agentbox-$policy"
        chmod 755 "$1/agentbox-$policy"
    done
}

# await_engine COMMAND...: until it succeeds, while ENGINE_PID lives.
await_engine() {
    local try
    for try in {1..300}; do
        if timeout 10 "$@" >/dev/null 2>&1; then return 0; fi
        kill -0 "$ENGINE_PID" 2>/dev/null || break
        sleep 0.1
    done
    tail -20 "$RIG_STATE/engine.log" >&2
    die "$RIG_ENGINE did not start (all of its output: $RIG_STATE/engine.log)"
}

# Loads each image that the engine does not have as it was built last. build/images/NAME.id is the image's id.
load_images() {
    local name names present id
    if [ "$RIG_IMAGES" = built ]; then
        mkdir -p "$RIG_REPO/build/images"
        names=$(find "$RIG_REPO/build/images" -maxdepth 1 -name '*.id' -printf '%f\n' | sed 's/\.id$//' | sort)
    else
        names=${RIG_IMAGES//,/ }
    fi
    present=$(image_ids)
    for name in $names; do
        id=$(cat "$RIG_REPO/build/images/$name.id")
        grep -qF "${id#sha256:}" <<<"$present" && continue
        say "loading the image $name"
        load_image "$RIG_REPO/build/images/$name.tar" "$name" "$id"
        # Not a pipe: grep leaves at the first match, and a writer then fails.
        present=$(image_ids)
        grep -qF "${id#sha256:}" <<<"$present" || die "the image $name was loaded under another id"
    done
    prune_images
}

stop_engine() {
    local try
    thaw /sys/fs/cgroup
    timeout 60 bash -c "$(declare -f say remove_containers); remove_containers" || say "removing containers took too long"
    [ -n "${ENGINE_PID:-}" ] && kill -TERM "$ENGINE_PID" 2>/dev/null || return 0
    for try in {1..100}; do
        kill -0 "$ENGINE_PID" 2>/dev/null || return 0
        sleep 0.1
    done
    say "$RIG_ENGINE did not stop in time; it dies with its namespace"
}

main() {
    local directory=$1 command rc=0
    shift
    trap 'stop_engine' EXIT
    make_root
    hostname "rig-$RIG_NAME"
    ip link set lo up
    # An IPv6 address of a bridge is usable at once, not after two seconds of looking for duplicates.
    if [ -e /proc/sys/net/ipv6/conf/default/accept_dad ]; then
        echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
    fi
    configure_engine
    start_engine
    remove_containers
    load_images
    touch "$RIG_STATE/ready"
    cd "$directory"
    # In the background, so that a signal can be taken while it runs.
    env -u RIG_NAME -u RIG_ENGINE -u RIG_STATE -u RIG_CGROUP -u RIG_IMAGES -u RIG_REPO --default-signal=INT,QUIT "$@" <&0 &
    command=$!
    trap ':' INT
    trap 'kill -TERM $command 2>/dev/null || true' TERM HUP
    while kill -0 "$command" 2>/dev/null; do
        rc=0
        wait "$command" || rc=$?
    done
    exit $rc
}

main "$@"
