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
    if [ -n "${CARGO_TARGET_DIR:-}" ] && [ -d "$CARGO_TARGET_DIR" ]; then
        mount --bind "$CARGO_TARGET_DIR" "$root$CARGO_TARGET_DIR"
    fi
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    # This machine's own settings are not the rig's.
    mkdir -p "$root/etc/agentbox"
    mount -t tmpfs -o mode=755 tmpfs "$root/etc/agentbox"
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
NODES
    ln -s /proc/self/fd "$dev/fd"
    ln -s fd/0 "$dev/stdin"
    ln -s fd/1 "$dev/stdout"
    ln -s fd/2 "$dev/stderr"
}

configure_engine() {
    mkdir -p /etc/docker "$DOCKER_CONFIG"
    jq -n --arg bin "$AGENTBOX_BIN" --arg data "$RIG_STATE/docker" '{
        "data-root": $data, "exec-root": "/run/docker", "pidfile": "/run/docker.pid", "hosts": [env.DOCKER_HOST],
        "log-level": "warn", "shutdown-timeout": 2, "ip6tables": false,
        "runtimes": {
            "agentbox":            { "path": $bin },
            "agentbox-strict":     { "path": $bin, "runtimeArgs": ["--policy", "strict"] },
            "agentbox-unconfined": { "path": $bin, "runtimeArgs": ["--policy", "unconfined"] }
        }
    }' >/etc/docker/daemon.json
}

start_engine() {
    local try
    # A session of its own: ^C is for the command, and the engine is ended afterwards.
    env -i PATH="$PATH" HOME=/root setsid dockerd >"$RIG_STATE/dockerd.log" 2>&1 &
    DOCKERD=$!
    for try in {1..300}; do
        # The socket alone is not enough: it accepts before the API is there.
        if [ -S /run/docker.sock ] && docker version >/dev/null 2>&1; then return 0; fi
        kill -0 "$DOCKERD" 2>/dev/null || break
        sleep 0.1
    done
    tail -20 "$RIG_STATE/dockerd.log" >&2
    die "dockerd did not start (all of its output: $RIG_STATE/dockerd.log)"
}

# What a command, or a rig that was killed, left in the data root; images stay.
remove_containers() {
    local ids
    ids=$(docker ps -aq)
    # shellcheck disable=SC2086 # one word for each container
    [ -z "$ids" ] || timeout 60 docker rm -fv $ids >/dev/null || say "some containers could not be removed"
    docker network prune -f >/dev/null || say "some networks could not be removed"
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
    present=$(docker images -q --no-trunc)
    for name in $names; do
        id=$(cat "$RIG_REPO/build/images/$name.id")
        grep -qxF "$id" <<<"$present" && continue
        say "loading the image $name"
        docker load -q -i "$RIG_REPO/build/images/$name.tar" >/dev/null
        [ "$(docker image inspect -f '{{.Id}}' "$name")" = "$id" ] || die "the image $name was loaded under another id"
    done
    docker image prune -f >/dev/null
}

stop_engine() {
    local try
    [ -n "${DOCKERD:-}" ] && kill -0 "$DOCKERD" 2>/dev/null || return 0
    timeout 60 bash -c "$(declare -f say remove_containers); remove_containers" || say "removing containers took too long"
    kill -TERM "$DOCKERD"
    for try in {1..100}; do
        kill -0 "$DOCKERD" 2>/dev/null || return 0
        sleep 0.1
    done
    say "dockerd did not stop in time; it dies with its namespace"
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
    env -u RIG_NAME -u RIG_STATE -u RIG_CGROUP -u RIG_IMAGES -u RIG_REPO --default-signal=INT,QUIT "$@" <&0 &
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
