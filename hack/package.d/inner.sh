# shellcheck shell=bash
# hack/package.d/inner.sh PACKAGE: installs the Debian package in a rig, uses it by Docker, and removes it.
set -uo pipefail
PACKAGE=$1
DAEMON=/etc/docker/daemon.json IMAGE=package-test
FAILED=0

# check WORDS COMMAND...: whether the command succeeds.
check() {
    local words=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "ok      $words"
    else
        FAILED=$((FAILED + 1))
        printf 'FAILED  %s\n' "$words"
        printf '        %s\n' "$said" | head -20
    fi
}
fails() { ! "$@"; }
# says TEXT COMMAND...: whether its output has the text, however it ends.
says() {
    local text=$1 said
    shift
    said=$("$@" 2>&1) || true
    [[ $said == *"$text"* ]] || { echo "it does not say '$text': $said" && return 1; }
}
# Docker forgets and learns runtimes within a moment.
settles() {
    local try
    for try in {1..50}; do
        [ "$(docker info -f '{{json .Runtimes}}' | jq 'has("agentbox")')" != "$1" ] || return 0
        sleep 0.1
    done
    echo "after 5 s Docker's runtimes are: $(docker info -f '{{json .Runtimes}}' | jq -c keys)"
    return 1
}
run() { docker run --rm --network none --runtime=agentbox --annotation dev.agentbox.policy=strict "$IMAGE" /bin/busybox true; }

# A daemon.json of the administrator's, with tabs and a runtime, and without agentbox. Without any runtime in it a reload changes none.
jq --tab '.runtimes = { "other": { "path": "/usr/bin/other" } }' "$DAEMON" >"$DAEMON.new" && mv "$DAEMON.new" "$DAEMON"
chmod 600 "$DAEMON"
cp -p "$DAEMON" /root/before
rm -f /var/lib/agentbox/installed*
kill -HUP "$(cat /run/docker.pid)"
work=$(mktemp -d)
mkdir "$work/bin"
cp "$(command -v busybox)" "$work/bin/busybox"
tar -C "$work" -c . | docker import - "$IMAGE" >/dev/null
settles false || exit 1

check "the control: Docker has no such runtime" fails run
check "dpkg -i" dpkg -i "$PACKAGE"
check "Docker knows the runtime without a restart" settles true
check "docker run --runtime=agentbox" run
check "daemon.json keeps its mode" [ "$(stat -c %a "$DAEMON")" = 600 ]
check "the files are as they were packed" dpkg -V agentbox
check "the script that requires strict" says "agentbox version" /usr/bin/agentbox-strict --version
check "man agentbox-wrap" grep -q 'agentbox\\-wrap' <(zcat /usr/share/man/man1/agentbox-wrap.1.gz)
check "completions" bash -c '. /usr/share/bash-completion/completions/agentbox && complete -p agentbox'
check "the SBOM names the crates" jq -e '.components | length > 50' /usr/share/doc/agentbox/*.cdx.json
check "doctor finds the engine" jq -e '.checks[] | select(.name == "docker" and .state == "ok")' <(/usr/bin/agentbox doctor --json)
check "a second dpkg -i changes nothing" dpkg -i "$PACKAGE"
check "docker run still works" run

docker run -d --name stays --network none --runtime=agentbox "$IMAGE" /bin/busybox sleep 600 >/dev/null
check "dpkg -r refuses while a sandbox runs" fails dpkg -r agentbox
check "and says which" says "sandboxes are on this node" dpkg -r agentbox
check "and leaves the runtime" docker exec stays /bin/busybox true
check "an upgrade under it is no removal" dpkg -i "$PACKAGE"
docker rm -f stays >/dev/null
check "dpkg -r" dpkg -r agentbox
check "daemon.json is as before, byte for byte" cmp "$DAEMON" /root/before
check "its mode too" [ "$(stat -c %a "$DAEMON")" = 600 ]
check "the program is gone" [ ! -e /usr/bin/agentbox ]
check "Docker forgets the runtime" settles false
check "the control again: docker run fails" fails run

echo '{ broken' >"$DAEMON"
check "dpkg -i with a daemon.json that is broken" dpkg -i "$PACKAGE"
check "says so" says "is not a JSON object" /usr/bin/agentbox install
check "and leaves it" [ "$(cat "$DAEMON")" = '{ broken' ]
check "dpkg -r after it" dpkg -r agentbox
check "dpkg -r keeps the logs of runs" ls -d /var/lib/agentbox/runs/*
# The rig mounts both.
umount -l /etc/agentbox /var/lib/agentbox
mkdir -p /etc/agentbox/policies /var/lib/agentbox/runs/one
check "dpkg --purge" dpkg --purge agentbox
check "takes logs and settings away" [ ! -e /var/lib/agentbox -a ! -e /etc/agentbox ]
[ $FAILED = 0 ]
