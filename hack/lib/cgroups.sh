# shellcheck shell=bash
# Control groups of a script's own, for namespaces in which container runtimes run. Needs `say`, and CGROUP_NAME: the
# directory below each hierarchy.

# cgroup_version: what the machine has; a hybrid layout is v1.
cgroup_version() { if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then echo v2; else echo v1; fi; }

# The mount points of the cgroup hierarchies that have something in them.
hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts; }

# Puts the calling process into cgroups of the caller's own, so that a cgroup namespace can begin there.
join_cgroups() {
    local mount dir file
    for mount in $(hierarchies); do
        dir=$mount/$CGROUP_NAME
        mkdir -p "$dir"
        if [ -e "$dir/cpuset.mems" ] && [ -e "$dir/cgroup.clone_children" ]; then
            # A v1 cpuset starts empty, and an empty one takes no process.
            for file in cpuset.cpus cpuset.mems; do cat "$mount/$file" >"$dir/$file"; done
            echo 1 >"$dir/cgroup.clone_children"
        fi
        echo "$BASHPID" >"$dir/cgroup.procs"
    done
}

# thaw DIR: lets frozen processes in and below it go on: they would not even die.
thaw() {
    find "$1" -name freezer.state -exec sh -c 'for file; do echo THAWED >"$file"; done' - {} + 2>/dev/null || true
    find "$1" -name cgroup.freeze -exec sh -c 'for file; do echo 0 >"$file"; done' - {} + 2>/dev/null || true
}

# thaw_cgroups: those of CGROUP_NAME.
thaw_cgroups() {
    local mount
    for mount in $(hierarchies); do
        [ ! -d "$mount/$CGROUP_NAME" ] || thaw "$mount/$CGROUP_NAME"
    done
}

# Removes those cgroups, deepest first. What still has a process in it stays, and is reported.
remove_cgroups() {
    local mount dir try left
    thaw_cgroups
    for try in {1..50}; do
        left=
        for mount in $(hierarchies); do
            dir=$mount/$CGROUP_NAME
            [ -d "$dir" ] || continue
            find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true
            [ ! -d "$dir" ] || left=$dir
        done
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    say "could not remove $left (processes: $(tr '\n' ' ' <"$left/cgroup.procs"))"
    return 1
}

# mount_cgroups VERSION DIRECTORY: the hierarchies as this cgroup namespace sees them: they begin at its own cgroup.
mount_cgroups() {
    local version=$1 at=$2 controllers name
    if [ "$version" = v2 ]; then
        mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$at"
        # A cgroup with processes in it cannot hand controllers to its children.
        mkdir -p "$at/rig"
        echo 0 >"$at/rig/cgroup.procs"
        for name in $(cat "$at/cgroup.controllers"); do
            echo "+$name" >"$at/cgroup.subtree_control" || say "cgroup controller $name cannot be handed on"
        done
        return
    fi
    mount -t tmpfs -o mode=755,nosuid,nodev,noexec tmpfs "$at"
    while IFS=: read -r _ controllers _; do
        case $controllers in
            '') continue ;; # the unified hierarchy of a hybrid layout: crun and old engines refuse to see both
            name=*) name=${controllers#name=} controllers=none,$controllers ;;
            *) name=$controllers ;;
        esac
        mkdir "$at/$name"
        mount -t cgroup -o "nosuid,nodev,noexec,$controllers" cgroup "$at/$name"
    done </proc/self/cgroup
}
