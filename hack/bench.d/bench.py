"""Measures, compares, judges and prints. Called by hack/bench and, inside its namespaces, by inner.sh."""

import argparse
import dataclasses
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import best
import counted
import order
import sizes
import traced
import wrapped
from network import Network
from stats import difference, estimate, goal, ratio, table, verdict

FIGURES = ["lifecycle", "memory", "exec", "sidecar", "filter", "trace", "wrap", "calls", "flood", "files", "crowd", "sizes", "network"]
ROUNDS = {"lifecycle": (300, 60), "exec": (300, 60), "sidecar": (9, 3), "wrap": (200, 40), "calls": (60, 12), "flood": (40, 8), "files": (30, 6), "crowd": (100, 30), "sizes": (7, 3)}
# Containers that run beside the measured one.
CROWD = 200
# Directories of the tree that is copied, with this many files each, of 1 to 16 KiB.
TREE = (60, 50)
# What a build does to files: copy with owners and times, read, search, rename, remove.
FILES = """
set -e
cp -a /tree /tmp/tree
find /tmp/tree -type f | xargs cat >/dev/null
grep -rl needle /tmp/tree >/dev/null
for directory in /tmp/tree/*; do mv $directory $directory.old; done
rm -r /tmp/tree
echo files done
"""
WARM_UP = 3
# What a command leaves to the kernel's workers (namespaces, cgroups) is not to burden the next one.
PAUSE = 0.005
LIMIT = 60
VERBS = ["create", "start", "end", "delete"]


class CannotMeasure(Exception):
    pass


