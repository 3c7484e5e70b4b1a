#!/usr/bin/env bash
# What hack/vm runs in its machine: agentbox under Docker and podman and by hand, where cgroup v2, systemd and the
# kernel's own age are real. Each case is a function; one that fails says why and the others go on.
set -uo pipefail

PAYLOAD=/payload
BIN=/usr/local/bin/agentbox
PASSED=0 FAILED=0
RELEASE=$(uname -r)
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

# check NAME COMMAND...: one case. Its output is shown when it fails.
check() {
    local name=$1 start=$SECONDS said rc=0
    shift
    [[ $name = *"$(cat $PAYLOAD/only)"* ]] || return 0
    said=$(timeout --kill-after=5 240 bash -c "$(declare -f); $(declare -p BIN RELEASE IMAGE_ROOT TUNNELS SLICE); set -euo pipefail; $*" 2>&1) || rc=$?
    if [ "$rc" = 0 ]; then
        PASSED=$((PASSED + 1))
        echo "ok      $name ($((SECONDS - start)) s)"
    else
        FAILED=$((FAILED + 1))
        echo "FAILED  $name (exit $rc after $((SECONDS - start)) s)"
        sed 's/^/        /' <<<"$said" | tail -15
        [ "$rc" != 124 ] || diagnose | sed 's/^/        # /'
    fi
}

# What was going on when a case did not end.
diagnose() {
    ps -eo pid,ppid,stat,wchan:24,etimes,args | grep -v '\]$' | tail -25 | cut -c1-150
    journalctl --no-pager -q -n 8 -o cat
}

fail() {
    echo "$*"
    return 1
}
equal() { [ "$1" = "$2" ] || fail "expected '$2', found '$1'"; }
# exits CODE COMMAND...
exits() {
    local want=$1 rc=0
    shift
    "$@" || rc=$?
    equal "$rc" "$want"
}

# --- the machine ----------------------------------------------------------------------------------------------------

install_all() {
    cp $PAYLOAD/agentbox $BIN
    mkdir -p /etc/docker
    cat >/etc/docker/daemon.json <<JSON
{ "ip6tables": false, "runtimes": {
    "agentbox": { "path": "$BIN" },
    "agentbox-unconfined": { "path": "$BIN", "runtimeArgs": ["--policy", "unconfined"] },
    "agentbox-strict": { "path": "$BIN", "runtimeArgs": ["--policy", "strict"] },
    "agentbox-permissive": { "path": "$BIN", "runtimeArgs": ["--policy", "permissive"] } } }
JSON
    printf '#!/bin/sh\nexec %s --policy unconfined "$@"\n' $BIN >/usr/local/bin/agentbox-unconfined
    chmod +x /usr/local/bin/agentbox-unconfined
    systemctl restart docker
    docker load -q -i $PAYLOAD/test-musl.tar
    podman load -q -i $PAYLOAD/test-musl.tar
    IMAGE_ROOT=/srv/rootfs
    mkdir -p $IMAGE_ROOT
    docker create --name image test-musl
    docker export image | tar -x -C $IMAGE_ROOT
    docker rm image
}

the_machine_is_what_it_should_be() {
    equal "$(stat -f -c %T /sys/fs/cgroup)" cgroup2fs
    equal "$(docker info -f '{{.CgroupDriver}} {{.CgroupVersion}}')" "systemd 2"
    for controller in cpu memory pids; do
        grep -qw $controller /sys/fs/cgroup/cgroup.controllers || fail "no $controller"
    done
}

# --- Docker ---------------------------------------------------------------------------------------------------------

run() { docker run --rm --network none --runtime="$RUNTIME" "$@"; }

an_engine_runs_a_container() { equal "$(run test-musl sh -c 'echo $((6 * 7))')" 42; }

memory_is_limited() {
    exits 137 run --memory 32m --memory-swap 32m test-musl dd if=/dev/zero of=/dev/null bs=100M count=1
}

processes_are_limited() {
    local said
    said=$(run --pids-limit 8 test-musl sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1 & done; wait' 2>&1 || true)
    grep -qi "can't fork" <<<"$said" || fail "nobody was kept from forking: $said"
}

# The cgroup of a container of Docker's.
cgroup_of() {
    local pid
    pid=$(docker inspect -f '{{.State.Pid}}' "$1")
    echo "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$pid/cgroup")"
}

