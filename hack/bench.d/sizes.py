"""What a start costs by the size of what it is given: the files of a workspace, its directories, the directories of PATH, rules,
the mounts of a spec. `crowd` has the running containers."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Callable

from stats import estimate, goal, table
from wrapped import AS_USER, PROGRAM, USER

HOME = Path("/srv/bench-user")
# How much dearer an item may be where there are many: pages and caches are fuller.
LINEAR = 1.25
# Milliseconds of a start that searches the large number of directories; 5.3 seconds once.
SEARCH = 1_500
# Files of one directory, as in a checkout with its dependencies.
TOGETHER = 100


@dataclass(frozen=True)
class Size:
    """Something that can be small or large, and the command that starts with `n` of it."""

    name: str
    small: int
    large: int
    make: Callable[[int], list]
    # What it is compared with: the first rule costs a network, the next ones themselves.
    least: int = 0


def project(name):
    directory = HOME / name
    directory.mkdir(parents=True, exist_ok=True)
    for one in (HOME, directory):
        os.chown(one, USER, USER)
    return directory


def wrap(workspace, *options, path=""):
    variables = [f"PATH={path}:/usr/bin:/bin"] if path else []
    return [*AS_USER, *variables, PROGRAM, "wrap", "--policy", "standard", *options, "--workspace", workspace, "--", "true"]


def files(number):
    """A workspace with so many files, TOGETHER in each directory."""
    tree = project(f"files-{number}")
    for directory in range(number // TOGETHER):
        (tree / f"d{directory}").mkdir()
        for file in range(TOGETHER):
            os.close(os.open(tree / f"d{directory}/f{file}", os.O_CREAT | os.O_WRONLY, 0o644))
    return wrap(tree)


def directories(number):
    """A workspace with so many directories, ten of them with ten each and so on."""
    tree = project(f"directories-{number}")
    made, rows = 0, [tree]
    while made < number:
        below = []
        for parent in rows:
            for name in range(min(10, number - made)):
                (parent / f"d{name}").mkdir()
                below.append(parent / f"d{name}")
                made += 1
        rows = below
    return wrap(tree)


def on_path(number):
    """So many directories on PATH, with a program in each."""
    programs = project("programs")
    for one in range(number):
        directory = programs / str(one)
        directory.mkdir(exist_ok=True)
        (directory / f"program{one}").write_text("#!/bin/sh\n")
        (directory / f"program{one}").chmod(0o755)
    return wrap(project("empty"), path=":".join(str(programs / str(one)) for one in range(number)))


def rules(number):
    hosts = [word for one in range(number) for word in ("--allow", f"host{one}.example.com")]
    return wrap(project("empty"), *hosts)


def measured(size, samples):
    """How much dearer an item is in the large one than in the small one."""
    per_item = lambda key, number: [(many - least) / (number - size.least) for many, least in zip(samples[key], samples["least"], strict=True)]
    small, large = per_item("small", size.small), per_item("large", size.large)
    # Where the small one drowns in noise there is nothing to compare: the large one's own cost says enough.
    return estimate([b / max(a, 1e-9) for a, b in zip(small, large, strict=True)]), median(large) * 1e3


def mounts(bench):
    """`create`, `start` and `delete` with so many binds more."""
    source = bench.state / "rootfs/etc/passwd"

    def make(number):
        spec = json.loads((bench.state / "bundles/docker/config.json").read_text())
        options = ["rbind", "ro", "rprivate"]
        spec["mounts"] += [{"destination": f"/tmp/m{n}", "type": "bind", "source": str(source), "options": options} for n in range(number)]
        bundle = bench.state / f"bundles/mounts-{number}"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(spec))
        return bundle.name

    return make


def measure(bench, interleave, steps):
    """The section of the report."""
    shutil.copy(bench.agentbox, PROGRAM)
    # The search ends at a million entries, directories among them.
    most = 200_000 if bench.args.quick else 900_000
    sizes = [
        Size("files of the workspace", 50_000, 200_000, files),
        Size("many files of the workspace", 200_000, most, files),
        Size("directories of the workspace", 15_000, 150_000, directories),
        # Each is a mount with two descriptors.
        Size("directories on PATH", 100, 1_000, on_path),
        Size("rules", 20, 200, rules, least=1),
    ]
    if bench.args.quick:
        del sizes[1]
    rows, bars = [], []

    def of(size, runs):
        samples = interleave(runs, bench.rounds("sizes"))
        dearer, each = measured(size, samples)
        rows.append([size.name, *(f"{median(samples[key]):.0f}" for key in runs), f"{each:.1f}"])
        bars.append(goal(f"{size.name}, {size.large:,} / {size.small:,}", dearer, LINEAR))
        if size.make is directories:
            bars.append(goal(f"a start with {size.large:,} directories, ms", estimate(samples["large"]), SEARCH))

    made = {}
    for size in sizes:
        commands = {"least": size.make(size.least) if size.least else wrap(project("empty"))}
        for key, number in (("small", size.small), ("large", size.large)):
            if (size.make, number) not in made:
                made[size.make, number] = size.make(number)
            commands[key] = made[size.make, number]
        of(size, {key: lambda _, c=command: steps(bench.state, c)[0][0].milliseconds for key, command in commands.items()})
    shutil.rmtree(HOME)

    size = Size("binds of a spec", 30, 300, mounts(bench))
    bundles = {"least": "docker", "small": size.make(size.small), "large": size.make(size.large)}
    of(size, {key: lambda number, b=bundle: bench.three_commands(b, f"{b}-{number}") for key, bundle in bundles.items()})

    bench.section(
        f"sizes ({bench.rounds('sizes')} rounds)",
        table(["What one costs, many beside few", "Ratio [95 %]", "Goal", ""], bars),
        detail=[table(["Median ms of a start and end", "none or one", "few", "many", "µs each"], rows)],
    )
