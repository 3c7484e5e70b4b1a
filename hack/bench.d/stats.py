"""Ratios from pairs, with an interval; and tables.

Times on a shared machine are worth little: what else runs changes them by half. Two things measured one right after the
other meet the same machine, so each pair gives a ratio, and the median of many ratios is what is reported. How far it
can be trusted is the 95 % interval of a percentile bootstrap: the median of as many ratios drawn with replacement, again
and again. The seed is fixed: the same samples give the same interval.
"""

import random
from dataclasses import dataclass
from statistics import median

SEED = 20260101
RESAMPLES = 4000


@dataclass(frozen=True)
class Estimate:
    """A median and the 95 % interval around it."""

    value: float
    low: float
    high: float

    def text(self, digits=2):
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def estimate(samples):
    """The median of `samples` with its bootstrap interval."""
    if len(samples) < 2:
        raise ValueError("an interval needs two samples")
    generator = random.Random(SEED)
    size = len(samples)
    medians = sorted(median(generator.choices(samples, k=size)) for _ in range(RESAMPLES))
    return Estimate(median(samples), medians[int(RESAMPLES * 0.025)], medians[int(RESAMPLES * 0.975) - 1])


def ratio(ours, theirs):
    """The ratio of two lists, pair by pair."""
    return estimate([a / b for a, b in zip(ours, theirs, strict=True)])


def difference(more, less):
    """The difference of two lists, pair by pair."""
    return estimate([a - b for a, b in zip(more, less, strict=True)])


def verdict(measured, limit):
    """What a bar `measured <= limit` comes to. It fails only when the whole interval lies beyond it."""
    if measured.low > limit:
        return "FAILED"
    return "met" if measured.high <= limit else "met within noise" if measured.value <= limit else "not shown to fail"


def table(head, rows):
    """A Markdown table whose columns also line up as plain text; all but the first are right-aligned."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row):
        first, rest = row[0].ljust(widths[0]), [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def goal(name, measured, limit):
    """A row with what is aimed at. What misses it is said, and does not fail the benchmark: docs/benchmarks.md says why."""
    return [name, measured.text(), f"<= {limit}", {"FAILED": "missed"}.get(outcome := verdict(measured, limit), outcome)]