a_scope_is_made_and_removed() {
    local id scope cgroup before after
    id=$(docker run -d --network none --runtime="$RUNTIME" --memory 64m --cpus 0.1 test-musl sh -c 'while :; do :; done')
    scope=docker-$id.scope
    cgroup=$(cgroup_of "$id")
    equal "$(systemctl is-active "$scope")" active
    equal "$(basename "$cgroup")" "$scope"
    equal "$(cat "$cgroup/memory.max")" 67108864
    equal "$(cat "$cgroup/cpu.max")" "10000 100000"
    before=$(work_of "$cgroup")
    sleep 2
    after=$(work_of "$cgroup")
    # The kernel has AppArmor, and Docker a profile for it.
    equal "$(cat "/proc/$(docker inspect -f '{{.State.Pid}}' "$id")/attr/current")" "docker-default (enforce)"
    [ $((after - before)) -lt 1000000 ] || fail "$((after - before)) us of work in two seconds of a tenth of a processor"
    docker update --memory 96m --memory-swap 96m "$id"
    equal "$(cat "$cgroup/memory.max")" 100663296
    equal "$(cat "$cgroup/cpu.max")" "10000 100000"
    docker pause "$id"
    equal "$(awk '$1 == "frozen" { print $2 }' "$cgroup/cgroup.events")" 1
    docker unpause "$id"
    docker stats --no-stream --format '{{.MemUsage}}' "$id" | grep -q '96MiB'
    equal "$(docker exec "$id" echo hello)" hello
    docker top "$id" | grep -q 'while'
    docker rm -f "$id"
    gone "$scope" "$id"
}

# Microseconds of processor time that a cgroup has used.
work_of() { awk '$1 == "usage_usec" { print $2 }' "$1/cpu.stat"; }

# gone SCOPE ID: nothing is left of a container.
gone() {
    local try
    for try in {1..50}; do
        if ! systemctl is-active --quiet "$1" && [ -z "$(find /sys/fs/cgroup -type d -name "*$2*")" ]; then break; fi
        sleep 0.1
    done
    [ "$(systemctl is-active "$1" || true)" != active ] || fail "$1 is still active"
    equal "$(find /sys/fs/cgroup -type d -name "*$2*")" ""
    equal "$(ls /run/agentbox/index | grep -F "$2" || true)" ""
}

devices_are_denied() {
    # Block device 254:0 is this machine's disk.
    local read='mknod /dev/disk b 254 0 && head -c 1 /dev/disk | wc -c' said
    said=$(run --cap-add MKNOD test-musl sh -c "$read" 2>&1 || true)
    grep -q 'not permitted' <<<"$said" || fail "a device could be opened: $said"
    equal "$(run --cap-add MKNOD --device-cgroup-rule 'b 254:0 r' test-musl sh -c "$read")" 1
    equal "$(run --privileged test-musl sh -c "$read")" 1
}

no_device_comes_in_under_a_policy() {
    local said id
    said=$(run --cap-add MKNOD test-musl sh -c 'mknod /tmp/disk b 254 0; for one in null zero full random urandom ptmx; do : </dev/$one && echo $one; done' 2>&1 || true)
    grep -q 'not permitted' <<<"$said" || fail "$said"
    # What two streams bring has no order.
    equal "$(grep -v mknod <<<"$said" | paste -sd' ')" "null zero full random urandom ptmx"
    # What runs in its cgroup, be it root from outside, opens no disk.
    head -c 1 /dev/vda | wc -c | grep -qx 1
    id=$(docker run -d --network none --runtime="$RUNTIME" test-musl sleep 100)
    said=$(sh -c 'echo $$ >"$1/cgroup.procs" && head -c 1 /dev/vda' - "$(cgroup_of "$id")" 2>&1 || true)
    docker rm -f "$id"
    grep -q 'not permitted' <<<"$said" || fail "a device could be opened from the cgroup: $said"
}

