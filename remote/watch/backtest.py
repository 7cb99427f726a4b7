"""How wrong is the predicted time to ready? ``python -m remote.watch.backtest FILE [--json]``.

Every recorded start is predicted at 25, 50 and 75 % of its true time, knowing only the starts before it. The error is
that of the predicted total, as a share of the true one. Every start counts; where there is no prediction the error is
100 %. Beside ours stand the bar's own remaining time, and a reference: the median of the past durations of each span
that has not begun, and within the weights as much time for each shard that is left as for those that are read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, Optional

from remote.watch import eta, timelines
from remote.watch.history import SPANS, PastStart
from remote.watch.timelines import Timeline, TimelineError

POINTS = (25, 50, 75)
_WEIGHTS = SPANS.index("weights")

# Seconds that are left, None without a prediction.
Method = Callable[[Timeline, float, Sequence[PastStart]], Optional[float]]


@dataclass(frozen=True)
class Result:
    """One start at one point: the errors in percent of its true time, and our range.

    :param known: there was an earlier start of the same key.
    :param held: the range held the truth; ``width`` is the range's, in percent of the true time.
    """

    name: str
    point: int
    known: bool
    errors: dict[str, float]
    signed: float
    held: bool
    width: float


def ours(start: Timeline, at: float, past: Sequence[PastStart]) -> Optional[float]:
    return eta.estimate(start.seen(at, past), past).seconds


def reference(start: Timeline, at: float, past: Sequence[PastStart]) -> Optional[float]:
    """From starts of the same key where there are any, else from all; None before the first."""
    own = [earlier for earlier in past if earlier.key == start.key] or list(past)
    if not own:
        return None
    usual = [median(earlier.seconds[name] for earlier in own) for name in SPANS]
    current = sum(end <= at for end in start.ends)
    elapsed = at - (start.ends[current - 1] if current else 0.0)
    left = max(usual[current] - elapsed, 0.0)
    bars = start.bars_until(at)
    if current == _WEIGHTS and bars and bars[-1].done:
        left = elapsed * (start.files - bars[-1].done) / bars[-1].done
    return left + sum(usual[current + 1 :])


def tqdm(start: Timeline, at: float, past: Sequence[PastStart]) -> Optional[float]:
    """The last bar's own remaining time: it knows of nothing after the shards."""
    bars = start.bars_until(at)
    return bars[-1].remaining if bars else None


METHODS: dict[str, Method] = {"ours": ours, "reference": reference, "tqdm": tqdm}


def replay(starts: Sequence[Timeline], first: int = 0) -> list[Result]:
    """The results of all starts from ``first`` on, each with the starts before it as its history."""
    past: list[PastStart] = []
    results = []
    for place, start in enumerate(starts):
        if place >= first:
            results += [_result(start, point, past) for point in POINTS]
        past.append(start.past())
    return results


def _result(start: Timeline, point: int, past: Sequence[PastStart]) -> Result:
    at = start.total * point / 100
    left = start.total - at
    errors = {}
    for name, method in METHODS.items():
        predicted = method(start, at, past)
        errors[name] = 100.0 if predicted is None else 100 * abs(predicted - left) / start.total
    shown = eta.estimate(start.seen(at, past), past)
    return Result(
        name=start.name,
        point=point,
        known=any(earlier.key == start.key for earlier in past),
        errors=errors,
        signed=100 * (shown.seconds - left) / start.total,
        held=shown.low <= left <= shown.high,
        width=100 * (shown.high - shown.low) / start.total,
    )


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Median and 90th percentile of the errors by method and point; of our range how often it held, and its width."""
    table: dict[str, Any] = {}
    for name in METHODS:
        by_point = {point: [r.errors[name] for r in results if r.point == point] for point in POINTS}
        table[name] = {
            "median": {str(point): round(median(errors), 2) for point, errors in by_point.items()},
            "p90": {str(point): round(_percentile(errors, 0.9), 2) for point, errors in by_point.items()},
        }
    table["ours"]["coverage"] = round(mean(result.held for result in results), 4)
    table["ours"]["width"] = round(mean(result.width for result in results), 2)
    table["runs"] = len(results) // len(POINTS)
    return table


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Prints the table, or the JSON object; 1 when the file holds no starts."""
    parser = argparse.ArgumentParser(prog="python -m remote.watch.backtest", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path, help="recorded starts, see remote.watch.timelines")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args(argv)
    try:
        starts = timelines.parse(arguments.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TimelineError) as error:
        sys.stderr.write(f"{arguments.file}: {error}\n")
        return 1
    results = replay(starts)
    if not results:
        sys.stderr.write(f"{arguments.file}: it holds no starts\n")
        return 1
    if arguments.json:
        sys.stdout.write(json.dumps(summary(results), allow_nan=False) + "\n")
        return 0
    sys.stdout.write(_text("All starts", results) + "\n")
    for title, known in (("With an earlier start of the same key", True), ("Without one", False)):
        some = [result for result in results if result.known is known]
        if some:
            sys.stdout.write(_text(title, some) + "\n")
    return 0


def _text(title: str, results: Sequence[Result]) -> str:
    table = summary(results)
    lines = [
        f"{title} ({table['runs']}): error of the predicted time to ready in % of the true one, median (p90)",
        " " * 12 + "".join(f"at {point} %".rjust(18) for point in POINTS),
    ]
    for name in METHODS:
        cells = [f"{table[name]['median'][str(p)]:.1f} ({table[name]['p90'][str(p)]:.1f})" for p in POINTS]
        lines.append(f"{name:12}" + "".join(cell.rjust(18) for cell in cells))
    own = table["ours"]
    lines.append(
        f"Our range held the truth in {100 * own['coverage']:.0f} %; its mean width is {own['width']:.0f} %.\n"
    )
    return "\n".join(lines)


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


if __name__ == "__main__":
    sys.exit(main())
