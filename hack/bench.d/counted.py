"""What does not depend on the machine: system calls of create, start, exec, delete and wrap by process, the peak memory of
`create` as a ratio to runc in the same run, and the size of the binary. `hack/test` runs it; best.toml has the bars.

The calls depend on the cgroup hierarchies, which the names say, and a little on what `wrap` finds on the machine: sixty more
files in /etc and ten mounts changed no count by more than 0.2 percent."""

import signal
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

import wrapped
from stats import ratio
from traced import begun_calls, exited, roles, traced

# The median of this many runs: a poll more or less is no change.
RUNS = 3
# Pairs of agentbox and runc.
PEAKS = 15
WITHIN = 30
# A process that stays has reached its loop when the log is this old. A guess: under a load of ten it was enough.
QUIET = 0.4


def count(bench, command, program, name):
    """Role -> system calls of a command and of the processes that it starts, until all have ended or wait."""
    # Kept: it says which calls they are.
    log = bench.state / f"trace-counted-{name}"
    tracer = traced(command, log)
    end, size, since = time.monotonic() + WITHIN, -1, time.monotonic()
    while tracer.poll() is None:
        now = time.monotonic()
        if now > end:
            break
        if log.exists() and log.stat().st_size != size:
            size, since = log.stat().st_size, now
        elif now - since > QUIET and exited(log.read_text(errors="replace")) is not None:
            break
        time.sleep(0.02)
    tracer.send_signal(signal.SIGTERM)
    tracer.wait(timeout=WITHIN)
    text = log.read_text(errors="replace")
    if exited(text) != 0:
        bench.cannot(f"{' '.join(map(str, command))} under strace: exit code {exited(text)}")
    calls = of_agentbox(begun_calls(text), program)
    role = roles(calls)
    return Counter(role[pid] for pid, _, _ in calls)


def of_agentbox(calls, program):
    """Without those of the programs that only execute it (setpriv, env)."""
    first = calls[0][0]
    starts = [n for n, (pid, call, rest) in enumerate(calls) if pid == first and call == "execve" and rest.startswith(f'"{program}"')]
    return calls[starts[0] :] if starts else calls


def calls_of_verbs(bench):
    """Figure -> one number for each run."""
    found = defaultdict(list)

    def add(verb, counted):
        for role, calls in counted.items():
            found[f"calls of {verb}, cgroup {bench.cgroup}: {role}"].append(calls)

    ours = bench.agentbox
    for number in range(RUNS):
        create, start, ended, delete = bench.contestant("sleep").commands(bench.state, f"counted-{number}")
        add("create", count(bench, create, ours, "create"))
        add("start", count(bench, start, ours, "start"))
        name = delete[-1]
        add("exec", count(bench, [*delete[:-2], "exec", name, "/bin/true"], ours, "exec"))
        bench.end(int(Path(ended[1]).read_text()))
        add("delete", count(bench, delete, ours, "delete"))
    ways = wrapped.ways(bench)
    for user in ("root", "user"):
        for _ in range(RUNS):
            command = [*ways[f"{user}: agentbox wrap --policy standard"], "true"]
            add(f"wrap, {user}", count(bench, command, wrapped.PROGRAM, f"wrap-{user}"))
    return found


def measure(bench):
    """Every count of this run, by name."""
    counts = {}
    for name, numbers in sorted(calls_of_verbs(bench).items()):
        # A process that is not in every run made no call in the others.
        counts[name] = int(median(numbers + [0] * (RUNS - len(numbers))))
    counts["peak memory of create / runc"] = round(ratio(*bench.peaks(PEAKS)).value, 3)
    counts["bytes of the binary"] = Path(bench.agentbox).stat().st_size
    return counts