# Every step of the probe: what must not be possible behind the walls, with an answer that is a denial.
the_walls_stand() {
    local said id
    said=$(run test-musl probe all)
    for step in mount bpf io_uring_setup userfaultfd keyctl unshare-newuser ptrace; do
        awk -F'\t' -v step="$step" '$1 ~ step && $2 == "ok" { bad = 1; print } END { exit bad }' <<<"$said" || fail "$step is allowed"
    done
    said=$(run test-musl sh -c 'cat /proc/net/route | wc -l; grep -E "^(NoNewPrivs|Seccomp):" /proc/self/status; ls /sys/class/net' 2>&1 || true)
    equal "$(head -1 <<<"$said")" 1
    grep -qE 'NoNewPrivs:.1' <<<"$said" && grep -qE 'Seccomp:.2' <<<"$said" || fail "$said"
    equal "$(tail -1 <<<"$said")" lo
    # What is written to the root is in the engine's layer.
    id=$(docker run -d --network none --runtime="$RUNTIME" test-musl sh -c 'echo mine >/etc/x; sleep 100')
    said=$(until docker exec "$id" cat /etc/x 2>/dev/null; do sleep 0.2; done)
    equal "$said" mine
    equal "$(docker diff "$id" | grep -F /etc/x || true)" "A /etc/x"
    docker rm -f "$id"
    said=$(docker run --rm --network none --runtime=agentbox-strict test-musl touch /etc/x 2>&1 || true)
    grep -q 'Read-only file system' <<<"$said" || fail "$said"
}

# F-H2: a crash in a container starts nothing on the machine, whatever its program says of its own limits.
a_crash_starts_no_helper() {
    local crash='ulimit -S -c 0; sh -c "kill -SEGV \$\$"; true' before
    printf '#!/bin/sh\necho "$1" >>/run/helper-ran\ncat >/dev/null\n' >/srv/helper
    chmod 755 /srv/helper
    before=$(cat /proc/sys/kernel/core_pattern)
    echo '|/srv/helper %u' >/proc/sys/kernel/core_pattern
    rm -f /run/helper-ran
    sh -c "$crash"
    sleep 2
    [ -e /run/helper-ran ] || fail "the control: no helper was started"
    rm /run/helper-ran
    run test-musl sh -c "$crash"
    run --user 1000 test-musl sh -c "$crash"
    mkdir -p /srv/crash && cd /srv/crash && $BIN wrap --policy strict -- sh -c "$crash"
    sleep 2
    echo "$before" >/proc/sys/kernel/core_pattern
    [ ! -e /run/helper-ran ] || fail "the helper was started for $(paste -sd, /run/helper-ran)"
}

the_sidecar_is_limited() {
    local id cgroup
    id=$(docker run -d --network none --runtime=agentbox test-musl sleep 100)
    cgroup=$(find /sys/fs/cgroup -type d -name "agentbox-sidecar-*$id*")
    [ -n "$cgroup" ] || fail "the sidecar has no cgroup"
    equal "$(cat "$cgroup/memory.max")" 67108864
    equal "$(cat "$cgroup/pids.max")" 16
    equal "$(cat "$cgroup/cpu.max")" "50000 100000"
    grep -q . "$cgroup/cgroup.procs" || fail "nobody is in it"
    $BIN explain "$id" | grep -qi standard || fail "explain does not name the policy"
    docker rm -f "$id"
    equal "$(find /sys/fs/cgroup -type d -name "*$id*")" ""
}

# --- podman ---------------------------------------------------------------------------------------------------------

pod() { podman run --rm --network none --runtime "$1" "${@:2}"; }

podman_runs_under_a_scope() {
    local id
    id=$(podman run -d --network none --runtime "$1" --memory 64m test-musl sleep 100)
    systemctl is-active "libpod-$id.scope"
    equal "$(cat "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$(podman inspect -f '{{.State.Pid}}' "$id")/cgroup")/memory.max")" 67108864
    equal "$(podman exec "$id" echo hello)" hello
    podman rm -f -t 0 "$id"
    [ "$(systemctl is-active "libpod-$id.scope" || true)" != active ] || fail "the scope stayed"
    exits 137 pod "$1" --memory 32m --memory-swap 32m test-musl dd if=/dev/zero of=/dev/null bs=100M count=1
}

