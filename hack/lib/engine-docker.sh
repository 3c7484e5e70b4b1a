# shellcheck shell=bash
# Docker in a rig. Sourced by rig-inner.sh, which says what each function is for.

configure_engine() {
    mkdir -p /etc/docker "$DOCKER_CONFIG"
    jq -n --arg bin "$AGENTBOX_BIN" --arg data "$RIG_STATE/docker" '{
        "data-root": $data, "exec-root": "/run/docker", "pidfile": "/run/docker.pid", "hosts": [env.DOCKER_HOST],
        "log-level": "warn", "shutdown-timeout": 2, "ip6tables": false,
        "runtimes": {
            "agentbox":            { "path": $bin },
            "agentbox-strict":     { "path": $bin, "runtimeArgs": ["--policy", "strict"] },
            "agentbox-standard":   { "path": $bin, "runtimeArgs": ["--policy", "standard"] },
            "agentbox-permissive": { "path": $bin, "runtimeArgs": ["--policy", "permissive"] },
            "agentbox-unconfined": { "path": $bin, "runtimeArgs": ["--policy", "unconfined"] }
        }
    }' >/etc/docker/daemon.json
}

start_engine() {
    # A session of its own: ^C is for the command, and the engine is ended afterwards.
    env -i PATH="$PATH" HOME=/root setsid dockerd >"$RIG_STATE/engine.log" 2>&1 &
    ENGINE_PID=$!
    # The socket alone is not enough: it accepts before the API is there.
    await_engine docker version
}

remove_containers() {
    local ids
    ids=$(docker ps -aq)
    # shellcheck disable=SC2086 # one word for each container
    [ -z "$ids" ] || timeout 60 docker rm -fv $ids >/dev/null || say "some containers could not be removed"
    docker network prune -f >/dev/null || say "some networks could not be removed"
}

image_ids() { docker images -q --no-trunc; }
load_image() { docker load -q -i "$1" >/dev/null; }
prune_images() { docker image prune -f >/dev/null; }
