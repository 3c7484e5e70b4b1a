#!/usr/bin/env bash
# Pid 1 of the benchmark, in namespaces of its own. Called by hack/bench only, with BENCH_* and AGENTBOX_BIN set.
# It stays, and does not become bench.py, because a pid 1 has orphans to reap.
set -euo pipefail
say() { printf 'hack/bench: %s\n' "$*" >&2; }
# shellcheck source=../lib/cgroups.sh
. "$BENCH_REPO/hack/lib/cgroups.sh"

mount -t proc -o nosuid,nodev,noexec proc /proc
# The runtimes' state: theirs alone, in memory, as on a real system.
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /run
# What an ordinary user works in: the repository may lie where only root may go.
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /srv
# Away with the machine's hierarchies altogether: crun refuses a hybrid layout, and others would read them from mountinfo.
umount --recursive --lazy /sys
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount_cgroups "$BENCH_CGROUP" /sys/fs/cgroup

rc=0
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 \
    AGENTBOX_BIN="$AGENTBOX_BIN" BENCH_REPO="$BENCH_REPO" BENCH_STATE="$BENCH_STATE" BENCH_PROXIES="$BENCH_PROXIES" \
    BENCH_SRT="$BENCH_SRT" BENCH_COMMIT="$BENCH_COMMIT" BENCH_CGROUP="$BENCH_CGROUP" \
    python3 "$BENCH_REPO/hack/bench.d/bench.py" "$@" || rc=$?
exit $rc
