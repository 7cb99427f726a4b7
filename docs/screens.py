"""Makes the pictures of the README: the app itself, headless, on the embedded host, while a real model loads.

    .venv/bin/python docs/screens.py

Needs the pipeline environment (``make pipeline``); without it the load is a replay and the picture says so.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from eagle_console.config import Config
from eagle_console.link.connect import resolve
from eagle_console.link.supervisor import Supervisor
from eagle_console.state import HostState
from eagle_console.tui.app import ConsoleApp
from remote.protocol.jobs import LIVE_STATES, READY
from remote.protocol.stages import LaunchRequest

IMAGES = Path(__file__).parent / "images"
PORT = "8199"


async def main() -> None:
    target = resolve("demo", Config())
    app = ConsoleApp(target.profile, lambda publish: Supervisor(target, publish))
    async with app.run_test(size=(120, 34)) as pilot:

        async def until(condition: Callable[[HostState], object], seconds: float = 600.0) -> None:
            async with asyncio.timeout(seconds):
                while not condition(app.state):
                    await pilot.pause(0.2)

        def save(name: str) -> None:
            (IMAGES / f"{name}.svg").write_text(app.export_screenshot(title="eagle-console"))

        def serve(state: HostState) -> str:
            job = state.newest("serve")
            return job.progress.phase if job is not None and job.state in LIVE_STATES else ""

        await until(lambda state: state.gpus and state.disk and state.disk.value.scanned and state.jobs)
        assert app.client is not None
        context = app.profile.context
        job = await app.client.launch(LaunchRequest("serve", {"port": PORT}, context, "docs"))
        await until(lambda state: serve(state) in ("kv cache", "server"))
        await pilot.pause(1.0)
        save("dashboard")
        await pilot.press("2", "down")  # the second stage: the first names a path of this machine
        await pilot.pause(1.0)
        save("stages")
        await until(lambda state: (found := state.job(job.id)) is not None and found.state == READY)
        await pilot.press("3")
        await pilot.pause(1.5)
        save("log")
        await app.client.stop(job.id, "docs")
        await until(lambda state: not state.live_jobs())


if __name__ == "__main__":
    # Paths are part of the pictures: a short folder stands for the checkout.
    with tempfile.TemporaryDirectory(prefix="demo-") as home:
        pipeline = Path(home) / "pipeline"
        pipeline.symlink_to(Path(__file__).resolve().parents[1] / ".pipeline")
        os.environ["EAGLE_CONSOLE_DEMO_HOME"] = home
        os.environ["EAGLE_CONSOLE_PIPELINE"] = str(pipeline)
        IMAGES.mkdir(exist_ok=True)
        asyncio.run(main())
