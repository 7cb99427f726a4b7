"""What the log view costs while a log is written at 2,000 lines a second: everything but the link and the terminal.

python -m bench.logs [SECONDS]
"""

from __future__ import annotations

import asyncio
import sys
import time

from textual.app import App, ComposeResult

from eagle_console.tui.widgets.log_view import LogView

SECONDS = 20
LINES, PIECES = 2_000, 4
"""Lines a second, and the pieces in which the link brings them."""

_LINE = "(Worker_TP3 pid=4711) INFO 05-28 20:30:01 [gpu_model_runner.py:1234] step {} of a training that says very much"


class _Screen(App[None]):
    def compose(self) -> ComposeResult:
        yield LogView(id="log")


async def measure(seconds: int = SECONDS, wrapped: bool = False) -> float:
    """Percent of a core."""
    app = _Screen()
    async with app.run_test(size=(120, 34)) as pilot:
        log = app.query_one(LogView)
        log.set_wrapped(wrapped)
        await pilot.pause()
        begun, used = time.monotonic(), time.process_time()
        for piece in range(seconds * PIECES):
            log.append(_LINE.format(piece * LINES // PIECES + n) for n in range(LINES // PIECES))
            await asyncio.sleep(max(0.0, begun + (piece + 1) / PIECES - time.monotonic()))
        return 100 * (time.process_time() - used) / (time.monotonic() - begun)


def run(seconds: int = SECONDS) -> list[str]:
    """Cut and wrapped lines."""
    return [
        f"{name:8} {asyncio.run(measure(seconds, wrapped)):5.1f} % of a core"
        for name, wrapped in (("cut", False), ("wrapped", True))
    ]


def main() -> int:
    for line in run(int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS):
        sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
