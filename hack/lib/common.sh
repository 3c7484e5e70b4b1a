# shellcheck shell=bash
# What every script in hack/ starts with: where things are, and how to speak.

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034 # used by those that source this
BUILD=$REPO/build
SCRIPT=hack/$(basename "$0")

say() { printf '%s: %s\n' "$SCRIPT" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

need_root() { [ "$(id -u)" = 0 ] || die "must run as root (it makes namespaces and cgroups)"; }

# need_value NAME "$@": the value of an option that must have one.
need_value() { [ $# -ge 2 ] || die "$1 needs a value"; }

# A lock for as long as the calling script lives. with_lock FILE WHAT
take_lock() {
    mkdir -p "$(dirname "$1")"
    exec {LOCK_FD}>"$1"
    flock --nonblock "$LOCK_FD" || {
        say "waiting for $2, which another run holds"
        flock --timeout 900 "$LOCK_FD" || die "$2 stayed locked for 15 minutes ($1)"
    }
}
drop_lock() { exec {LOCK_FD}>&-; }

# need_rust: a toolchain as new as Cargo.toml asks for.
need_rust() {
    local need have
    need=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$REPO/Cargo.toml")
    command -v cargo >/dev/null || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    command -v cargo >/dev/null ||
        die "cargo is missing: install Rust $need or newer with rustup (see rustup.rs), then run this again"
    have=$(cd "$REPO" && rustc --version | awk '{print $2}')
    [ "$(printf '%s\n' "$have" "$need" | sort -V | head -1)" = "$need" ] ||
        die "rustc is $have, but $need or newer is needed: run 'rustup update stable'"
    export PATH
}

# release_binary: where a release build puts the binary. .cargo/config.toml may name a target, which cargo makes a folder.
release_binary() {
    local target
    target=$(sed -n 's/^target = "\(.*\)"$/\1\//p' "$REPO/.cargo/config.toml" 2>/dev/null | head -1)
    printf '%s/%srelease/agentbox\n' "${CARGO_TARGET_DIR:-$REPO/target}" "$target"
}

# cargo_release VERB ARGUMENTS...: builds the release. Messages of panics name files of libraries: their names must not depend
# on the home directory, nor on where the libraries came from, so that one commit gives one binary.
cargo_release() {
    local verb=$1 target source flags=
    shift
    target=$(sed -n 's/^target = "\(.*\)"$/\1/p' "$REPO/.cargo/config.toml")
    (cd "$REPO" && cargo fetch --quiet --locked --target "$target" >&2)
    for source in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
        flags+="'--remap-path-prefix=$source=/libraries', "
    done
    (cd "$REPO" && cargo --config "target.$target.rustflags=[$flags]" "$verb" --release --locked --bin agentbox "$@" >&2)
}

# build_release: the binary that is installed, demonstrated and tested. Prints nothing; sets AGENTBOX_BIN.
build_release() {
    AGENTBOX_BIN=$(release_binary)
    cargo_release build
    [ -x "$AGENTBOX_BIN" ] || die "the build left no $AGENTBOX_BIN"
    export AGENTBOX_BIN
}
