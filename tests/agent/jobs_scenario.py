"""A job from launch to stop, by whatever CPython runs this: prints one JSON object of what it saw.

``python jobs_scenario.py WORKSPACE REPLAY_FOLDER PORT``: the stage ``serve`` is the replay of that folder.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from remote import procfs
from remote.jobs.launcher import Launcher
from remote.jobs.store import JobStore
from remote.policy import Policy
from remote.protocol.codec import encode_line, to_wire
from remote.protocol.errors import RequestError
from remote.protocol.stages import LaunchRequest, StageContext


def main(workspace: str, replay: str, port: str) -> None:
    os.environ["EAGLE_CONSOLE_REPLAY"] = replay
    store = JobStore(workspace)
    launcher = Launcher(store, Policy(False, "", (workspace,), workspace), None)
    request = LaunchRequest("serve", {"port": port}, StageContext(verifier="/models/verifier"), "scenario")
    job = launcher.launch(request, "key")
    seen = {"python": list(sys.version_info[:2]), "again": launcher.launch(request, "key").id == job.id, "states": []}
    processes = set()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        job = store.find("serve")
        if not seen["states"] or seen["states"][-1] != job.state:
            seen["states"].append(job.state)
        records = store.records(job.id)
        processes.update(records.state.processes if records.state else ())
        if job.state == "ready" and len(processes) >= 2:
            launcher.stop(job.id, "scenario", False)
        if job.ended:
            break
        time.sleep(0.02)
    try:
        launcher.stop(job.id, "scenario", False)
    except RequestError as error:
        seen["stop_again"] = error.code
    encode_line(to_wire(store.list()))
    seen["living"] = [process.pid for process in processes if procfs.alive(process)]
    seen["log"] = list(store.read_log(job.id, tail=2).lines)
    seen["simulated"] = job.simulated
    print(json.dumps(seen))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
