"""How wrong is the predicted time to ready on other storage? ``python -m remote.watch.tiers FILE [--json]``.

The recorded starts of FILE (see ``remote.watch.timelines``) are the history. After them come the same starts once more
on a storage of another tier: their weights take ``scale`` times as long, at a rate that drifts within the load, and
what follows them varies too. Only those are judged. The row "recorded" is the backtest of FILE itself.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any, Optional

from remote.watch import backtest, timelines
from remote.watch.timelines import Bar, Timeline, TimelineError

SCALES = (0.2, 0.5, 1.0, 2.0, 5.0, 8.0)


def other_tier(start: Timeline, scale: float, tail: float, rng: random.Random) -> Timeline:
    """The start on a storage that takes ``scale`` times as long, with a rate that drifts within the load.

    :param tail: how many times as long what follows the weights takes.
    """
    begin, last = start.ends[0], start.ends[1] - start.ends[0]
    scale *= math.exp(rng.gauss(0, 0.08))
    drift = rng.uniform(-0.3, 0.3)
    tail *= math.exp(rng.gauss(0, 0.1))

    def moved(at: float) -> float:
        share = min((at - begin) / last, 1.0)
        return begin + last * scale * (share + drift * share * (1 - share))

    ends = [begin, begin + last * scale]
    for before, after in zip(start.ends[1:], start.ends[2:]):
        ends.append(ends[-1] + (after - before) * tail)
    bars = []
    for bar in start.bars:
        at = moved(bar.at)
        left = (at - begin) * (start.files - bar.done) / bar.done if bar.done else None
        bars.append(Bar(bar.done, at, left))
    return replace(start, ends=tuple(ends), bars=tuple(bars))


def tier(starts: Sequence[Timeline], scale: float, seeds: int) -> dict[str, Any]:
    """The medians over the seeds of the backtest's figures on one tier; ``ratio`` is ours against the reference's."""
    tables = []
    for seed in range(seeds):
        rng = random.Random(f"{scale} {seed}")
        moved = [other_tier(start, scale * rng.uniform(0.85, 1.15), rng.uniform(0.8, 1.2), rng) for start in starts]
        tables.append(backtest.summary(backtest.replay([*starts, *moved], len(starts))))
    return _figures(tables)


def _figures(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    points = [str(point) for point in backtest.POINTS]
    errors = {
        name: {point: median(table[name]["median"][point] for table in tables) for point in points}
        for name in backtest.METHODS
    }
    return {
        **errors,
        "ratio": {
            point: median(table["ours"]["median"][point] / table["reference"]["median"][point] for table in tables)
            for point in points
        },
        "coverage": mean(table["ours"]["coverage"] for table in tables),
        "width": mean(table["ours"]["width"] for table in tables),
    }


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m remote.watch.tiers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path, help="recorded starts, see remote.watch.timelines")
    parser.add_argument("--seeds", type=int, default=6, help="other tiers are made this many times")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args(argv)
    try:
        starts = timelines.parse(arguments.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TimelineError) as error:
        sys.stderr.write(f"{arguments.file}: {error}\n")
        return 1
    rows = {"recorded": _figures([backtest.summary(backtest.replay(starts))])}
    rows.update((f"x{scale:g}", tier(starts, scale, arguments.seeds)) for scale in SCALES)
    if arguments.json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return 0
    sys.stdout.write("tier        ours 25/50/75 %     reference           ratio             held  width\n")
    for name, row in rows.items():
        cells = [" / ".join(f"{value:4.1f}" for value in row[method].values()) for method in ("ours", "reference")]
        ratio = " / ".join(f"{value:.2f}" for value in row["ratio"].values())
        held, width = f"{100 * row['coverage']:.0f} %", f"{row['width']:.0f} %"
        sys.stdout.write(f"{name:10}{cells[0]}  {cells[1]}  {ratio}  {held:>5}  {width:>5}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
