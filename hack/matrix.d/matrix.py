#!/usr/bin/env python3
"""Runs the cases of one engine in its rig, under runc and under agentbox, and compares what a user sees.

    matrix.py --check                    the cases are well formed, and docs/engines.md has their tables
    matrix.py --table                    print a table of all cases
    matrix.py --targets T,... [CASE...]  run them; T is unconfined, only, or a policy
"""

import argparse
import concurrent.futures
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parent.parent / "docs" / "engines.md"
BEGIN, END = "<!-- hack/matrix --table -->", "<!-- end of the table -->"
CASE_SECONDS = 90
WORKERS = 4
# The most cases of a target that are tried once more, alone.
ONCE_MORE = 3
# Targets whose output must be runc's: the engine's own call beside it, and agentbox in the place of runc's binary.
TRANSPARENT = ("unconfined", "only")
ENGINES = ("docker20", "docker26", "docker28", "containerd16", "containerd17", "containerd21", "podman43", "podman54")
KINDS = ("docker", "containerd", "podman")
FIELDS = {"name", "about", "script", "kinds", "engines", "cgroup", "targets", "alone", "ci", "differs", "shows",
          "unconfined_differs", "unconfined_shows", "control", *ENGINES, *KINDS}
VERDICT = {"differs", "shows", "unconfined_differs", "unconfined_shows"}


class Case:
    """One thing that a user does with an engine."""

    def __init__(self, raw: dict) -> None:
        unknown = set(raw) - FIELDS
        if unknown or not {"name", "about", "script", "kinds"} <= set(raw):
            sys.exit(f"case {raw.get('name')}: unknown {sorted(unknown)}, or name, about, script or kinds is missing")
        self.raw = raw
        self.name, self.about, self.script, self.kinds = raw["name"], raw["about"], raw["script"], raw["kinds"]
        self.engines = [e for e in raw.get("engines", ENGINES) if kind_of(e) in self.kinds]
        for engine in self.engines:
            verdict = self.verdict(engine)
            for a, b in (("differs", "shows"), ("unconfined_differs", "unconfined_shows")):
                if (a in verdict) != (b in verdict):
                    sys.exit(f"case {self.name}: {a} and {b} belong together")

    def verdict(self, engine: str) -> dict:
        """What is expected to be different from runc; the engine's section, or its kind's, replaces the case's own."""
        own = self.raw.get(engine, self.raw.get(kind_of(engine)))
        return {k: v for k, v in (self.raw if own is None else own).items() if k in VERDICT}

    def applies(self, engine: str, cgroup: str) -> bool:
        """Whether it can be run with this engine on this hierarchy."""
        return engine in self.engines and cgroup == self.raw.get("cgroup", cgroup)

    def expected(self, engine: str, target: str) -> tuple[str, str] | None:
        """Why it differs from runc, and the pattern that its output then has; None when it must be the same."""
        verdict = self.verdict(engine)
        prefix = "unconfined_" if target in TRANSPARENT else ""
        why = verdict.get(prefix + "differs")
        return None if why is None else (why, verdict[prefix + "shows"])


def load() -> list[Case]:
    """Every case of cases/*.toml, in order; names are unique."""
    cases = []
    for file in sorted((HERE / "cases").glob("*.toml")):
        with open(file, "rb") as stream:
            cases += [Case(raw) for raw in tomllib.load(stream)["case"]]
    names = [c.name for c in cases]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        sys.exit(f"cases of one name: {sorted(twice)}")
    return cases


def kind_of(engine: str) -> str:
    """docker26 -> docker"""
    return engine.rstrip("0123456789")


# --- running ----------------------------------------------------------------------------------------------------------

def runtime_name(target: str) -> str:
    """The runtime that the engine calls for a target; "" for its default."""
    return {"runc": "runc", "only": ""}.get(target, f"agentbox-{target}")


def environment(engine: str, case: Case, target: str, scratch: str) -> dict[str, str]:
    """What a case's script finds."""
    return os.environ | {
        "ENGINE": engine, "KIND": kind_of(engine), "RUNTIME": runtime_name(target), "N": f"m-{case.name}-{target}",
        "T": scratch, "HERE": str(HERE), "IMG": "localhost/test-musl:latest" if kind_of(engine) == "containerd" else "test-musl",
    }


