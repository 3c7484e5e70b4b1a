# shellcheck shell=bash
# Debian packages: installed on the machine, or unpacked below build/. Needs common.sh.

export DEBIAN_FRONTEND=noninteractive
# A machine made from an archive snapshot has suites whose Release file is out of date; its signature still holds.
APT_OPTIONS=(-o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)

# packages_of SECTION: the names in that section of hack/packages.
packages_of() {
    awk -v want="[$1]" '
        /^[[:space:]]*(#|$)/ { next }
        /^\[/                { inside = ($0 == want); seen = seen || inside; next }
        inside               { print $1 }
        END                  { exit !seen }
    ' "$REPO/hack/packages" || die "hack/packages has no section [$1]"
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = 'ii ' ]; }

# need_packages SECTION...: installs what is missing, and checks that it is there afterwards.
need_packages() {
    local section package missing=()
    for section in "$@"; do
        for package in $(packages_of "$section"); do
            is_installed "$package" || missing+=("$package")
        done
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || die "must run as root to install: ${missing[*]}"
    say "installing ${missing[*]}"
    apt-get "${APT_OPTIONS[@]}" update -q >&2 || say "apt-get update reported errors; going on with what it has"
    apt-get "${APT_OPTIONS[@]}" install -qy --no-install-recommends "${missing[@]}" >&2 ||
        die "apt-get could not install: ${missing[*]}"
    for package in "${missing[@]}"; do
        is_installed "$package" || die "apt-get left $package uninstalled"
    done
}

# debian_mirror: the first Debian mirror in this machine's own apt sources (either of the two formats).
debian_mirror() {
    local uri
    uri=$(
        {
            awk '/^URIs:/ { for (i = 2; i <= NF; i++) print $i }' /etc/apt/sources.list.d/*.sources
            awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^[a-z+]+:\//) { print $i; break } }' \
                /etc/apt/sources.list /etc/apt/sources.list.d/*.list
        } 2>/dev/null | grep -E '/debian/?$' | head -1
    ) || true
    [ -n "$uri" ] || die "found no Debian mirror in /etc/apt/sources.list*"
    printf '%s\n' "$uri"
}

DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# fetch_engine ENGINE: unpacks [engine:ENGINE:SUITE] into build/engines/ENGINE, signatures checked by apt.
# Its own apt state directory: the machine's sources and lists stay as they are.
fetch_engine() {
    local engine=$1 section suite dir state options names
    section=$(sed -n "s/^\[\(engine:$engine:[a-z]*\)\]$/\1/p" "$REPO/hack/packages")
    [ -n "$section" ] || die "hack/packages knows no engine $engine"
    suite=${section##*:}
    dir=$BUILD/engines/$engine
    names=$(packages_of "$section")
    [ "$(cat "$dir/.complete" 2>/dev/null)" != "$names" ] || return 0

    say "unpacking $engine from $suite"
    state=$BUILD/apt/$suite
    rm -rf "$dir" "$dir.new"
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$dir.new/debs"
    printf 'deb [signed-by=%s] %s %s main\n' "$DEBIAN_KEYRING" "$(debian_mirror)" "$suite" >"$state/sources.list"
    options=("${APT_OPTIONS[@]}" -o Dir::State="$state" -o Dir::State::status=/var/lib/dpkg/status
        -o Dir::Cache="$state/cache" -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
        -o APT::Sandbox::User=root -o Acquire::Languages=none)
    apt-get "${options[@]}" update -q >&2 || die "apt-get update of $suite failed"
    # shellcheck disable=SC2086 # one word for each package
    (cd "$dir.new/debs" && apt-get "${options[@]}" download -q $names >&2) || die "apt-get could not download: $names"
    for deb in "$dir.new"/debs/*.deb; do
        dpkg -x "$deb" "$dir.new"
    done
    rm -rf "$dir.new/debs"
    printf '%s\n' "$names" >"$dir.new/.complete"
    mv "$dir.new" "$dir"
}
