"""The ratchet: best.toml keeps the best ratio of each figure and a bar for each count; a run that is worse fails.

    best.py --check    best.toml is well formed, and the rules hold for examples, those that must fail among them
"""

import os
import re
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from stats import Estimate

FILE = Path(__file__).resolve().with_name("best.toml")
# How far the whole interval of a ratio may lie above the best.
RATIO_SLACK = 1.05
# Counts vary by a few calls from run to run: a poll more, an entry of /proc more.
COUNT_SLACK = 1.02
# A call that a signal interrupts is made again: of a process with five calls that is more than two percent.
FEW_CALLS = 3
HEAD = """\
# The ratchet of hack/bench (docs/benchmarks.md). hack/bench.d/best.py reads this file and writes it with `hack/bench --keep`.
#
# [[ratio]]: the best ratio of a figure on one kind of machine. There, a run fails if its whole interval is over 1.05 times `value`, or
# under it by as much where `higher = true`. `low` and `high` are the 95 % interval, if it was noted.
# [[count]]: does not depend on the machine. hack/test fails if a run is more than 2 percent, and of calls three more, over `value`.
#
# A change that costs more raises the value here by hand, with `reason`, and says so in its commit.
"""


def number(value):
    """All digits of a size in bytes."""
    return f"{value:.10g}"


@dataclass(frozen=True)
class Entry:
    """A table of best.toml."""

    name: str
    value: float
    machine: str
    commit: str
    date: str
    low: float | None = None
    high: float | None = None
    higher: bool = False
    reason: str = ""

    def text(self):
        # Some of the first entries were noted without.
        return number(self.value) if self.low is None else f"{self.value:g} [{self.low:g}, {self.high:g}]"


FIELDS = set(Entry.__dataclass_fields__)


class Malformed(Exception):
    """best.toml cannot be read as what it should be."""


def entry(kind, raw):
    """An Entry of a parsed table."""
    missing = {"name", "value", "machine", "commit", "date"} - set(raw)
    if missing or set(raw) - FIELDS:
        raise Malformed(f"{kind} {raw.get('name')}: unknown {sorted(set(raw) - FIELDS)}, missing {sorted(missing)}")
    if kind == "count" and {"low", "high", "higher"} & set(raw):
        raise Malformed(f"count {raw['name']}: has no interval and no direction")
    if ("low" in raw) != ("high" in raw) or not raw.get("low", raw["value"]) <= raw["value"] <= raw.get("high", raw["value"]):
        raise Malformed(f"{kind} {raw['name']}: the value does not lie in its interval")
    if not raw["value"] > 0:
        raise Malformed(f"{kind} {raw['name']}: the value must be above 0")
    return Entry(**{**raw, "date": str(raw["date"])})


def key(kind, one):
    """What an entry is found by: a ratio depends on the kind of the machine, a count does not."""
    return (one.name, one.machine) if kind == "ratio" else one.name


def parse(text):
    """(ratios, counts), each by its key in the order of the file."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Malformed(str(error)) from error
    if set(document) - {"ratio", "count"}:
        raise Malformed(f"unknown {sorted(set(document) - {'ratio', 'count'})}")
    found = []
    for kind in ("ratio", "count"):
        entries = [entry(kind, raw) for raw in document.get(kind, [])]
        by_key = {key(kind, one): one for one in entries}
        if len(by_key) != len(entries):
            raise Malformed(f"two {kind}s of one name")
        found.append(by_key)
    return tuple(found)


def quoted(text):
    """A basic string of TOML."""
    return '"' + re.sub(r'["\\]', r"\\\g<0>", text) + '"'


def render(ratios, counts):
    """The file's text; `parse` reads it back."""
    parts = [HEAD]
    for kind, entries in (("ratio", ratios), ("count", counts)):
        for one in entries.values():
            lines = [f"[[{kind}]]", f"name = {quoted(one.name)}", f"value = {number(one.value)}"]
            if one.low is not None:
                lines.append(f"low = {number(one.low)}\nhigh = {number(one.high)}")
            if one.higher:
                lines.append("higher = true")
            lines += [f"machine = {quoted(one.machine)}", f"commit = {quoted(one.commit)}", f"date = {one.date}"]
            if one.reason:
                lines.append(f"reason = {quoted(one.reason)}")
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def is_worse(best, measured):
    """The whole interval is beyond 1.05 times the best."""
    return measured.high < best.value / RATIO_SLACK if best.higher else measured.low > best.value * RATIO_SLACK


