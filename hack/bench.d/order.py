"""The functions that create, start, exec, delete and wrap run, for the linker, which puts them in front (hack/hot.ld)."""

import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path

import wrapped

WITHIN = 900
LIST = "hack/hot.ld"
BEGINNING = 16
RUST = re.compile(r"_ZN|_R")
HEAD = """\
/* Functions that create, start, exec, delete and wrap run, in the order in which they are first entered. The kernel maps sixteen
 * pages around each page of the program that is touched, so what lies between them would be resident, too.
 * `hack/bench --order` writes this file. Names that no longer exist do no harm: write it anew when `hack/bench --counts` says
 * that the peak of `create` has grown, and after an update of the compiler. Both GNU ld and lld read it (INSERT). */
"""


def runs(bench):
    """The command lines to follow."""
    create, start, ended, delete = bench.contestant("sleep").commands(bench.state, "touched")
    execute = [*delete[:-2], "exec", delete[-1], "/bin/true"]
    pid = f"$(cat {ended[1]})"
    create, start, execute, delete = (shlex.join(map(str, command)) for command in (create, start, execute, delete))
    # A zombie is gone, too: its parent is the tracer's, which waits for the last.
    end = f"kill -9 {pid}; for n in $(seq 100); do grep -q '^State:.*[ZX]' /proc/{pid}/status || sleep 0.05; done"
    yield "verbs", ["sh", "-ec", "\n".join([create, start, execute, end, delete])]
    ways = wrapped.ways(bench)
    for user in ("root", "user"):
        yield f"wrap-{user}", [*ways[f"{user}: agentbox wrap --policy standard"], "true"]
    yield "landlock", [*ways["user: agentbox wrap --walls landlock"], "true"]


def stem(name):
    """A symbol without what changes with every build: hashes, numbers of copies."""
    return re.sub(r"17h[0-9a-f]{16}E", "17h*E", re.sub(r"\.llvm\.\d+$", "*", name))


def pattern(name, instances):
    """The section of a function. Of generic ones, which have many instances under one name, the hash tells the one that runs;
    a beginning makes the linker's search four times faster."""
    instance = re.search(r"17h[0-9a-f]{16}E", name)
    if instances > 1 and instance:
        return f".text.{name[:BEGINNING]}*{instance[0]}*"
    return f".text.{stem(name)}"


def symbols(program):
    """Address -> names."""
    names = {}
    for line in subprocess.run(["nm", "--defined-only", program], check=True, capture_output=True, text=True).stdout.splitlines():
        address, kind, name = line.split(" ", 2)
        if kind in "tTwW":
            names.setdefault(int(address, 16), []).append(name)
    return names


def write(bench):
    names = symbols(bench.agentbox)
    instances = Counter(stem(name) for found in names.values() for name in found)
    seen = {}
    for name, command in runs(bench):
        into = bench.state / f"touched-{name}"
        done = subprocess.run([bench.state / "touched", bench.agentbox, into, *map(str, command)], capture_output=True, text=True, timeout=WITHIN)
        if done.returncode != 0:
            bench.cannot(f"{shlex.join(map(str, command))}: exit code {done.returncode}: {done.stderr}")
        for address in into.read_text().split():
            # Code of C libraries has no sections of its own.
            for found in filter(RUST.match, names.get(int(address, 16), [])):
                seen[pattern(found, instances[stem(found)])] = None
        print(f"{name}: {len(seen)} functions so far", flush=True)
    lines = "".join(f"    *({one})\n" for one in seen)
    Path(bench.repo, LIST).write_text(f"{HEAD}SECTIONS\n{{\n  .text.hot :\n  {{\n{lines}  }}\n}}\nINSERT BEFORE .text;\n")