def arguments():
    parser = argparse.ArgumentParser(prog="hack/bench")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=FIGURES, metavar="FIGURE")
    parser.add_argument("--update-docs", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--order", action="store_true")
    args = parser.parse_args()
    if args.counts and (args.quick or args.only or args.update_docs):
        parser.error("--counts stands alone, or with --keep")
    if args.order and (args.quick or args.only or args.update_docs or args.keep or args.counts):
        parser.error("--order stands alone")
    if args.update_docs and (args.quick or args.only):
        parser.error("--update-docs is for a full run")
    return args


# --- running things -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    milliseconds: float
    peak_mib: float


def steps(state, *commands):
    """Runs commands one after another; a Step for each, and what they wrote. One that fails ends the benchmark."""
    words = []
    for command in commands:
        words += [*map(str, command), ";"]
    with tempfile.TemporaryFile() as said:
        done = subprocess.run([state / "steps", *words[:-1]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, timeout=LIMIT)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if done.returncode != 0:
        raise CannotMeasure(f"{' '.join(words)}\n{done.stdout.decode()}{text}")
    fields = [line.split() for line in done.stdout.decode().splitlines()]
    return [Step(int(ns) / 1e6, int(kib) / 1024) for ns, kib, _ in fields], text


@dataclass(frozen=True)
class Contestant:
    """A runtime with its options, and the bundle it gets."""

    name: str
    runtime: tuple
    bundle: str

    def commands(self, state, number):
        container = f"bench-{number}"
        pid_file = Path("/run/bench.pid")
        return [
            [*self.runtime, "create", "--bundle", state / "bundles" / self.bundle, "--pid-file", pid_file, container],
            [*self.runtime, "start", container],
            ["@ended", pid_file],
            [*self.runtime, "delete", container],
        ]


def interleave(runs, rounds):
    """Calls every one of `runs` once in each round, forwards and backwards in turn; name -> results in order."""
    results = {name: [] for name in runs}
    for number in range(WARM_UP + rounds):
        order = list(runs) if number % 2 == 0 else list(reversed(runs))
        for name in order:
            time.sleep(PAUSE)
            result = runs[name](number)
            if number >= WARM_UP:
                results[name].append(result)
    return results


# --- the benchmark --------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, args):
        self.args = args
        self.repo, self.state = Path(os.environ["BENCH_REPO"]), Path(os.environ["BENCH_STATE"])
        self.agentbox = os.environ["AGENTBOX_BIN"]
        self.cgroup = os.environ["BENCH_CGROUP"]
        self.figures = args.only or FIGURES
        self.barred = []
        self.failed = []
        self.figure = ""
        self.rows = []
        self.ratchet = best.Ratchet(best.FILE.read_text(), kind_of_machine(), os.environ["BENCH_COMMIT"], datetime.date.today().isoformat())
        standard = (self.agentbox, "--root", "/run/bench/agentbox", "--policy", "standard")
        unconfined = (self.agentbox, "--root", "/run/bench/unconfined", "--policy", "unconfined")
        crun, runc = ("crun", "--root", "/run/bench/crun"), ("runc", "--root", "/run/bench/runc")
        self.contestants = [
            Contestant("agentbox, standard", standard, "docker"),
            Contestant("crun", crun, "docker"),
            Contestant("runc", runc, "docker"),
            Contestant("crun, without seccomp", crun, "plain"),
            Contestant("agentbox, unconfined", unconfined, "docker"),
            Contestant("agentbox, unconfined, without seccomp", unconfined, "plain"),
        ]
        self.ours, self.crun, self.runc, self.crun_plain, self.unconfined, self.unconfined_plain = self.contestants

    def rounds(self, figure):
        return ROUNDS[figure][1 if self.args.quick else 0]

    def make_bundles(self):
        template = json.loads((self.repo / "hack/bench.d/config.json").read_text())
        template["root"]["path"] = str(self.state / "rootfs")
        shutil.rmtree(self.state / "bundles", ignore_errors=True)

        def bundle(name, args, seccomp, cgroup=""):
            spec = json.loads(json.dumps(template))
            spec["linux"]["cgroupsPath"] += cgroup
            spec["process"]["args"] = args
            if not seccomp:
                del spec["linux"]["seccomp"]
            directory = self.state / "bundles" / name
            directory.mkdir(parents=True)
            (directory / "config.json").write_text(json.dumps(spec))

        bundle("docker", ["/bin/true"], True)
        bundle("plain", ["/bin/true"], False)
        bundle("calls", ["/bin/calls"], True)
        bundle("calls-plain", ["/bin/calls"], False)
        bundle("work", ["/bin/calls", "work"], True)
        for noise in ["denied", "allowed"]:
            # Not the cgroup of the container beside it.
            bundle(noise, ["/bin/calls", noise], True, "-noise")
        shutil.copy(self.state / "net", self.state / "rootfs/bin/net")
        bundle("sleep", ["/bin/sleep", "600"], True)
        for beside in range(3):
            bundle(f"sleep-{beside}", ["/bin/sleep", "600"], True, f"-{beside}")

    def section(self, title, *parts, detail=()):
        """Prints a section. docs/benchmarks.md gets the rows that have a bar or a goal."""
        for part in (*parts, *detail):
            self.barred += [[f"{title.split(' (')[0]}: {name}", *rest] for name, *rest in rows_with_bars(part)]
        print("\n" + "\n\n".join([f"### {title}", *parts, *detail]), flush=True)

    def compare(self, name, measured, higher=False):
        """The ratchet: a ratio beside the best of best.toml."""
        row, failure = self.ratchet.ratio(f"{self.figure}: {name}", measured, higher)
        self.judge(row, failure)
        return measured

    def judge(self, row, failure):
        if row:
            self.rows.append(row)
        if failure:
            self.failed.append(failure)

    def ratio_bar(self, name, measured, limit):
        """A row of a ratio table, which the ratchet compares too."""
        return self.bar(name, self.compare(name, measured), limit)

    def bar(self, name, measured, limit):
        """A row of a table; a failed bar is remembered."""
        outcome = verdict(measured, limit)
        if outcome == "FAILED":
            self.failed.append(f"{name}: {measured.text()}, bar {limit:.2f}")
        return [name, measured.text(), f"<= {limit}", outcome]

    def run(self):
        self.make_bundles()
        started = time.monotonic()
        head = f"{kind_of_machine()}, kernel {os.uname().release}, load average at the start: {load()}."
        print(head + "\n\n" + self.versions(), flush=True)
        self.head = head
        if self.args.order:
            order.write(self)
            return
        if self.args.counts:
            self.counts()
            return
        if {"lifecycle", "memory", "filter"} & set(self.figures):
            self.lifecycles()
        for figure in ["exec", "sidecar", "trace", "wrap", "calls", "flood", "files", "crowd", "sizes", "network"]:
            if figure in self.figures:
                self.figure = figure
                getattr(self, figure)()
        if self.rows:
            self.section("ratchet", detail=[table(["Figure", "Ratio [95 %]", "Best", ""], self.rows)])
        print(f"\nLoad average at the end: {load()}; {time.monotonic() - started:.0f} seconds in all.")

    def versions(self):
        versions = [
            [name, first_line([program, "--version"]).removeprefix(name).removeprefix(" version").strip(), f"{Path(shutil.which(program)).resolve().stat().st_size / 1e6:.1f} MB"]
            for name, program in [("agentbox", self.agentbox), ("runc", "runc"), ("crun", "crun"), ("bubblewrap", "bwrap")]
            # The counts need neither crun nor bubblewrap.
            if shutil.which(program)
        ]
        return table(["", "Version", "File"], versions)

    # what does not depend on the machine

    def counts(self):
        measured = counted.measure(self)
        for name, number in measured.items():
            self.judge(*self.ratchet.count(name, number))
        for name in self.ratchet.gone(measured):
            self.failed.append(f"{name}: best.toml has a bar, and nothing was counted")
        self.section("counts", detail=[table(["Count", "Measured", "Bar", ""], self.rows)])

    # create + start + delete, and what can be read from the same samples

    def lifecycles(self):
        wanted = {
            "lifecycle": [self.ours, self.crun, self.runc, self.crun_plain, self.unconfined],
            "memory": [self.ours, self.crun, self.runc],
            "filter": [self.ours, self.unconfined, self.unconfined_plain, self.crun, self.crun_plain],
        }
        chosen = [c for c in self.contestants if any(c in wanted.get(f, []) for f in self.figures)]
        runs = {c.name: lambda number, c=c: steps(self.state, *c.commands(self.state, number))[0] for c in chosen}
        samples = interleave(runs, self.rounds("lifecycle"))
        if "lifecycle" in self.figures:
            self.figure = "lifecycle"
            self.lifecycle({c: samples[c.name] for c in wanted["lifecycle"]})
        if "memory" in self.figures:
            self.figure = "memory"
            self.memory({c: samples[c.name] for c in wanted["memory"]})
        if "filter" in self.figures:
            self.filter({c: samples[c.name] for c in wanted["filter"]})

    def lifecycle(self, samples):
        def commands(runs):
            return [sum(step.milliseconds for verb, step in zip(VERBS, run) if verb != "end") for run in runs]

        def everything(runs):
            return [sum(step.milliseconds for step in run) for run in runs]

        rows = []
        for contestant, runs in samples.items():
            verbs = [f"{median(run[i].milliseconds for run in runs):.1f}" for i in range(4)]
            rows.append([contestant.name, *verbs, f"{median(commands(runs)):.1f}"])
        times = table(["Median milliseconds", *VERBS, "three commands"], rows)

        ours, theirs = commands(samples[self.ours]), {c: commands(runs) for c, runs in samples.items()}
        deleted = {c: [run[VERBS.index("delete")].milliseconds for run in runs] for c, runs in samples.items()}
        judged = [
            ("agentbox / crun", ratio(ours, theirs[self.crun]), 0.5),
            ("agentbox / runc", ratio(ours, theirs[self.runc]), 0.36),
            ("agentbox / crun without seccomp", ratio(ours, theirs[self.crun_plain]), 0.85),
            ("delete: agentbox / crun", ratio(deleted[self.ours], deleted[self.crun]), 1.0),
        ]
        rows = [goal(name, self.compare(name, measured), most) for name, measured, most in judged]
        more = [
            ["agentbox unconfined / crun", ratio(theirs[self.unconfined], theirs[self.crun]).text()],
        ]
        for contestant in [self.crun, self.runc]:
            name = f"agentbox / {contestant.name}, with the wait for the end"
            more.append([name, ratio(everything(samples[self.ours]), everything(samples[contestant])).text()])
        ratios = table(["create + start + delete", "Ratio [95 %]", "Goal", ""], rows)
        self.section(f"lifecycle ({len(ours)} rounds)", times, ratios, detail=[table(["Besides", "Ratio [95 %]"], more)])

    def memory(self, samples):
        index = {"create": 0, "start": 1, "delete": 3}

        def peaks(contestant, verb):
            return [run[index[verb]].peak_mib for run in samples[contestant]]

        rows = [[c.name, *(f"{median(peaks(c, verb)):.1f}" for verb in index)] for c in samples]
        bars = [self.ratio_bar(f"{verb}: agentbox / runc", ratio(peaks(self.ours, verb), peaks(self.runc, verb)), 0.9) for verb in index]
        self.section(
            "memory",
            table(["Peak memory", "Ratio [95 %]", "Bar", ""], bars),
            detail=[table(["Median peak resident MiB", *index], rows)],
        )

    def filter(self, samples):
        def created(runs):
            return [run[0].milliseconds + run[1].milliseconds for run in runs]

        rows = []
        for name, more, less in [
            ("agentbox, unconfined", self.unconfined, self.unconfined_plain),
            ("crun", self.crun, self.crun_plain),
        ]:
            cost = difference(created(samples[more]), created(samples[less]))
            whole = median(created(samples[more]))
            rows.append([name, cost.text(), f"{whole:.1f}", f"{100 * cost.value / whole:.0f} %"])
        sizes = []
        for name, policy, bundle in [
            ("standard and Docker's profile", "standard", "docker"),
            ("standard alone", "standard", "plain"),
            ("Docker's profile alone", "unconfined", "docker"),
        ]:
            command = [self.agentbox, "--policy", policy, "explain", "--json", "--bundle", self.state / "bundles" / bundle]
            described = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=LIMIT).stdout)["filter"]
            sizes.append([name, re.search(r"(\d+) instructions", described).group(1)])
        self.section(
            "filter",
            detail=[
                table(["Program", "Instructions"], sizes),
                table(["create + start, with the profile minus without", "Milliseconds [95 %]", "of", "Share"], rows),
            ],
        )

    # exec

    def exec(self):
        """`exec` of /bin/true in a container that runs: what agents and probes do most."""
        runs, ends = {}, []
        for contestant in [self.ours, self.crun, self.runc]:
            container = dataclasses.replace(contestant, bundle=f"sleep-{len(ends)}")
            create, start, _, delete = container.commands(self.state, f"exec-{len(ends)}")
            steps(self.state, create, start)
            ends.append((int(Path("/run/bench.pid").read_text()), delete))
            command = [*contestant.runtime, "exec", delete[-1], "/bin/true"]
            runs[contestant.name] = lambda _, command=command: steps(self.state, command)[0][0].milliseconds
        samples = interleave(runs, self.rounds("exec"))
        for init, delete in ends:
            self.end(init)
            steps(self.state, delete)
        ours, crun, runc = samples.values()
        bars = [
            self.ratio_bar("agentbox / runc", ratio(ours, runc), 0.6),
            ["agentbox / crun", self.compare("agentbox / crun", ratio(ours, crun)).text(), "", ""],
        ]
        rows = [[name, f"{median(values):.1f}"] for name, values in samples.items()]
        self.section(
            f"exec ({len(ours)} rounds)",
            table(["exec of /bin/true", "Ratio [95 %]", "Bar", ""], bars),
            detail=[table(["Median milliseconds", "exec"], rows)],
        )

    # The companion process

    def sidecar(self):
        resident, waiting = [], []
        for number in range(self.rounds("sidecar")):
            contestant = Contestant("", self.ours.runtime, "sleep")
            create, start, _, delete = contestant.commands(self.state, f"sidecar-{number}")
            before = set(pids("agentbox-sidecar"))
            steps(self.state, create)
            init = int(Path("/run/bench.pid").read_text())
            waiting.append(memory_kib(init, "VmRSS"))
            steps(self.state, start)
            found = [pid for pid in pids("agentbox-sidecar") if pid not in before]
            if len(found) != 1:
                raise CannotMeasure(f"expected one new sidecar, found {found}")
            resident.append(memory_kib(found[0], "VmRSS"))
            self.end(init)
            steps(self.state, delete)
        limit = 4096
        worst = max(resident)
        if worst >= limit:
            self.failed.append(f"sidecar: {worst} KiB resident, bar {limit} KiB")
        rows = [
            ["sidecar", median(resident), worst, f"< {limit}", "FAILED" if worst >= limit else "met"],
            ["init process before start", median(waiting), max(waiting), "", ""],
        ]
        self.section(f"sidecar ({len(resident)} containers)", table(["Resident KiB", "Median", "Most", "Bar", ""], rows))

    # the system calls of one create

    def trace(self):
        traced.run(self, table)

    # wrap

    def wrap(self):
        wrapped.measure(self, interleave, steps)

    # system calls

    def calls(self):
        contestants = {
            "agentbox": Contestant("agentbox", self.ours.runtime, "calls"),
            "runc": Contestant("runc", self.runc.runtime, "calls"),
            "no filter (crun)": Contestant("crun", self.crun.runtime, "calls-plain"),
        }

        def measure(contestant, number):
            _, said = steps(self.state, *contestant.commands(self.state, f"calls-{number}"))
            found = {m[1]: (float(m[2]), int(m[3])) for m in re.finditer(r"^call (\w+) ([\d.]+) (\d+)$", said, re.M)}
            if len(found) != 4:
                raise CannotMeasure(f"the container's program printed {said!r}")
            return found

        samples = interleave({n: lambda number, c=c: measure(c, number) for n, c in contestants.items()}, self.rounds("calls"))
        kinds = {
            "getppid": "allowed",
            "read": "allowed, 1 byte of /dev/zero",
            "personality": "allowed, argument checked",
            "kexec_load": "denied",
        }
        times, ratios = [], []
        for call, kind in kinds.items():
            nanoseconds = {name: [found[call][0] for found in results] for name, results in samples.items()}
            errors = {name: {found[call][1] for found in results} for name, results in samples.items()}
            for name in ["agentbox", "runc"]:
                if (errors[name] == {0}) != (call != "kexec_load"):
                    raise CannotMeasure(f"{call} under {name} gave errno {errors[name]}")
            times.append([f"{call} ({kind})", *(f"{median(values):.0f}" for values in nanoseconds.values())])
            name, measured = f"{call}: agentbox / runc", ratio(nanoseconds["agentbox"], nanoseconds["runc"])
            if kind == "denied":
                ratios.append([name, self.compare(name, measured).text(), "", ""])
                ratios.append(goal("a denied call, answered and logged, ns", estimate(nanoseconds["agentbox"]), 5000))
            else:
                ratios.append(self.ratio_bar(name, measured, 1.1))
        self.section(
            f"calls ({len(samples['runc'])} containers of each)",
            table(["One call", "Ratio [95 %]", "Bar", ""], ratios),
            detail=[table(["Best nanoseconds", *samples], times)],
        )

    # a container beside one that makes denied calls without end

    def flood(self):
        noises = {
            "alone": None,
            "beside allowed calls without end": Contestant("", self.ours.runtime, "allowed"),
            "beside denied calls without end": Contestant("", self.ours.runtime, "denied"),
            "beside denied calls without end, under runc": Contestant("", self.runc.runtime, "denied"),
        }
        samples = interleave({n: lambda number, c=c: self.beside(c, number) for n, c in noises.items()}, self.rounds("flood"))
        rows = [[name, f"{median(values):.1f}"] for name, values in samples.items()]
        alone, _, denied, _ = samples
        bars = [self.ratio_bar(f"{denied} / alone", ratio(samples[denied], samples[alone]), 1.05)]
        for name in samples:
            if name not in (alone, denied):
                bars.append([f"{name} / alone", ratio(samples[name], samples[alone]).text(), "", ""])
        self.section(
            f"flood ({len(samples[alone])} rounds)",
            table(["The other container", "Ratio [95 %]", "Bar", ""], bars),
            detail=[table(["1,500,000 allowed calls in another container", "Median ms"], rows)],
        )

    def beside(self, noise, number):
        """Milliseconds of a container's work while another one makes its noise."""
        worker = Contestant("", self.ours.runtime, "work")
        if noise:
            create, start, _, delete = noise.commands(self.state, f"noise-{number}")
            steps(self.state, create, start)
            init = int(Path("/run/bench.pid").read_text())
        try:
            taken, _ = steps(self.state, *worker.commands(self.state, f"work-{number}"))
            return taken[VERBS.index("end")].milliseconds
        finally:
            if noise:
                self.end(init)
                steps(self.state, delete)

    # work on files

    def files(self):
        tree = self.state / "rootfs/tree"
        shutil.rmtree(tree, ignore_errors=True)
        for number in range(TREE[0]):
            (tree / f"d{number}").mkdir(parents=True)
            for file in range(TREE[1]):
                text = f"line {number} of file {file}, which has no end in sight\n" * (20 + 300 * (file % 16) // 15)
                (tree / f"d{number}/f{file}").write_text(text + ("needle\n" if file == 0 else ""))
        # Roots as engines make them: overlay2's and the overlay snapshotter's, the plain directory of vfs and native, btrfs's.
        roots = {"overlay": self.overlay_root, "directory": self.plain_root, "btrfs": self.btrfs_root}
        contestants = {(n, r): (c, root) for r, root in roots.items() for n, c in [("agentbox", self.ours), ("runc", self.runc)]}
        disk = self.make_btrfs()
        samples = interleave({key: lambda number, of=of: self.worked(*of, number) for key, of in contestants.items()}, self.rounds("files"))
        shutil.rmtree(tree)
        run("umount", disk)
        rows = [[f"{name}, {root}", f"{median(values):.0f}"] for (name, root), values in samples.items()]
        bars = [
            self.ratio_bar(f"{root}: agentbox / runc", ratio(samples["agentbox", root], samples["runc", root]), 1.03)
            for root in roots
        ]
        self.section(
            f"files ({self.rounds('files')} containers of each)",
            table(["From `start` to the end", "Ratio [95 %]", "Bar", ""], bars),
            detail=[table([f"{TREE[0] * TREE[1]} files", "Median ms"], rows)],
        )

    def worked(self, contestant, make_root, number):
        """Milliseconds of the work in a root of its own, on the disk."""
        bundle = self.state / "bundles/files"
        bundle.mkdir(parents=True)
        with make_root(bundle) as root:
            spec = json.loads((self.state / "bundles/docker/config.json").read_text())
            spec["root"] = {"path": str(root), "readonly": False}
            spec["process"]["args"] = ["/bin/busybox", "sh", "-c", FILES]
            (bundle / "config.json").write_text(json.dumps(spec))
            again = Contestant(contestant.name, contestant.runtime, "files")
            taken, said = steps(self.state, *again.commands(self.state, f"files-{number}"))
            if "files done" not in said:
                raise CannotMeasure(f"the container's program printed {said!r}")
        shutil.rmtree(bundle)
        return sum(step.milliseconds for verb, step in zip(VERBS, taken) if verb in ("start", "end"))

    @contextmanager
    def overlay_root(self, bundle):
        layers = {name: bundle / name for name in ["upper", "work", "merged"]}
        for layer in layers.values():
            layer.mkdir()
        options = f"lowerdir={self.state}/rootfs,upperdir={layers['upper']},workdir={layers['work']}"
        run("mount", "-t", "overlay", "overlay", "-o", options, layers["merged"])
        yield layers["merged"]
        run("umount", layers["merged"])

    @contextmanager
    def plain_root(self, bundle):
        run("cp", "-a", self.state / "rootfs", bundle / "root")
        yield bundle / "root"

    @contextmanager
    def btrfs_root(self, _):
        image, root = self.state / "btrfs/image", self.state / "btrfs/root"
        run("btrfs", "-q", "subvolume", "snapshot", image, root)
        yield root
        run("btrfs", "-q", "subvolume", "delete", root)

    def make_btrfs(self):
        """Mounts a file system on a loop device, in this namespace, with the root as an image's subvolume."""
        disk, at = self.state / "btrfs.img", self.state / "btrfs"
        disk.unlink(missing_ok=True)
        at.mkdir(exist_ok=True)
        with disk.open("wb") as file:
            file.truncate(2 << 30)
        run("mkfs.btrfs", "-q", disk)
        run("mount", "-o", "loop", disk, at)
        # The mount keeps it.
        disk.unlink()
        run("btrfs", "-q", "subvolume", "create", at / "image")
        run("cp", "-a", f"{self.state}/rootfs/.", at / "image")
        return at

    # a node with many containers

    def crowd(self):
        netns = Path("/run/bench.netns")
        netns.touch()
        subprocess.run(["unshare", f"--net={netns}", "true"], check=True, timeout=LIMIT)
        # As the first container of a pod is created: in a network namespace that the engine made and names.
        spec = json.loads((self.state / "bundles/docker/config.json").read_text())
        namespaces = [one for one in spec["linux"]["namespaces"] if one["type"] != "network"]
        spec["linux"]["namespaces"] = [*namespaces, {"type": "network", "path": str(netns)}]
        (self.state / "bundles/pod").mkdir()
        (self.state / "bundles/pod/config.json").write_text(json.dumps(spec))
        sleeper = json.loads((self.state / "bundles/sleep/config.json").read_text())
        path = sleeper["linux"]["cgroupsPath"]
        crowd = []
        for n in range(CROWD):
            sleeper["linux"]["cgroupsPath"] = f"{path}-{n}"
            bundle = self.state / f"bundles/crowd-{n}"
            bundle.mkdir()
            (bundle / "config.json").write_text(json.dumps(sleeper))
            crowd.append(Contestant("", self.ours.runtime, bundle.name).commands(self.state, f"crowd-{n}"))
        inits = []
        for create, start, _, _ in crowd:
            steps(self.state, create, start)
            inits.append(int(Path("/run/bench.pid").read_text()))
        def commands(number):
            return self.three_commands("pod", number)

        def below(at):
            at.mkdir(exist_ok=True)

            def measured(number):
                subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", at], check=True, timeout=LIMIT)
                try:
                    return commands(f"pod-{number}")
                finally:
                    subprocess.run(["umount", at], check=True, timeout=LIMIT)

            return measured

        # The others run on: it is the runtime that does not know of them. What comes after an unmount is slower for a while,
        # so both have one.
        alone, here = below(Path("/run/agentbox")), below(self.state / "elsewhere")
        beside = f"beside the records of {CROWD} containers"
        samples = interleave({"alone": alone, beside: here}, self.rounds("crowd"))
        for init, (_, _, _, delete) in zip(inits, crowd):
            self.end(init)
            steps(self.state, delete)
        subprocess.run(["umount", netns], check=True, timeout=LIMIT)
        rows = [[name, f"{median(values):.1f}"] for name, values in samples.items()]
        measured = ratio(samples[beside], samples["alone"])
        self.section(
            f"crowd ({len(samples[beside])} rounds)",
            table(["create + start + delete", "Ratio [95 %]", "Bar", ""], [self.ratio_bar(f"{beside} / alone", measured, 1.05)]),
            detail=[table(["create + start + delete of a pod's first container", "Median ms"], rows)],
        )

    # what is large

    def sizes(self):
        sizes.measure(self, interleave, steps)

    def three_commands(self, bundle, number):
        """Milliseconds of create, start and delete with a bundle."""
        taken, _ = steps(self.state, *dataclasses.replace(self.ours, bundle=bundle).commands(self.state, number))
        return sum(step.milliseconds for verb, step in zip(VERBS, taken) if verb != "end")

    # the network wall

    def network(self):
        Network(self, Path(os.environ["BENCH_PROXIES"])).run()

    def cannot(self, why):
        raise CannotMeasure(why)

    def steps(self, *commands):
        return steps(self.state, *commands)[0]

    def sidecars(self):
        return pids("agentbox-sidecar")

    def peaks(self, rounds):
        """Pairs of the peak memory of `create`, of agentbox and of runc. Each runs from a copy in memory: how much of a file on a
        disk is in the page cache, and so in its resident set, depends on what was read before."""
        copies = Path("/run/bench/programs")
        copies.mkdir(parents=True)
        runs = {}
        for c in [self.ours, self.runc]:
            copy = shutil.copy(shutil.which(c.runtime[0]), copies)
            copied = dataclasses.replace(c, runtime=(copy, *c.runtime[1:]))
            runs[c.name] = lambda number, c=copied: steps(self.state, *c.commands(self.state, f"peak-{number}"))[0][0].peak_mib
        samples = interleave(runs, rounds)
        return samples[self.ours.name], samples[self.runc.name]

    def contestant(self, bundle):
        return dataclasses.replace(self.ours, bundle=bundle)

    def end(self, pid):
        os.kill(pid, 9)
        wait_until_gone(pid)

    def resident(self, pid):
        return memory_kib(pid, "VmRSS")


# --- small things ---------------------------------------------------------------------------------------------------


def load():
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def kind_of_machine():
    """Processors whose ratios can be compared: a virtual machine names many models alike, such as "Intel(R) Xeon(R) Processor"."""
    cpu = dict(re.findall(r"^(model name|model)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M))
    return f"{os.cpu_count()} cores ({cpu.get('model name', 'unknown')}, model {cpu.get('model', 'unknown')})"


def run(*command):
    subprocess.run(command, check=True, timeout=LIMIT)


def first_line(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=LIMIT).stdout.decode().splitlines()[0]


def pids(title):
    """Processes whose name (comm, 15 characters) is `title`; the sidecar's parent has the same argv."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if (directory / "comm").read_text().strip() == title[:15]:
                found.append(int(directory.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def memory_kib(pid, field):
    return int(re.search(rf"^{field}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.M).group(1))


def wait_until_gone(pid):
    end = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > end:
            raise CannotMeasure(f"process {pid} does not end")
        time.sleep(0.001)


def rows_with_bars(part):
    """(name, measured, bar, outcome unless met) of each row of a printed table that has a column for a bar or a goal."""
    head, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]
    at = next((head.index(name) for name in ("Bar", "Goal") if name in head), None)
    if at is None:
        return []
    # A word for what is as it should be would be on most lines.
    return [[row[0], row[at - 1], row[at].replace(" ", ""), "" if row[at + 1] == "met" else row[at + 1]] for row in rows[1:] if row[at]]


def compact(head, rows):
    """A Markdown table that nobody reads as text."""
    return "\n".join(f"|{'|'.join(map(str, row))}|" for row in [head, ["---"] * len(head), *rows])


def update_docs(path, sections):
    """Replaces what stands between the two marks."""
    begin, end = "<!-- hack/bench: begin -->", "<!-- hack/bench: end -->"
    text = path.read_text()
    before, rest = text.split(begin, 1)
    _, after = rest.split(end, 1)
    path.write_text(before + begin + "\n\n" + "\n\n".join(sections) + "\n\n" + end + after)


def keep(ratchet):
    """Writes what is better into best.toml, and says what."""
    text, changes = ratchet.updated()
    best.write(text)
    for change in changes:
        print(f"hack/bench: kept {change}", file=sys.stderr)


def main():
    args = arguments()
    if args.check:
        return 0
    bench = Bench(args)
    try:
        bench.run()
    except (CannotMeasure, best.Malformed, subprocess.SubprocessError) as error:
        print(f"hack/bench: could not measure: {error}", file=sys.stderr)
        return 2
    if args.update_docs:
        update_docs(bench.repo / "docs/benchmarks.md", [bench.head, compact(["Figure", "Measured [95 %]", "Bar", ""], bench.barred)])
    if args.keep:
        keep(bench.ratchet)
    for failure in bench.failed:
        print(f"hack/bench: FAILED {failure}", file=sys.stderr)
    print("\nall bars met, or not told from noise" if not bench.failed else f"\n{len(bench.failed)} bars failed")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:  # Python would exit with 1, which here says that a bar failed.
        traceback.print_exc()
        sys.exit(2)
