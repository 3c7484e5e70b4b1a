# shellcheck shell=bash
# What a case's script has at hand. Of its environment: KIND and ENGINE, RUNTIME (empty: the engine's default), IMG, N (a
# name of its own, for containers), T (an empty directory of its own, where it runs).

# e ARGUMENTS...: the engine's command line.
case $KIND in
    docker) e() { docker "$@"; } ;;
    podman) e() { podman "$@"; } ;;
    containerd) e() { ctr "$@"; } ;;
esac

# run OPTIONS... IMAGE COMMAND..., create likewise: with the runtime of this run.
case $KIND in
    containerd)
        run() { ctr run ${RUNTIME:+--runc-binary "$RUNTIME"} "$@"; }
        ;;
    *)
        run() { e run ${RUNTIME:+--runtime "$RUNTIME"} "$@"; }
        create() { e create ${RUNTIME:+--runtime "$RUNTIME"} "$@"; }
        box() { run --rm --network none "$@"; }
        # start OPTIONS...: a container that sleeps, named $N.
        start() { run -d --network none --name "$N" "$@" >/dev/null; }
        ;;
esac

# rc COMMAND...: runs it, and says how it ended.
rc() {
    local rc=0
    "$@" || rc=$?
    echo "exit code $rc"
}

# on_tty ROWS COLUMNS COMMAND: as typed at a terminal of that size. The engine sets the size after it has started.
on_tty() { script -qec "stty rows $1 cols $2; $3" /dev/null; }

# await SECONDS COMMAND...: until it succeeds.
await() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "waited in vain for: $*"; return 1; }
        sleep 0.1
    done
}

# is FORMAT VALUE: whether inspect of $N prints it.
is() { [ "$(e inspect -f "$1" "$N")" = "$2" ]; }
state() { e inspect -f "${1:-{{.State.Status\}\} {{.State.ExitCode\}\}}" "$N"; }

# inside COMMAND...: in the container $N.
inside() { e exec "$N" "$@"; }

# clean: what the case may have left.
clean() {
    local id
    case $KIND in
        containerd)
            for id in $(ctr containers ls -q | grep -x -e "$N" -e "$N-.*"); do
                timeout 20 ctr tasks rm -f "$id" || true
                ctr containers rm "$id" || true
            done
            ;;
        *)
            for id in $(e ps -aq --filter "name=^$N"); do e rm -f -v "$id" || true; done
            ;;
    esac
}

