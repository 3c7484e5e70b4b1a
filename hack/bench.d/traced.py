"""How many system calls one `create` makes, by process and kind, and those of crun and runc beside it. A number, not a time:
it does not depend on what else the machine does."""

import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

WITHIN = 30
# The names that the processes of a create give themselves, and what they are.
ROLES = {
    "youki:[1:INTER]": "libcontainer's second process: cgroups",
    "youki:[2:INIT]": "the container's first process",
    "agentbox-init": "the container's first process",
    "agentbox-sidecar": "the sidecar",
}


def begun_calls(text):
    """(process, call, arguments) of every call that was begun, in order."""
    found = re.findall(r"^(\d+) +([a-z]\w*)\((.*)", text, re.M)
    return [(int(pid), call, rest) for pid, call, rest in found]


def exited(text):
    """The exit code of the first process, or None if it has not ended."""
    first = re.match(r"\d+", text)
    end = first and re.search(rf"^{first[0]} +\+\+\+ exited with (\d+)", text, re.M)
    return int(end[1]) if end else None


def traced(command, log):
    """A command under strace with all that it starts; their calls go to the log."""
    log.unlink(missing_ok=True)
    return subprocess.Popen(
        ["strace", "-f", "-q", "-I", "1", "-e", "signal=none", "-o", log, *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def count(bench, command):
    """The calls of a create until it returns. Who stays (the sidecar, the container's process) is let go then."""
    # Kept, for a reader who wants to know which calls they are.
    log = bench.state / f"trace-{Path(command[0]).name}"
    tracer = traced(command, log)
    end = time.monotonic() + WITHIN
    try:
        while True:
            text = log.read_text(errors="replace") if log.exists() else ""
            if exited(text) is not None:
                return begun_calls(text)
            if tracer.poll() is not None or time.monotonic() > end:
                bench.cannot(f"{command[0]} create did not return under strace")
            time.sleep(0.02)
    finally:
        tracer.send_signal(signal.SIGTERM)
        tracer.wait(timeout=WITHIN)


def roles(calls):
    """Process -> what it is: by the name that it takes, else one of the runtime's helpers."""
    first = calls[0][0]
    known = {first: "the runtime"}
    for pid, call, rest in calls:
        for name, role in ROLES.items():
            if call in ("prctl", "execveat") and f'"{name[:15]}' in rest:
                known[pid] = role
    return {pid: known.get(pid, "its helpers: disk, network namespace") for pid, _, _ in calls}


def run(bench, table):
    """Prints both tables."""
    totals, detail = [], []
    for contestant in [bench.ours, bench.crun, bench.runc]:
        create, _, _, delete = contestant.commands(bench.state, "trace")
        calls = count(bench, create)
        bench.steps([*delete[:-1], "--force", delete[-1]])
        kinds = ", ".join(f"{name} {n}" for name, n in Counter(call for _, call, _ in calls).most_common(6))
        totals.append([contestant.name, str(len(calls)), kinds])
        if contestant is bench.ours:
            role = roles(calls)
            detail = [[name, str(n)] for name, n in Counter(role[pid] for pid, _, _ in calls).most_common()]
    bench.section(
        "trace",
        detail=[
            table(["One `create`", "System calls", "Most of them"], totals),
            table(["agentbox, by process", "System calls"], detail),
        ],
    )