# --- by hand --------------------------------------------------------------------------------------------------------

# bundle DIR CGROUPS_PATH ARGS: a config.json.
bundle() {
    mkdir -p "$1"
    rm -f "$1/config.json"
    $BIN spec --bundle "$1"
    jq --arg root "$IMAGE_ROOT" --arg path "$2" --arg script "$3" '.process.terminal = false | .root.path = $root |
        .process.args = ["sh", "-c", $script] | del(.process.capabilities.ambient) | .linux.cgroupsPath = $path |
        .linux.resources.memory = {"limit": 67108864} | .linux.resources.pids = {"limit": 20}' \
        "$1/config.json" >"$1/new"
    mv "$1/new" "$1/config.json"
}

by_hand_with_the_systemd_driver() {
    local box="$BIN --systemd-cgroup --root /run/hand" dir cgroup
    [ "$1" = standard ] || box="$box --policy unconfined"
    bundle "/srv/hand-$1" "system.slice:hand:$1" 'sleep 1000'
    $box create --bundle "/srv/hand-$1" "hand-$1" </dev/null >/dev/null 2>&1 || $box create --bundle "/srv/hand-$1" "hand-$1"
    systemctl is-active "hand-$1.scope"
    cgroup=/sys/fs/cgroup/system.slice/hand-$1.scope
    equal "$(cat $cgroup/memory.max)" 67108864
    equal "$(cat $cgroup/pids.max)" 20
    $box start "hand-$1"
    equal "$($box exec "hand-$1" echo hello)" hello
    printf '{"memory": {"limit": 100663296}, "pids": {"limit": 30}, "cpu": {"quota": 20000, "period": 100000}}' |
        $box update --resources - "hand-$1"
    equal "$(cat $cgroup/memory.max)" 100663296
    equal "$(cat $cgroup/pids.max)" 30
    equal "$(cat $cgroup/cpu.max)" "20000 100000"
    # What systemd was told stays when it looks at its units again.
    systemctl daemon-reload
    equal "$(cat $cgroup/memory.max)" 100663296
    $box pause "hand-$1"
    equal "$(jq -r .status <<<"$($box state "hand-$1")")" paused
    $box resume "hand-$1"
    $box ps "hand-$1" | grep -q sleep
    $box kill "hand-$1" KILL
    for try in {1..100}; do [ "$(jq -r .status <<<"$($box state "hand-$1")")" != stopped ] || break && sleep 0.1; done
    $box delete "hand-$1"
    gone "hand-$1.scope" "hand-$1"
}

by_hand_without_systemd() {
    local box="$BIN --root /run/hand --policy unconfined" cgroup=/sys/fs/cgroup/by-hand/one pid
    bundle /srv/plain /by-hand/one 'sleep 1000'
    $box create --bundle /srv/plain plain </dev/null >/dev/null 2>&1
    equal "$(cat $cgroup/memory.max)" 67108864
    $box start plain
    equal "$($box exec plain echo hello)" hello
    $box update --memory 96M --memory-reservation 32M --memory-swap 128M --pids-limit 30 --cpu-share 512 \
        --cpu-quota 20000 --cpu-period 50000 --cpuset-cpus 0 plain
    equal "$(cd $cgroup && cat memory.max memory.low memory.swap.max pids.max cpu.weight cpu.max cpuset.cpus | paste -sd,)" \
        "100663296,33554432,33554432,30,20,20000 50000,0"
    $box update --memory -1 --memory-swap -1 --pids-limit -1 plain
    equal "$(cd $cgroup && cat memory.max memory.swap.max pids.max | paste -sd,)" max,max,max
    printf '{"unified": {"memory.high": "50331648"}}' | $box update --resources - plain
    equal "$(cat $cgroup/memory.high)" 50331648
    $box update --memory 64M plain
    jq -e '.type == "stats" and .id == "plain" and .data.memory.usage.limit == 67108864 and .data.pids.current >= 1
        and .data.cpu.usage.total > 0' <<<"$($box events --stats plain)"
    mkdir $cgroup/sub
    $box exec -d --pid-file /run/pid --cgroup /sub plain sleep 100 </dev/null >/dev/null 2>&1
    pid=$(cat /run/pid)
    equal "$(sed -n 's/^0:://p' "/proc/$pid/cgroup")" /by-hand/one/sub
    exits 255 $box exec --cgroup ../../x plain true
    exits 255 $box exec --cgroup cpu:/sub plain true
    $box exec --pid-file /run/pid plain true
    $box delete --force plain
    [ ! -e $cgroup ] || fail "its cgroup stayed"
}