# second_docker SETTINGS: a dockerd of the case's own, with these settings beside the rig's; `docker` then means that one.
second_docker() {
    mkdir -p "$T/data" "$T/exec"
    grep -q ^daemon-remap: /etc/subuid || {
        echo daemon-remap:x:64000:64000::/:/bin/false >>/etc/passwd
        echo daemon-remap:x:64000: >>/etc/group
        echo daemon-remap:100000:65536 >>/etc/subuid
        echo daemon-remap:200000:65536 >>/etc/subgid
    }
    jq --argjson more "$1" --arg t "$T" 'del(.["data-root"]) + $more + {
        "data-root": ($t + "/data"), "exec-root": ($t + "/exec"), "pidfile": ($t + "/docker.pid"),
        "hosts": ["unix://" + $t + "/docker.sock"], "bridge": "none", "iptables": false }' \
        /etc/docker/daemon.json >"$T/daemon.json"
    export DOCKER_HOST=unix://$T/docker.sock
    trap stop_second EXIT
    start_second
    docker load -q -i "$HERE/../../build/images/test-musl.tar" >/dev/null
}
start_second() {
    # A network namespace of its own: two engines in one would take each other's bridge away.
    (setsid unshare -n dockerd --config-file "$T/daemon.json" >"$T/docker.log" 2>&1 &)
    await 20 docker version || tail -3 "$T/docker.log"
}
stop_second() {
    local ids
    ids=$(docker ps -aq)
    # shellcheck disable=SC2086 # one word for each
    [ -z "$ids" ] || docker rm -f $ids >/dev/null
    kill -TERM "$(cat "$T/docker.pid")"
    for _ in {1..100}; do [ -e "$T/docker.pid" ] || break; sleep 0.1; done
    umount -l "$T"/data/*/ "$T"/exec/* 2>/dev/null
    awk -v t="$T/" 'index($2, t) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
}

# second_podman DRIVER: a store of the case's own; `e` then uses that one.
second_podman() {
    local store="--root $T/store --runroot $T/runroot --storage-driver $1"
    eval "e() { podman $store \"\$@\"; }"
    trap 'e rm -fa -t 0 >/dev/null' EXIT
    e load -q -i "$HERE/../../build/images/test-musl.tar" >/dev/null
}

# A container's script: links and spoils files of its layer, or prints what an earlier run did to them.
SPOILS='exec 2>&1; cat /planted; echo layer >/planted
[ -e /etc/linked ] || { ln /etc/group /etc/linked; echo more >>/etc/linked; }
stat -c %h /etc/group; cmp /etc/group /etc/linked && echo one file
ln -sf /planted /etc/passwd; rm -rf /srv; ln -s /proc /srv; echo over; exec sleep 60'
SPOILT='cat /planted; readlink /etc/passwd; readlink /srv; stat -c %h /etc/linked; sleep 0.3'

# layer_again: a container spoils its layer, and is restarted. Prints what the next run, `exec` and `diff` find.
layer_again() {
    logged() { e logs "$N" 2>&1 | grep -q "$1"; }
    start "$IMG" sh -c "$SPOILS"
    await 10 logged over
    e restart -t 0 "$N" >/dev/null; state
    await 10 logged layer
    e exec "$N" sh -c "$SPOILT"
    e diff "$N" | grep -v -e ' /run' -e ' /dev' | sort
    walls_of "$(e inspect -f '{{.Id}}' "$N")"
    e logs "$N"
}

# walls_of ID: whether `verify` finds a policy's walls. A second Docker has a network namespace of its own.
walls_of() {
    local within=()
    [ ! -e "$T/docker.pid" ] || within=(nsenter -n -t "$(cat "$T/docker.pid")")
    case $RUNTIME in *-standard | *-permissive) "${within[@]}" agentbox verify "$1" >"$T/verified" 2>&1 ;; esac &&
        echo walls hold || cat "$T/verified"
}

# cri VERB...: containerd's CRI service.
cri() { "$HERE/cri.py" "$@"; }

# internet: the small internet of the tests, once for a rig.
INTERNET=/srv/internet
internet() {
    bash "$HERE/../../integration/internet/up.sh" "$INTERNET"
    # `ctr run --cni` looks for the plugins where upstream installs them.
    [ "$KIND" != containerd ] || { mkdir -p /opt/cni && ln -sfn "$HERE/../../build/engines/$ENGINE/usr/lib/cni" /opt/cni/bin; }
}

# denials ID: what the log of a container says of its beginning, and each denial. runc's has neither, so they are said for it.
denials() {
    local log
    [ "$RUNTIME" != runc ] || { echo created; return; }
    log=$(agentbox audit --json "$1") || echo "no log of $1"
    # In the order of the log; a run without a beginning is none.
    grep -q '"state":"created"' <<<"$log" && echo created
    grep -e '"verdict":"denied"' <<<"$log" || true
}

# walled NETWORK: a container that may reach one name, on a network; what it reached, and how much arrived elsewhere. The
# runtime is agentbox itself: what --policy names would be a ceiling, too.
walled() {
    local before probe network=()
    [ "$RUNTIME" != agentbox-standard ] || local RUNTIME=agentbox
    arrived() { grep -c '"to": "198.51.100.12"' "$INTERNET/witness.jsonl"; }
    # shellcheck disable=SC2016 # the container's shell expands it
    probe='try() { probe with fetch "$2" 80 | grep -qw 200 && echo "$1: reached" || echo "$1: refused"; }
        try listed api.example.test; try unlisted other.example.test; try raw 198.51.100.12; sleep 0.3'
    before=$(arrived)
    [ -z "$1" ] || network=("$1")
    local rule=dev.agentbox.network.allow=api.example.test:80
    case $KIND in
        containerd) run --rm --cni --annotation "$rule" "$IMG" "$N" sh -c "$probe" ;;
        *) run --rm "${network[@]}" --annotation "$rule" "$IMG" sh -c "$probe" ;;
    esac
    echo "arrived elsewhere: $(($(arrived) - before))"
}

# attacked NETWORK...: attacks.sh by a container's first process and by exec, on a network, behind a list and (runc) without one;
# then without its sidecar and behind an empty list. Prints what was reached as it should be, and whatever else arrived.
attacked() {
    [ "$RUNTIME" != agentbox-standard ] || local RUNTIME=agentbox
    local script rules node before pid servers box=$N-held
    script=$(cat "$HERE/attacks.sh")
    rules=dev.agentbox.network.allow=$(printf '%s.example.test:80,' api private metadata loopback mapped cgnat nat64 gateway rebind)api.example.test
    # podman 4.3 takes what stands between commas for annotations of their own, but for what is quoted as in CSV.
    [ "$ENGINE" != podman43 ] || rules="\"$rules\""
    # ctr gives no resolver.
    cp /etc/resolv.conf "$T/resolv.conf"
    local named=(--cni --mount "type=bind,src=$T/resolv.conf,dst=/etc/resolv.conf,options=rbind:ro")
    # The node as the container sees it: its own addresses, and a server of its own.
    timeout 80 busybox httpd -f -p 8099 -h "$T" & servers=$!
    timeout 80 busybox httpd -f -p 80 -h "$T" & servers+=" $!"
    trap 'kill $servers' EXIT
    node=$(ip -4 -o addr show | awk '{ sub("/.*", "", $4); print $4 }' | tr '\n' ' ')
    before=$(wc -l <"$INTERNET/witness.jsonl")
    held() {
        case $KIND in
            containerd) run -d "${named[@]}" --annotation "$1" --env "NODE=$node" "$IMG" "$box" sleep 80 ;;
            *) run -d --name "$box" "${@:2}" --annotation "$1" -e "NODE=$node" "$IMG" sleep 80 >/dev/null ;;
        esac
    }
    within() {
        case $KIND in
            containerd) ctr tasks exec --exec-id "x$RANDOM" "$box" sh -c "$1" ;;
            *) e exec "$box" sh -c "$1" ;;
        esac
    }
    drop() {
        case $KIND in
            containerd) ctr tasks rm -f "$box" && ctr containers rm "$box" ;;
            *) e rm -f "$box" ;;
        esac >/dev/null 2>&1
    }
    case $KIND in
        containerd) run --rm "${named[@]}" --annotation "$rules" --env "NODE=$node" "$IMG" "$N" sh -c "$script" ;;
        *) run --rm "$@" --annotation "$rules" -e "NODE=$node" "$IMG" sh -c "$script" ;;
    esac >"$T/init"
    held "$rules" "$@"
    within "$script" >"$T/exec"
    # without ID HOST...: one request to each; says how often it tried. ctr loses the output of what ends at once.
    without() {
        local host
        for host in "${@:2}"; do
            within "echo tried $1; printf 'GET /ATTACK-$1 HTTP/1.1\r\nHost: api.example.test\r\nConnection: close\r\n\r\n' |
                timeout 3 nc $host 80; sleep 0.3" 2>/dev/null | grep -x "tried $1"
        done
    }
    for pid in $(pgrep -f '^agentbox-sidecar'); do kill -9 "$pid"; done
    without N21 api.example.test 198.51.100.10
    drop
    # CNI keeps the address of a name that `ctr` has removed.
    box=$N-empty
    held dev.agentbox.network.allow= "$@"
    without N22 api.example.test 198.51.100.10
    drop
    kill $servers
    trap - EXIT
    for by in init exec; do
        grep -E '^(reached-N|socket-|option-|add-route|change-link|links|/run)' "$T/$by" | sed "s/^/$by: /"
        # An answer of the node's server.
        # Of the wall's own answers none is 404.
        grep -c -E '^(ATTACK-N18|N18|ATTACK-N06-[a-z0-9]*): HTTP/1.* 404' "$T/$by" | sed "s/^/$by: answers of the node: /"
    done
    tail -n "+$((before + 1))" "$INTERNET/witness.jsonl" | sed -E 's/"at": [0-9.]*, //' |
        grep -v -E -e "dns\", \"name\": \"(api|private|metadata|loopback|mapped|cgnat|nat64|gateway|rebind)\.example\.test\"" \
            -e '"port": 80, "to": "198.51.100.10"' -e '"path": "/reached-' | sort -u | sed 's/^/arrived: /'
}