def is_better(best, measured):
    """The whole interval is better than the best."""
    return measured.low > best.value if best.higher else measured.high < best.value


def count_is_worse(best, measured):
    """More than the slack above the bar."""
    few = FEW_CALLS if best.name.startswith("calls") else 0
    return measured > best.value * COUNT_SLACK + few


def count_is_better(best, measured):
    """Below the bar by more than what varies: a lucky run is no reason to lower it."""
    return measured < best.value / COUNT_SLACK


def hierarchy(name):
    """Which cgroup hierarchies a count was made under: other files, other calls."""
    found = re.search(r"cgroup v[12]", name)
    return found[0] if found else ""


class Ratchet:
    """Compares what a run measures with the file, and collects what is better."""

    def __init__(self, text, machine="", commit="", date=""):
        self.ratios, self.counts = parse(text)
        self.stamp = {"machine": machine, "commit": commit, "date": date}
        self.kept = []

    def ratio(self, name, measured, higher=False):
        """A row (name, measured, best, outcome) and what failed, or None for a figure without an entry."""
        own = self.ratios.get((name, self.stamp["machine"]))
        best = own or next((one for one in self.ratios.values() if one.name == name), None)
        if best is None:
            self.keep(self.ratios, self.new(name, measured, higher), "no entry")
            return None, None
        if best.higher != higher:
            raise Malformed(f"ratio {name}: `higher` is wrong")
        outcome = "WORSE" if is_worse(best, measured) else "better" if is_better(best, measured) else "kept"
        if own is None:
            # Another processor, another ratio: it is shown, and this machine's first is kept.
            self.keep(self.ratios, self.new(name, measured, higher), "no entry for this machine")
            return [name, measured.text(), best.text(), f"{outcome.lower()}, other machine"], None
        if outcome == "better":
            self.keep(self.ratios, self.new(name, measured, higher), best.text())
        failure = f"{name}: {measured.text()}, the best is {best.text()} ({best.machine}, {best.date})" if outcome == "WORSE" else None
        return [name, measured.text(), best.text(), outcome], failure

    def count(self, name, measured):
        """The same for a count. One without a bar fails, because a new process costs too, except where the hierarchies have none."""
        best = self.counts.get(name)
        if best is None:
            self.keep(self.counts, Entry(name, measured, **self.stamp), "no bar")
            if not any(hierarchy(other) == hierarchy(name) for other in self.counts):
                return [name, number(measured), "", "no bars"], None
            return [name, number(measured), "", "NO BAR"], f"{name}: {number(measured)}, and best.toml has no bar for it"
        outcome = "WORSE" if count_is_worse(best, measured) else "better" if count_is_better(best, measured) else "kept"
        if outcome == "better":
            self.keep(self.counts, Entry(name, measured, **self.stamp), number(best.value))
        over = 100 * (measured / best.value - 1)
        failure = f"{name}: {number(measured)}, {over:.1f} % over its bar of {number(best.value)}" if outcome == "WORSE" else None
        return [name, number(measured), number(best.value), outcome], failure

    def gone(self, names):
        """Bars of counts that a run did not measure: a process that has another name would have none."""
        measured = {hierarchy(name) for name in names}
        return [name for name in self.counts if name not in names and hierarchy(name) in measured]

    def new(self, name, measured, higher):
        value, low, high = (round(each, 3) for each in (measured.value, measured.low, measured.high))
        return Entry(name, value, low=low, high=high, higher=higher, **self.stamp)

    def keep(self, entries, one, before):
        self.kept.append((entries, one, before))

    def updated(self):
        """The file's text with what is better, and a line for each change."""
        said = []
        for entries, one, before in self.kept:
            entries[key("ratio" if entries is self.ratios else "count", one)] = one
            said.append(f"{one.name}: {before} -> {one.text()}")
        return render(self.ratios, self.counts), said


# --- the check --------------------------------------------------------------------------------------------------------

EXAMPLE = """
[[ratio]]
name = "time"
value = 0.5
low = 0.48
high = 0.52
machine = "here"
commit = "c"
date = 2026-11-25
[[ratio]]
name = "speed"
value = 2.0
higher = true
machine = "here"
commit = "c"
date = 2026-11-25
[[count]]
name = "calls"
value = 1000
machine = "here"
commit = "c"
date = 2026-11-25
reason = "says \\"why\\""
"""


def outcome(name, low, high, higher=False, machine="here"):
    """The last cell of a ratio's row, whether it failed, and whether it is kept."""
    ratchet = Ratchet(EXAMPLE, machine, "d", "2026-12-01")
    row, failure = ratchet.ratio(name, Estimate((low + high) / 2, low, high), higher)
    return row and row[3], failure is not None, bool(ratchet.kept)