def run(engine: str, case: Case, target: str) -> str:
    """Runs a case's script; returns what it printed, with what changes from run to run named alike."""
    # A case that was not done in time may leave mounts, which end with the rig.
    with tempfile.TemporaryDirectory(prefix="matrix-", ignore_cleanup_errors=True) as scratch:
        os.chmod(scratch, 0o711)  # for a remapped root
        env = environment(engine, case, target, scratch)
        script = f". '{HERE}/prelude.sh'\n{case.script}"
        try:
            done = subprocess.run(["bash", "-c", script], env=env, cwd=scratch, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CASE_SECONDS, check=False)
            text = done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as late:
            text = (late.stdout or b"").decode(errors="replace") + f"\nNOT DONE in {CASE_SECONDS} s\n"
        subprocess.run(["timeout", "60", "bash", "-c", f". '{HERE}/prelude.sh'; clean"], env=env, cwd=scratch, check=False,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return normalise(text, env["N"], scratch, runtime_name(target) or "runc")


def normalise(text: str, name: str, scratch: str, runtime: str) -> str:
    """Names, ids, times and addresses are alike; so is the runtime's name, and what runc says before the cause."""
    text = text.replace("\r", "").replace("\0", "").replace("^@", "").replace(name, "NAME").replace(scratch, "DIR")
    # Docker 20.10's client prints this or not, as it happens.
    text = re.sub(r'time="[^"]*" level=error msg="error waiting for container: context canceled"\n', "", text)
    # podman says "stopped" until it has cleaned up, and then "exited".
    text = re.sub(r"^stopped (\d+)$", r"exited \1", text, flags=re.MULTILINE)
    # What runc 1.1 puts before the cause.
    text = re.sub(r"(runc create failed: |runc run failed: |exec failed: )(unable to start container process: )?"
                  r"(error during container init: )?", "", text)
    text = re.sub(rf"\b{re.escape(runtime)}\b", "RUNTIME", text)
    text = re.sub(r"/usr/local/bin/RUNTIME", "RUNTIME", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "ID", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "ID", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)", "TIME", text)
    return re.sub(r"\b(172|10)\.\d+\.\d+\.\d+\b", "ADDRESS", text)


# --- judging ----------------------------------------------------------------------------------------------------------

def judge(case: Case, engine: str, target: str, control: str, seen: str) -> str:
    """"" if it is as the case says, else what is wrong."""
    if "NOT DONE" in control or "waited in vain" in control:
        return f"runc did not finish:\n{control}"
    if not re.search(case.raw.get("control", ""), control, re.DOTALL):
        return f"is no proof: under runc it does not show {case.raw['control']!r}:\n{control}"
    expected = case.expected(engine, target)
    if expected is None:
        return "" if seen == control else f"is not runc's output:\n{difference(control, seen)}"
    if seen == control:
        return f"is runc's output, but the case says that it differs: {expected[0]}"
    if not re.search(expected[1], seen, re.DOTALL):
        return f"does not show {expected[1]!r}:\n{difference(control, seen)}"
    return ""


def difference(control: str, seen: str) -> str:
    """A diff, indented."""
    lines = difflib.unified_diff(control.splitlines(), seen.splitlines(), "runc", "agentbox", lineterm="", n=1)
    return "\n".join(f"      {line}" for line in list(lines)[2:60])


def write_node_file(text: str) -> None:
    """The node's file of agentbox, before the first container."""
    path = pathlib.Path("/etc/agentbox/config.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def bound_nothing() -> None:
    """Under --cgroup v2 a rig has no controllers, so no policy there can bound what a container takes."""
    directory = pathlib.Path("/etc/agentbox/policies")
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("strict", "standard", "permissive"):
        text = f'base = "{name}"\n[limits]\npids = "unlimited"\nmemory = "unlimited"\n'
        (directory / f"{name}.toml").write_text(text, encoding="ascii")


def take_runcs_place() -> None:
    """From here on agentbox is the machine's only runtime, under runc's own path."""
    agentbox = os.path.realpath("/usr/local/bin/agentbox")
    runc = subprocess.run(["sh", "-c", "command -v runc"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    subprocess.run(["mount", "--bind", agentbox, runc], check=True)
    write_node_file('default = "unconfined"\n')


def leftovers() -> list[str]:
    """What must be gone when every container is: records, locks, processes, cgroups."""
    found = [str(p) for d in ("index", "locks", "wrap") for p in pathlib.Path("/run/agentbox", d).glob("*")]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = pathlib.Path("/proc", pid, "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        if name.startswith("agentbox"):
            found.append(f"process {pid} ({name})")
    for root, dirs, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(root, d) for d in dirs if d.startswith("agentbox-sidecar")]
    return found


class Report:
    """Prints each verdict as it comes, counts, and keeps all of it for the record."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, []
        self.rows: list[dict] = []

    def add(self, case: str, target: str, problem: str, seconds: float, seen: str = "") -> None:
        """One case under one target."""
        self.rows.append({"case": case, "target": target, "problem": problem, "seconds": round(seconds, 2), "output": seen})
        if problem:
            self.failed.append(f"{case} ({target})")
            print(f"  FAILED {case} under {target} {problem}", flush=True)
        else:
            self.passed += 1


def judged(engine: str, case: Case, target: str, control: dict[str, str]) -> tuple[str, str]:
    """What is wrong, "" if nothing, and what the case printed."""
    seen = run(engine, case, target)
    return judge(case, engine, target, control[case.name], seen), seen


def once_more(engine: str, case: Case, target: str, control: dict[str, str]) -> tuple[str, str]:
    """A case that failed beside others, alone, twice, each time with its control anew. Its times are seconds, and a busy machine
    may take them away; and `ctr` or its shim loses what a program says last, with runc as with agentbox."""
    problem, seen = "", ""
    for _ in range(2):
        if target != "only":  # runc is gone by then
            control[case.name] = run(engine, case, "runc")
        problem, seen = judged(engine, case, target, control)
        if problem:
            break
    return problem, seen


def run_all(engine: str, cases: list[Case], targets: list[str], report: Report) -> None:
    """The cases under runc, then under each target; `only` is last, because runc is gone by then."""
    control: dict[str, str] = {}
    for target in ["runc", *sorted(targets, key=lambda t: t == "only")]:
        if target == "only":
            take_runcs_place()
        chosen = [c for c in cases if target == "runc" or target in c.raw.get("targets", [target])]
        again: list[tuple[Case, str]] = []

        def one(case: Case) -> None:
            begin = time.monotonic()
            if target == "runc":
                control[case.name] = run(engine, case, target)
                report.rows.append({"case": case.name, "target": target, "output": control[case.name],
                                    "seconds": round(time.monotonic() - begin, 2)})
                return
            problem, seen = judged(engine, case, target, control)
            if problem:
                again.append((case, problem))
                report.rows.append({"case": case.name, "target": target, "problem": problem, "seconds": 0, "output": seen})
            else:
                report.add(case.name, target, "", time.monotonic() - begin, seen)

        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(one, [c for c in chosen if not c.raw.get("alone")]))
        for case in chosen:
            if case.raw.get("alone"):
                one(case)
        for case, problem in again:
            seen = ""
            # More than these are no matter of time.
            if len(again) <= ONCE_MORE:
                print(f"  {case.name} under {target} {problem}\n  once more, alone", flush=True)
                problem, seen = once_more(engine, case, target, control)
            report.add(case.name, target, problem, 0, seen)
        print(f"  {engine}, {target}: {len(chosen)} cases in {time.monotonic() - begin:.0f} s", flush=True)
        # What ends with a container ends just after it.
        for _ in range(20):
            left = leftovers()
            if not left:
                break
            time.sleep(0.5)
        if left:
            report.add("what is left behind", target, ": " + ", ".join(left[:8]), 0)


# --- documentation ----------------------------------------------------------------------------------------------------

def table(cases: list[Case]) -> str:
    """Every case: what `hack/matrix --list` prints."""
    rows = ["| What | Engines | `unconfined` | `standard` |", "|---|---|---|---|"]
    for case in cases:
        groups: dict[tuple[str, str], list[str]] = {}
        for engine in case.engines:
            verdict = case.verdict(engine)
            says = (verdict.get("unconfined_differs", "same"), verdict.get("differs", "same"))
            groups.setdefault(says, []).append(engine)
        for (unconfined, standard), engines in groups.items():
            if "standard" not in case.raw.get("targets", ["standard"]):
                standard = "not run"
            if "unconfined" not in case.raw.get("targets", ["unconfined"]):
                unconfined = "not run"
            rows.append(f"| {case.about} | {', '.join(in_short(engines))} | {unconfined} | {standard} |")
    return "\n".join(rows) + "\n"


def in_short(engines: list[str]) -> list[str]:
    """Engines, or their kind where all of it is meant."""
    short: list[str] = []
    for engine in engines:
        kind = kind_of(engine)
        whole = all(e in engines for e in ENGINES if kind_of(e) == kind)
        name = kind if whole else engine
        if name not in short:
            short.append(name)
    return short


def page(cases: list[Case]) -> str:
    """What docs/engines.md says: tables of what differs from runc, and lists of what is the same."""
    differ: dict[bool, list[str]] = {True: [], False: []}
    same: dict[tuple[bool, bool], dict[str, list[str]]] = {}
    for case in cases:
        run = tuple(target in case.raw.get("targets", [target]) for target in ("unconfined", "standard"))
        groups: dict[tuple[str, str], list[str]] = {}
        for engine in case.engines:
            verdict = case.verdict(engine)
            says = (verdict.get("unconfined_differs", ""), verdict.get("differs", ""))
            groups.setdefault(says, []).append(engine)
        for (unconfined, standard), engines in groups.items():
            short = ", ".join(in_short(engines))
            if unconfined:
                standard = f"{standard or 'same'}; under `unconfined`: {unconfined}"
            if standard and run[1]:
                differ[run[0]].append(f"| {case.about} | {short} | {standard} |")
            else:
                same.setdefault(run, {}).setdefault(short, []).append(case.about)
    parts = []
    for both, title in ((True, "Differs under `standard`"), (False, "Run under `standard` only")):
        parts.append("\n".join([f"| {title} | Engines | Outcome |", "|---|---|---|", *differ[both]]) + "\n")
    for run, title in (((True, True), "The same as under runc:"), ((True, False), "The same as under runc, `unconfined` only:"),
                       ((False, True), "The same as under runc, `standard` only:")):
        if run in same:
            parts.append("\n".join([title, "", *(f"- {short}: {'; '.join(what)}." for short, what in same[run].items())]) + "\n")
    return "\n".join(parts)


def check_docs(cases: list[Case]) -> None:
    """docs/engines.md has the tables of these very cases."""
    text = DOCS.read_text(encoding="utf-8")
    inside = text.partition(BEGIN + "\n")[2].partition(END)[0]
    if inside != page(cases):
        sys.exit("docs/engines.md does not have the tables of hack/matrix.d/cases: run hack/matrix --update-docs")


def update_docs(cases: list[Case]) -> None:
    """Writes the tables into docs/engines.md."""
    text = DOCS.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN + "\n")
    DOCS.write_text(before + BEGIN + "\n" + page(cases) + END + rest.partition(END)[2], encoding="utf-8")


def choose(cases: list[Case], args: argparse.Namespace, engine: str, cgroup: str) -> list[Case]:
    """The cases for this run."""
    chosen = [c for c in cases if c.applies(engine, cgroup)]
    if args.ci:
        part = [c for c in chosen if c.raw.get("ci")]
        print(f"  {engine}: leaving out {len(chosen) - len(part)} of {len(chosen)} cases", flush=True)
        chosen = part
    if args.case:
        unknown = [n for n in args.case if not any(c.name == n for c in cases)]
        if unknown:
            sys.exit(f"no such case: {', '.join(unknown)}")
        chosen = [c for c in chosen if c.name in args.case]
    return chosen


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--update-docs", action="store_true")
    parser.add_argument("--targets", default="unconfined,standard,only")
    parser.add_argument("--ci", action="store_true", help="only the part that hack/test runs")
    parser.add_argument("--record", help="write every output there, as JSON")
    parser.add_argument("case", nargs="*")
    args = parser.parse_args()
    cases = load()
    if args.check:
        return check_docs(cases)
    if args.update_docs:
        return update_docs(cases)
    if args.table:
        return print(table(cases), end="")

    engine = os.environ["AGENTBOX_ENGINE"]
    cgroup = "v2" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "v1"
    report = Report()
    if cgroup == "v2" and "pids" not in pathlib.Path("/sys/fs/cgroup/cgroup.controllers").read_text(encoding="ascii"):
        bound_nothing()
    run_all(engine, choose(cases, args, engine, cgroup), args.targets.split(","), report)
    if args.record:
        pathlib.Path(args.record).write_text(json.dumps(report.rows, indent=1), encoding="utf-8")
    verdict = "FAILED" if report.failed else "ok"
    # As cargo prints it: hack/test counts these lines.
    print(f"test result: {verdict}. {report.passed} passed; {len(report.failed)} failed; 0 ignored; {engine}")
    sys.exit(bool(report.failed))


if __name__ == "__main__":
    main()