# K-2: a pod with less processor time than a sidecar may use, with the kubelet's two drivers.
a_pod_with_small_limits_starts() {
    local driver=$1 pod box path sidecar kubepods=/sys/fs/cgroup/kubepods
    case $driver in
        cgroupfs)
            box="$BIN --root /run/hand" path=/kubepods/small/app pod=$kubepods/small sidecar=$kubepods/small
            mkdir -p $pod
            echo "+cpu +memory +pids" >$kubepods/cgroup.subtree_control
            echo "10000 100000" >$pod/cpu.max
            echo 67108864 >$pod/memory.max
            ;;
        systemd)
            box="$BIN --systemd-cgroup --root /run/hand" path=kubepods-small.slice:cri:app pod=/sys/fs/cgroup/kubepods.slice/kubepods-small.slice
            # What is below a slice is systemd's alone (docs/engines.md).
            sidecar=/sys/fs/cgroup/agentbox
            systemctl start kubepods-small.slice
            systemctl set-property --runtime kubepods-small.slice CPUQuota=10% MemoryMax=64M
            ;;
    esac
    bundle "/srv/small-$driver" "$path" 'sleep 1000'
    # systemd writes a quota of 10 % of its period.
    equal "$(awk '{ print $1 / $2 }' $pod/cpu.max) $(cat $pod/memory.max)" "0.1 67108864"
    for allow in "" api.example.test; do
        jq --arg allow "$allow" 'if $allow == "" then . else .annotations["dev.agentbox.network.allow"] = $allow end' \
            "/srv/small-$driver/config.json" >"/srv/small-$driver/new"
        mv "/srv/small-$driver/new" "/srv/small-$driver/config.json"
        $box create --bundle "/srv/small-$driver" small </dev/null >/dev/null 2>&1
        $box start small
        equal "$(jq -r .status <<<"$($box state small)")" running
        equal "$($box exec small echo hello)" hello
        grep -q . "$(find $sidecar -type d -name 'agentbox-sidecar-*small')/cgroup.procs" || fail "the sidecar is not in $sidecar"
        $box delete --force small
        equal "$(find $sidecar -type d -name 'agentbox-sidecar-*small')" ""
        equal "$(find $pod -mindepth 1 -type d)" ""
    done
}

seccomp_and_landlock_are_this_kernels() {
    local said
    said=$($BIN features)
    jq -e .linux.seccomp.enabled <<<"$said"
    cd /srv && mkdir -p project && cd project
    equal "$($BIN wrap -- sh -c 'echo made >file; cat file')" made
    exits 1 $BIN wrap --policy strict -- sh -c 'cat /etc/shadow'
}

# --- wrap without root's rights -------------------------------------------------------------------------------------

SLICE=/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice

# What follows, as the user dev in a project of theirs, whose systemd runs.
as_dev() {
    cd /home/dev/project
    runuser -u dev -- env -i HOME=/home/dev USER=dev LOGNAME=dev PATH="$PATH" XDG_RUNTIME_DIR=/run/user/1000 "$@"
}

# until_true COMMAND...: for five seconds.
until_true() {
    local try
    for try in {1..50}; do
        if "$@"; then return; fi
        sleep 0.1
    done
    fail "not within five seconds: $*"
}

no_scope_is_left() { [ -z "$(find /sys/fs/cgroup -path '*agentbox-wrap-*' -o -name 'agentbox-sidecar-wrap-*')" ]; }