def count_outcome(name, measured):
    ratchet = Ratchet(EXAMPLE, "here", "d", "2026-12-01")
    row, failure = ratchet.count(name, measured)
    return row[3], failure is not None, bool(ratchet.kept)


def refused(text):
    try:
        parse(text)
    except Malformed:
        return True
    return False


def check():
    """What is wrong with the rules or the file: nothing, if all is well."""
    expected = [
        # Controls: without them a ratchet that never fails would pass.
        ("a worse ratio fails", outcome("time", 0.53, 0.6), ("WORSE", True, False)),
        ("a slower speed fails", outcome("speed", 1.5, 1.9, higher=True), ("WORSE", True, False)),
        ("a count over the slack fails", count_outcome("calls", 1024), ("WORSE", True, False)),
        ("a count without a bar fails", count_outcome("other", 1), ("NO BAR", True, True)),
        ("an interval that begins under the slack passes", outcome("time", 0.52, 0.9), ("kept", False, False)),
        ("a speed's interval that ends in the slack passes", outcome("speed", 1.0, 1.95, higher=True), ("kept", False, False)),
        ("a count within the slack passes", count_outcome("calls", 1023), ("kept", False, False)),
        ("a better interval is kept", outcome("time", 0.4, 0.49), ("better", False, True)),
        ("a higher speed is kept", outcome("speed", 2.1, 2.2, higher=True), ("better", False, True)),
        ("an interval around the best is not", outcome("time", 0.3, 0.51), ("kept", False, False)),
        ("another machine's is shown", outcome("time", 0.53, 0.6, machine="there"), ("worse, other machine", False, True)),
        ("a better one, too", outcome("time", 0.4, 0.49, machine="there"), ("better, other machine", False, True)),
        ("a figure without an entry passes, and is kept", outcome("new", 1.0, 1.1), (None, False, True)),
        ("a much lower count is kept", count_outcome("calls", 900), ("better", False, True)),
        ("a lucky count is not", count_outcome("calls", 990), ("kept", False, False)),
        ("other hierarchies have no bars", count_outcome("calls, cgroup v2", 5000), ("no bars", False, True)),
        ("a bar that nothing measured is told", Ratchet(EXAMPLE).gone({"other"}), ["calls"]),
        ("other hierarchies measure other bars", Ratchet(EXAMPLE).gone({"calls, cgroup v2"}), []),
        ("what is rendered is read back", parse(render(*parse(EXAMPLE))), parse(EXAMPLE)),
        ("a value outside its interval is refused", refused(EXAMPLE.replace("low = 0.48", "low = 0.51")), True),
        ("an unknown field is refused", refused(EXAMPLE.replace("reason", "because")), True),
        ("two of one name are refused", refused(EXAMPLE + EXAMPLE), True),
        ("a count with an interval is refused", refused(EXAMPLE + "low = 1\nhigh = 2000\n"), True),
    ]
    wrong = [f"{name}: {found}, expected {meant}" for name, found, meant in expected if found != meant]
    ratchet = Ratchet(EXAMPLE, "here", "d", "2026-12-01")
    ratchet.ratio("time", Estimate(0.45, 0.4, 0.49))
    other = Ratchet(EXAMPLE, "there", "d", "2026-12-01")
    other.ratio("time", Estimate(0.9, 0.8, 1.0))
    ratios, _ = parse(ratchet.updated()[0])
    time = ratios["time", "here"]
    if time != replace(time, value=0.45, low=0.4, high=0.49, commit="d", date="2026-12-01"):
        wrong.append(f"the better ratio was written as {time}")
    ratios, _ = parse(other.updated()[0])
    if [ratios["time", machine].value for machine in ("here", "there")] != [0.5, 0.9]:
        wrong.append(f"another machine's ratio was written as {ratios}")
    try:
        if render(*parse(FILE.read_text())) != FILE.read_text():
            wrong.append("best.toml is not written as `hack/bench --keep` writes it")
    except Malformed as error:
        wrong.append(f"best.toml: {error}")
    return wrong


def write(text):
    """Whole or not at all: a run may be stopped."""
    draft = FILE.with_name(FILE.name + ".new")
    draft.write_text(text)
    os.replace(draft, FILE)


def main():
    if sys.argv[1:] != ["--check"]:
        sys.exit(__doc__)
    wrong = check()
    for line in wrong:
        print(f"best.py: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
