# shellcheck shell=bash
# hack/upgrade.d/inner.sh OLD NEW: the upgrade itself, in a rig. AGENTBOX_BIN is the file that Docker calls.
set -uo pipefail
OLD=$1 NEW=$2
PASSED=0 FAILED=0
IMAGE=test-probe
# Chosen by annotation, so that the ceiling is what each version has for a node without files.
POLICY=dev.agentbox.policy=standard
ALLOW=dev.agentbox.network.allow=api.example.com,files.example.org:8443

# install BINARY: as a package manager does, another file under the same name.
install_binary() {
    cp "$1" "$AGENTBOX_BIN.new" && mv "$AGENTBOX_BIN.new" "$AGENTBOX_BIN"
}

# check WORDS COMMAND...: whether the command succeeds.
check() {
    local words=$1 said
    shift
    if said=$("$@" 2>&1); then
        PASSED=$((PASSED + 1))
        echo "ok      $words"
    else
        FAILED=$((FAILED + 1))
        printf 'FAILED  %s\n' "$words"
        printf '        %s\n' "$said" | head -20
    fi
}

agentbox() { "$AGENTBOX_BIN" "$@"; }
# says TEXT COMMAND...: whether its output has the text.
says() {
    local text=$1 said
    shift
    said=$("$@" 2>&1) || { echo "$said" && return 1; }
    case $said in *"$text"*) ;; *) echo "it does not say '$text': $said" && return 1 ;; esac
}
# fails COMMAND...
fails() { ! "$@"; }
id_of() { docker inspect -f '{{.Id}}' "$1"; }
inside() { docker exec "$1" sh -c "$2"; }
is_gone() { [ -z "$(ls -d /run/agentbox/index/*"$1" 2>/dev/null)" ]; }

# start NAME RUNTIME OPTIONS...
start() {
    local name=$1 runtime=$2
    shift 2
    docker run -d --name "$name" --runtime "$runtime" "$@" "$IMAGE" sleep 3600
}

# has_walls NAME: a process of exec under a policy.
has_walls() {
    says 'NoNewPrivs:	1' inside "$1" 'cat /proc/self/status' &&
        says 'Seccomp:	2' inside "$1" 'cat /proc/self/status' &&
        fails inside "$1" 'cat /proc/kcore | head -c 1 | grep .' &&
        fails inside "$1" 'mount -t tmpfs none /mnt'
}

# alike NAME: what holds for every container, whatever its policy.
alike() {
    local name=$1 id
    id=$(id_of "$name")
    check "$name: exec" inside "$name" true
    check "$name: list" says "${id:0:12}" agentbox list --all
    check "$name: state" says running agentbox state "$id"
    check "$name: explain" says "$id" agentbox explain "$id"
    check "$name: explain --json" says '"chosenBy"' agentbox explain --json "$id"
    check "$name: ps" says sleep docker top "$name"
    check "$name: update of limits" docker update --memory 200m --memory-swap 200m "$name"
    check "$name: pause" docker pause "$name"
    check "$name: resume" docker unpause "$name"
}

# ends NAME: it is stopped, started once more by the new program, killed and removed.
ends() {
    local name=$1 id
    id=$(id_of "$name")
    check "$name: stop" docker stop -t 1 "$name"
    check "$name: start by the new program" docker start "$name"
    check "$name: exec after that" inside "$name" true
    check "$name: kill" docker kill "$name"
    check "$name: remove" docker rm "$name"
    check "$name: nothing is left" is_gone "$id"
}

echo "by $("$OLD" --version | head -1)"
check "plain: created by the old program" start plain agentbox-standard
check "listed: created by the old program" start listed agentbox --annotation "$POLICY" --annotation "$ALLOW"
check "strict: created by the old program" start strict agentbox-strict -v /srv:/srv:ro
check "unconfined: created by the old program" start unconfined agentbox-unconfined
check "forced: created by the old program" start forced agentbox --annotation "$POLICY" --annotation "$ALLOW"
install_binary "$NEW"
echo "by $("$NEW" --version | head -1)"
for name in plain listed strict unconfined; do alike "$name"; done
for name in plain listed strict; do check "$name: the walls of exec" has_walls "$name"; done
id=$(id_of listed)
check "listed: network" says api.example.com agentbox network "$id"
check "listed: network --format json" says '"rules"' agentbox network --format json "$id"
check "listed: fewer rules" agentbox update --network-allow api.example.com "$id"
check "listed: they hold" fails says files.example.org agentbox network "$id"
check "listed: explain says so" fails says files.example.org agentbox explain "$id"
check "listed: a denial" agentbox update --network-deny bad.example.com "$id"
check "listed: exec after that" has_walls listed
check "listed: more is refused" fails agentbox update --network-allow '*' "$id"
check "plain: a member of its network, made by the new program" start member agentbox-standard --network container:plain
check "member: exec" has_walls member
check "member: remove" docker rm -f member
for name in plain listed strict unconfined; do ends "$name"; done
id=$(id_of forced)
check "forced: delete --force" agentbox delete --force "$id"
check "forced: remove" docker rm -f forced
check "forced: nothing is left" is_gone "$id"
echo "$PASSED passed, $FAILED failed"
[ "$FAILED" = 0 ]