a_users_wrap_is_limited() {
    local scope said wrap
    install -d -o dev -g dev /home/dev/project
    systemctl start user@1000.service
    # The control: the same command, with a limit that lets it.
    as_dev $BIN wrap --set limits.memory=512MiB -- dd if=/dev/zero of=/dev/null bs=100M count=1
    exits 137 as_dev $BIN wrap --set limits.memory=48MiB -- dd if=/dev/zero of=/dev/null bs=100M count=1
    said=$(as_dev $BIN wrap --set limits.pids=16 -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do sleep 1 & done; wait' 2>&1 || true)
    grep -qi 'fork' <<<"$said" || fail "nobody was kept from forking: $said"
    until_true no_scope_is_left
    # The numbers of the built-in policy, in a scope of the user's own systemd; the sidecar has its own.
    as_dev $BIN wrap --name limited --set limits.cpus=0.5 --set limits.memory=256MiB -- sleep 100 &
    until_true sh -c "grep -q . $SLICE/agentbox-wrap-*.scope/agentbox-limited/cgroup.procs 2>/dev/null"
    scope=$(echo $SLICE/agentbox-wrap-*.scope)
    equal "$(cat "$scope/agentbox-limited/cpu.max")" "50000 100000"
    equal "$(cat "$scope/agentbox-limited/memory.max")" 268435456
    grep -qE '^[0-9]+$' "$scope/agentbox-limited/pids.max" || fail "processes are not limited"
    equal "$(cat "$scope"/agentbox-sidecar-*/memory.max)" 67108864
    grep -q . "$scope"/agentbox-sidecar-*/cgroup.procs || fail "the sidecar is not in its cgroup"
    said=$(as_dev $BIN explain limited)
    grep -q 'nothing holds' <<<"$said" && fail "explain says that nothing holds: $said"
    # Killed, it leaves nothing: neither a process nor a cgroup.
    wrap=$(pgrep -f "^$BIN wrap --name limited" | head -1)
    kill -KILL "$wrap"
    until_true no_scope_is_left
    # A name that is free again, and the end of an ordinary run.
    as_dev $BIN wrap --name limited -- true
    until_true no_scope_is_left
    equal "$(systemctl --user --machine=dev@ list-units --all --plain --no-legend 'agentbox-wrap-*' 2>/dev/null || true)" ""
}

a_cgroup_that_was_given_to_a_unit_is_used() {
    local said
    said=$(systemd-run --quiet --pipe --wait --uid=dev -p Delegate=yes -p WorkingDirectory=/home/dev/project -E PATH="$PATH" -E HOME=/home/dev \
        $BIN wrap --set limits.pids=16 -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do sleep 1 & done; wait' 2>&1 || true)
    grep -qi 'fork' <<<"$said" || fail "nobody was kept from forking: $said"
}

a_limit_that_nothing_holds_is_refused() {
    local said
    said=$(cd /home/dev/project && runuser -u dev -- env -i HOME=/home/dev PATH="$PATH" $BIN wrap --set limits.pids=16 -- true 2>&1 && echo started || true)
    grep -q 'cannot be enforced' <<<"$said" && grep -q 'busctl --user' <<<"$said" || fail "$said"
    said=$(cd /home/dev/project && runuser -u dev -- env -i HOME=/home/dev PATH="$PATH" $BIN explain)
    grep -q 'nothing holds these limits' <<<"$said" || fail "explain does not say so: $said"
}

# Part of what many nodes of clusters load: from then on every new network namespace has their devices.
TUNNELS=(ipip ip_gre ip_vti sit ip6_tunnel ip6_gre ip6_vti)

containers_start_beside_fallback_tunnels() {
    local said id names
    modprobe -a "${TUNNELS[@]}"
    names=$(unshare -n sh -c 'ls /sys/class/net 2>/dev/null || true; ip -o link' | grep -oE '(tunl|gre|gretap|erspan|ip_vti|sit|ip6tnl|ip6gre|ip6_vti)0' | sort -u | wc -l)
    [ "$names" -ge 7 ] || fail "the control: a new namespace has $names of the devices"
    # Loopback alone, and an allowlist.
    for runtime in agentbox agentbox-permissive; do
        said=$(docker run --rm --network bridge --runtime=$runtime test-musl \
            sh -c 'ls /sys/class/net; cat /sys/class/net/tunl0/flags /sys/class/net/sit0/flags; ip link set tunl0 up; echo raised $?; echo routes $(wc -l </proc/net/route)' 2>&1 || true)
        grep -qx tunl0 <<<"$said" && grep -qx sit0 <<<"$said" || fail "no fallback device is in it: $said"
        equal "$(grep -c '^0x80$' <<<"$said")" 2
        grep -qE '^raised [1-9]' <<<"$said" || fail "a device could be raised: $said"
        # The command's two streams may come in another order.
        grep -qx 'routes 1' <<<"$said" || fail "it has a route: $said"
    done
    id=$(docker run -d --network bridge --runtime=agentbox test-musl sleep 100)
    equal "$(docker exec "$id" echo inside)" inside
    equal "$(docker run --rm --network "container:$id" --runtime=agentbox test-musl echo member)" member
    docker rm -f "$id"
    cd /srv/project
    equal "$($BIN wrap -- echo wrapped)" wrapped
}

# A limit of time stays the same however the machine's clock is set.
a_clock_that_jumps_changes_no_limit() {
    local jump begin wrap rc
    mkdir -p /srv/project && cd /srv/project
    for jump in '+1 hour' '-1 hour'; do
        begin=$(cut -d. -f1 /proc/uptime)
        $BIN wrap --timeout 40s -- sleep 200 &
        wrap=$!
        sleep 10
        date -s "$jump"
        # The control: the clock has jumped, and nothing has ended for it.
        kill -0 $wrap || fail "$jump ended it at once"
        rc=0
        wait $wrap || rc=$?
        equal "$rc" 124
        begin=$(($(cut -d. -f1 /proc/uptime) - begin))
        [ $begin -ge 39 ] && [ $begin -lt 90 ] || fail "$jump: it ended after $begin s"
    done
}

install_all >/tmp/install.log 2>&1 || { echo "could not set the machine up"; tail -20 /tmp/install.log; }
echo "Linux $RELEASE, $(systemctl --version | head -1), Docker $(docker version -f '{{.Server.Version}}'), $(podman --version)"
check "the machine has cgroup v2 and systemd" the_machine_is_what_it_should_be
for RUNTIME in agentbox-unconfined agentbox; do
    export RUNTIME
    check "$RUNTIME: Docker runs a container" an_engine_runs_a_container
    check "$RUNTIME: memory" memory_is_limited
    check "$RUNTIME: processes" processes_are_limited
    check "$RUNTIME: a scope, processors, update, pause, stats, exec, top" a_scope_is_made_and_removed
done
RUNTIME=agentbox-unconfined
check "agentbox-unconfined: devices" devices_are_denied
RUNTIME=agentbox
check "agentbox: devices" no_device_comes_in_under_a_policy
check "agentbox: the walls" the_walls_stand
check "agentbox: a crash starts no helper" a_crash_starts_no_helper
check "agentbox: the sidecar's limits, explain" the_sidecar_is_limited
check "podman, unconfined" podman_runs_under_a_scope /usr/local/bin/agentbox-unconfined
check "podman, standard" podman_runs_under_a_scope $BIN
check "by hand, systemd, unconfined" by_hand_with_the_systemd_driver unconfined
check "by hand, systemd, standard" by_hand_with_the_systemd_driver standard
check "by hand, without systemd" by_hand_without_systemd
check "a pod with small limits, cgroupfs" a_pod_with_small_limits_starts cgroupfs
check "a pod with small limits, systemd" a_pod_with_small_limits_starts systemd
check "features and wrap" seccomp_and_landlock_are_this_kernels
check "wrap without root, with a systemd of the user's" a_users_wrap_is_limited
check "wrap without root, in a unit with a cgroup of its own" a_cgroup_that_was_given_to_a_unit_is_used
check "wrap without root, without a cgroup" a_limit_that_nothing_holds_is_refused
check "wrap: a clock that jumps" a_clock_that_jumps_changes_no_limit
check "agentbox: beside fallback tunnels" containers_start_beside_fallback_tunnels
echo "$PASSED passed, $FAILED failed"
