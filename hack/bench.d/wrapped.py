"""`agentbox wrap` beside bubblewrap, for root and for an ordinary user: how long `true` takes, when the first line of a server
comes, what a build costs inside, and what stays in memory while a command runs."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median

from stats import difference, goal, ratio, table

USER = 1000
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "HOME=/srv/bench-user"]
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
# Small, so that the start counts; the build below is long, so that the start does not.
SERVER = ["sh", "-c", "echo ready; cat >/dev/null"]
MOST_MEMORY = 8192
WITHIN = 60
# How much later a server's first line may come, in milliseconds.
FIRST_LINE = 20
PROGRAM = Path("/srv/agentbox")
TOOLS = "user: agentbox wrap --policy standard, toolchains"
# Of `wrap` on Debian without toolchains in the home.
MOUNTS = "60"
# The usual case of an agent. The walls of hosts took 25 ms at the end of each run once.
RULE = ["--allow", "example.com"]
# How much longer a start with a rule takes, and one beside nvm, pyenv and rustup.
WITH_A_RULE = 1.25
WITH_TOOLCHAINS = 1.3


def ways(bench):
    """Name and command line of everything that is compared."""
    shutil.copy(bench.agentbox, PROGRAM)
    wrap = [PROGRAM, "wrap", "--policy"]
    project = Path("/srv/bench-user/project")
    project.mkdir(parents=True, exist_ok=True)
    for directory in (project.parent, project):
        os.chown(directory, USER, USER)
    at = ["--workspace", project, "--"]
    return {
        "root: agentbox wrap --policy standard": [*wrap, "standard", *at],
        "root: agentbox wrap --policy strict": [*wrap, "strict", *at],
        "root: agentbox wrap --policy standard, one rule": [*wrap, "standard", *RULE, *at],
        "root: bwrap --unshare-all": BWRAP,
        "user: agentbox wrap --policy standard": [*AS_USER, *wrap, "standard", *at],
        "user: agentbox wrap --policy strict": [*AS_USER, *wrap, "strict", *at],
        "user: agentbox wrap --policy standard, one rule": [*AS_USER, *wrap, "standard", *RULE, *at],
        "user: agentbox wrap --walls landlock": [*AS_USER, PROGRAM, "wrap", "--walls", "landlock", *at],
        "user: bwrap --unshare-all": [*AS_USER, *BWRAP],
    }


def sandbox_runtime():
    """The command line of sandbox-runtime in the project, if it is installed (docs/benchmarks.md says how)."""
    program = os.environ.get("BENCH_SRT")
    if not program:
        return {}
    home = Path("/srv/bench-user")
    settings = home / "srt.json"
    files = {"denyRead": [], "allowWrite": ["."], "denyWrite": []}
    settings.write_text(json.dumps({"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": files}))
    user = [*AS_USER[:-2], "env", "-C", home / "project", f"HOME={home}"]
    return {"user: sandbox-runtime": [*user, program, "--settings", settings]}


def first_line(command):
    """Milliseconds until a server's first line."""
    start = time.monotonic()
    server = subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = server.stdout.readline()
    took = (time.monotonic() - start) * 1e3
    server.stdin.close()
    if server.wait(WITHIN) != 0 or line != b"ready\n":
        raise RuntimeError(f"{command}: {line!r}, exit {server.returncode}")
    return took


def family(pid):
    """A process and all that descend from it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rsplit(")", 1)[1].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def kept(processes):
    """Proportional KiB of these, without the command's own."""
    total = 0
    for pid in processes:
        if (Path("/proc") / str(pid) / "comm").read_text().strip() in ("sh", "cat"):
            continue
        rollup = (Path("/proc") / str(pid) / "smaps_rollup").read_text()
        total += int(re.search(r"^Pss: +(\d+)", rollup, re.M).group(1))
    return total


