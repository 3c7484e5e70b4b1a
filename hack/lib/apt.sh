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

# private_apt deb|deb-src SUITE: APT_PRIVATE, the options for apt-get with these packages and nothing else, their lists
# read, signatures checked. Its own state directory: the machine's sources and lists stay as they are.
private_apt() {
    local kind=$1 suite=$2 state=$BUILD/apt/$2
    [ "$kind" = deb ] || state=$state-src
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
    printf '%s [signed-by=%s] %s %s main\n' "$kind" "$DEBIAN_KEYRING" "$(debian_mirror)" "$suite" >"$state/sources.list"
    APT_PRIVATE=("${APT_OPTIONS[@]}" -o Dir::State="$state" -o Dir::State::status=/var/lib/dpkg/status
        -o Dir::Cache="$state/cache" -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
        -o APT::Sandbox::User=root -o Acquire::Languages=none)
    apt-get "${APT_PRIVATE[@]}" update -q >&2 || die "apt-get update of $suite failed"
}

# section_of KIND NAME: the section [KIND:NAME:SUITE] of hack/packages.
section_of() {
    sed -n "s/^\[\($1:$2:[a-z]*\)\]$/\1/p" "$REPO/hack/packages" | grep . || die "hack/packages knows no $1 $2"
}

# is_fetched DIR NAMES: DIR was made of these packages, and finished.
is_fetched() { [ "$(cat "$1/.complete" 2>/dev/null)" = "$2" ]; }

# fetch_section SECTION DIR: unpacks its packages into DIR.
fetch_section() {
    local section=$1 dir=$2 names deb
    names=$(packages_of "$section")
    ! is_fetched "$dir" "$names" || return 0
    say "unpacking $section"
    rm -rf "$dir" "$dir.new"
    mkdir -p "$dir.new/debs"
    private_apt deb "${section##*:}"
    # shellcheck disable=SC2086 # one word for each package
    (cd "$dir.new/debs" && apt-get "${APT_PRIVATE[@]}" download -q $names >&2) ||
        die "apt-get could not download: $names"
    for deb in "$dir.new"/debs/*.deb; do
        dpkg -x "$deb" "$dir.new"
    done
    rm -rf "$dir.new/debs"
    printf '%s\n' "$names" >"$dir.new/.complete"
    mv "$dir.new" "$dir"
}

# fetch_engine ENGINE: unpacks [engine:ENGINE:SUITE] into build/engines/ENGINE.
fetch_engine() {
    local section
    section=$(section_of engine "$1")
    fetch_section "$section" "$BUILD/engines/$1"
}

# fetch_source NAME DIR: the upstream source of the package in [source:NAME:SUITE], without Debian's changes, in DIR.
fetch_source() {
    local section names dir=$2
    section=$(section_of source "$1")
    names=$(packages_of "$section")
    ! is_fetched "$dir" "$names" || return 0
    say "fetching the source of $names from ${section##*:}"
    rm -rf "$dir" "$dir.new"
    mkdir -p "$dir.new/download"
    private_apt deb-src "${section##*:}"
    (cd "$dir.new/download" && apt-get "${APT_PRIVATE[@]}" source --download-only --tar-only -q "$names" >&2) ||
        die "apt-get could not download the source of $names"
    tar -xf "$dir.new"/download/*.orig.tar.* -C "$dir.new" --strip-components=1
    rm -rf "$dir.new/download"
    printf '%s\n' "$names" >"$dir.new/.complete"
    mv "$dir.new" "$dir"
}