def memory(bench, command, before):
    """Proportional KiB of wrap, the first process and the sidecar while a command waits. The command's own are not counted."""
    server = subprocess.Popen([*map(str, command), *SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    server.stdout.readline()
    # What only the start needed is given back when the program runs already: two equal looks.
    last, total = -1, kept(family(server.pid) | (set(bench.sidecars()) - before))
    end = time.monotonic() + WITHIN
    while abs(total - last) > 64 and time.monotonic() < end:
        time.sleep(0.1)
        last, total = total, kept(family(server.pid) | (set(bench.sidecars()) - before))
    server.stdin.close()
    server.wait(WITHIN)
    return total


def build(bench):
    """A build in the project: so many files that it takes a second."""
    project = Path("/srv/bench-user/project")
    for number in range(12):
        shutil.copy(bench.repo / "hack/bench.d/net.c", project / f"part{number}.c")
    make = "set -e; for file in part*.c; do cc -O1 -c -o \"${file%.c}.o\" \"$file\"; done"
    return ["sh", "-c", f"cd {project} && {make}"]


def toolchains():
    """The command of a user with nvm, pyenv and rustup: how `env` sets their PATH."""
    home = Path("/srv/bench-user/tools")
    places = [".nvm/versions/node/v22.1.0/bin", ".pyenv/shims", ".pyenv/bin", ".cargo/bin"]
    programs = {
        **{f"{places[0]}/{name}": "#!/bin/sh\n" for name in ["node", "npm", "npx", "corepack"]},
        **{f"{places[1]}/{name}": '#!/bin/sh\nexec pyenv exec "$0"\n' for name in ["python", "python3", "pip", "pip3"]},
        **{f".pyenv/versions/3.12.{n}/bin/{name}": "#!/bin/sh\n" for n in range(3) for name in ["python3", "pip3"]},
        **{f".rustup/toolchains/{name}/bin/rustc": "#!/bin/sh\n" for name in ["stable", "nightly"]},
        f"{places[2]}/pyenv": "#!/bin/sh\n",
        f"{places[3]}/rustup": "#!/bin/sh\n",
        ".pyenv/version": "3.12.0\n",
        ".rustup/settings.toml": 'default_toolchain = "stable"\n',
    }
    for name, text in programs.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    for name in ["rustc", "cargo", "rustfmt"]:
        (home / places[3] / name).unlink(missing_ok=True)
        (home / places[3] / name).symlink_to("rustup")
    path = ":".join([*(str(home / place) for place in places), os.environ["PATH"]])
    return [*AS_USER, f"HOME={home}", f"PATH={path}"]


def short(name):
    """The name of a way, without the words that all of its kind have."""
    for words in ("agentbox wrap --policy ", "agentbox wrap --walls ", " --unshare-all"):
        name = name.replace(words, "")
    return name


def measure(bench, interleave, steps):
    """The section of the report."""
    all_ways = {**ways(bench), **sandbox_runtime()}
    # What no program around them could save: the kernel's own work for these namespaces, mounts and cgroups.
    all_ways["root: floor"] = [bench.state / "floor", "pnmsc", MOUNTS, "/bin/busybox"]
    standard = all_ways["user: agentbox wrap --policy standard"]
    all_ways[TOOLS] = [*toolchains(), *standard[len(AS_USER) :]]
    runs = {name: lambda _, c=command: steps(bench.state, [*c, "true"])[0][0] for name, command in all_ways.items()}
    samples = interleave(runs, bench.rounds("wrap"))
    times = {name: [s.milliseconds for s in results] for name, results in samples.items()}
    rows = [[short(n), f"{median(times[n]):.1f}", f"{median(s.peak_mib for s in samples[n]):.1f}"] for n in samples]
    ratios = []
    for who in ("root", "user"):
        theirs = times[f"{who}: bwrap --unshare-all"]
        ours = [name for name in times if name.startswith(f"{who}: agentbox") and name != TOOLS]
        for name in ours:
            label = f"{short(name)} / bwrap"
            ratios.append(goal(label, bench.compare(label, ratio(times[name], theirs)), 2 if "landlock" in name else 3.5))
        standard = f"{who}: agentbox wrap --policy standard"
        ruled = ratio(times[f"{standard}, one rule"], times[standard])
        ratios.append(bench.ratio_bar(f"{short(standard)}, one rule / none", ruled, WITH_A_RULE))
    beside = ratio(times[TOOLS], times["user: agentbox wrap --policy standard"])
    ratios.append(bench.ratio_bar(f"{short(TOOLS)} / without", beside, WITH_TOOLCHAINS))
    for theirs in (name for name in times if name.endswith("sandbox-runtime")):
        ours = "user: agentbox wrap --policy standard"
        label = f"{short(ours)} / sandbox-runtime"
        ratios.append(goal(label, bench.compare(label, ratio(times[ours], times[theirs])), 0.1))

    lines = interleave(
        {
            "plain": lambda _: first_line([*AS_USER, *SERVER]),
            **{n: lambda _, c=c: first_line([*c, *SERVER]) for n, c in all_ways.items() if "agentbox" in n and n.startswith("user")},
        },
        max(5, bench.rounds("wrap") // 8),
    )
    later = [goal(f"{short(n)}: first line, ms later", difference(lines[n], lines["plain"]), FIRST_LINE) for n in lines if n != "plain"]

    compile_ = build(bench)
    name = "user: agentbox wrap --policy standard"
    built = interleave(
        {
            "outside": lambda _: steps(bench.state, [*AS_USER, *compile_])[0][0].milliseconds,
            "inside": lambda _: steps(bench.state, [*all_ways[name], *compile_])[0][0].milliseconds,
        },
        max(3, bench.rounds("wrap") // 20),
    )
    whole = bench.ratio_bar("build, inside / outside", ratio(built["inside"], built["outside"]), 1.01)

    waiting = {short(name): memory(bench, command, set(bench.sidecars())) for name, command in all_ways.items() if "agentbox" in name}
    most = max(waiting.values())
    whole_memory = ["most memory, KiB", most, f"<= {MOST_MEMORY}", "met" if most <= MOST_MEMORY else "missed"]
    bench.section(
        f"wrap ({len(next(iter(times.values())))} rounds)",
        table(["Running `true`", "Median ms", "Peak MiB"], rows),
        table(["Start and end, and others", "Measured [95 %]", "Goal", ""], [*ratios, *later, whole, whole_memory]),
        table(["Memory of all its processes (Pss)", "KiB"], [*waiting.items()]),
    )
