"""Training at the size of Kimi-K2.5 on one GPU: speculators' own command beside the stage's, in one run.

    PYTHONPATH=. python3 -m bench.train_gpu PART... --folder FOLDER [--out FOLDER] [--tiny]

``overhead``: plain and wrapped at equal settings. ``speed``: step times, time to the first step and checkpoint as the
stage chooses. ``defaults``: the tool's own. ``optimizers``: what validation predicts after equal time and equal steps
with adamw and muon. The interpreter must have torch, speculators 0.9.0 and
datasets; the folder gets 7 GB of made-up data. ``--tiny`` tries the script itself in a minute without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.train_data import LANGUAGE, STORY, TINY, Size, make
from pipeline.plan import training
from pipeline.plan.stage import resolve
from pipeline.plan.training import Machine, Shape
from pipeline.plan.training_stages import TRAIN
from pipeline.training import records

WARM_STEPS = 10
RUN_SECONDS = 300.0
LANGUAGE_SECONDS = 60.0

_PLAIN_STEP = re.compile(r"profile/step_ms=([\d.e+]+)")


@dataclass
class Speed:
    """One way of training. Times in milliseconds and seconds; ``first_step`` counts from the start of the process."""

    name: str
    steps: int = 0
    step_ms: float = 0.0
    step_ms_p10: float = 0.0
    step_ms_p90: float = 0.0
    steps_per_second: float = 0.0
    tokens_per_second: float = 0.0
    first_step: float = 0.0
    phases: dict[str, float] | None = None
    profile: dict[str, float] | None = None
    checkpoint_bytes: int = 0
    checkpoint_seconds: float = 0.0
    gpu_mib: int = 0
    command: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.train_gpu")
    parser.add_argument("what", nargs="+", choices=list(_PARTS))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="where the JSON files go; FOLDER if not given")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for what in options.what:
        result = _PARTS[what](options.folder.resolve(), options.tiny)
        ((options.out or options.folder) / f"{what}.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


def overhead(folder: Path, tiny: bool) -> list[dict[str, Any]]:
    """Plain and wrapped at equal settings, in turn and twice, since two processes of one kind differ too."""
    size = TINY if tiny else STORY
    verifier, data = _made(folder, size)
    steps = 12 if tiny else 80
    equal = _settings(size, total_seq_len=size.length, loss_implementation="eager", log_every=1, fused_optimizer=False)
    equal["keep_embedding"] = True
    found = []
    for turn in (1, 2):
        options = _options(equal, verifier, data, folder / f"out_plain_{turn}")
        found.append(_told(_plain(folder, f"plain {turn}, adamw", options, steps, size)))
        found.append(_told(_wrapped(folder, f"wrapped {turn}, same settings", equal, verifier, data, steps, size)))
    plain, wrapped = ([item.step_ms for item in found[first::2]] for first in (0, 1))
    if min(plain) > 0:
        between = ", ".join(f"{ours / theirs - 1:+.2%}" for theirs, ours in zip(plain, wrapped, strict=True))
        apart = max(plain) / min(plain) - 1
        total = statistics.fmean(wrapped) / statistics.fmean(plain) - 1
        _say(f"overhead of the wrapper: {total:+.2%} of the median step ({between}); plain differs by {apart:.2%}")
    return [asdict(item) for item in found]


def speed(folder: Path, tiny: bool) -> list[dict[str, Any]]:
    """As the stage chooses: packed with a checkpoint, then one sample a step."""
    size = TINY if tiny else STORY
    verifier, data = _made(folder, size)
    unpacked = _settings(size, total_seq_len=size.length)
    runs: list[Callable[[], Speed]] = [
        lambda: _wrapped(
            folder, "as chosen", _settings(size), verifier, data, 12 if tiny else 45, size, checkpoint=True
        ),
        lambda: _wrapped(folder, "as chosen, unpacked", unpacked, verifier, data, 12 if tiny else 160, size),
    ]
    return [asdict(_told(run())) for run in runs]


def _made(folder: Path, size: Size) -> tuple[Path, Path]:
    began = time.monotonic()
    verifier, data = make(folder, size)
    _say(f"data: {time.monotonic() - began:.0f} s")
    return verifier, data


def defaults(folder: Path, tiny: bool) -> list[dict[str, Any]]:
    """The tool as it comes: one sample a step, muon. The loss is the eager one, since the fused one may not compile."""
    size = TINY if tiny else STORY
    verifier, data = make(folder, size)
    values = _settings(size, total_seq_len=size.length, loss_implementation="eager", log_every=1, optimizer="muon")
    options = _options(values, verifier, data, folder / "out_defaults")
    return [asdict(_told(_plain(folder, "plain, defaults", options, 12 if tiny else 40, size)))]


def _told(item: Speed) -> Speed:
    _say(json.dumps({name: value for name, value in asdict(item).items() if name != "command"}))
    return item


class Curve:
    """What validation predicts after each epoch, with the steps and the seconds of stepping until then."""

    def __init__(self, seconds: float) -> None:
        self.points: list[dict[str, float]] = []
        self._limit, self._spent = seconds, 0.0
        self._last: tuple[float, int] | None = None

    def read(self, record: dict[str, Any]) -> bool:
        """Takes a record; True when there is enough. Time between epochs (saving, validation) does not count."""
        if record["kind"] == records.STEP:
            now = (float(record["t"]), int(record["epoch"]))
            if self._last is not None and self._last[1] == now[1]:
                self._spent += now[0] - self._last[0]
            self._last = now
        result = records.validation(record) if record["kind"] == records.VAL else None
        if result is not None:
            self.points.append(
                {"seconds": round(self._spent, 2), "steps": record["step"], "predicted": round(result.predicted, 4)}
            )
        return self._spent > self._limit and result is not None


def optimizers(folder: Path, tiny: bool) -> list[dict[str, Any]]:
    """What validation predicts after each epoch, by seconds of training and by steps, for both optimizers."""
    size = TINY if tiny else LANGUAGE
    verifier, data = make(folder, size)
    found = []
    for optimizer in ("adamw", "muon"):
        values = _settings(size, optimizer=optimizer, epochs=200)
        argv, file = _wrapped_argv(values, verifier, data, folder / f"out_{optimizer}", ["--checkpoint-freq", "200"])
        curve = Curve(8.0 if tiny else LANGUAGE_SECONDS)
        _run(argv, folder / f"{optimizer}.log", file, curve.read)
        found.append({"optimizer": optimizer, "curve": curve.points})
        _say(f"{optimizer}: {len(curve.points)} epochs, last {curve.points[-1] if curve.points else None}")
    _compare(found)
    return found


def _compare(found: Sequence[dict[str, Any]]) -> None:
    adamw, muon = (item["curve"] for item in found)
    if not adamw or not muon:
        return
    for key in ("seconds", "steps"):
        limit = min(adamw[-1][key], muon[-1][key])
        values = [
            max((point["predicted"] for point in curve if point[key] <= limit), default=1.0) for curve in (adamw, muon)
        ]
        _say(f"after {limit:.0f} {key}: adamw {values[0]:.3f}, muon {values[1]:.3f}")


def _settings(size: Size, **given: Any) -> dict[str, Any]:
    """What the stage chooses on this machine for the data, but for what is given."""
    import torch

    gpu = torch.cuda.is_available()
    memory = torch.cuda.mem_get_info()[1] if gpu else None
    machine = Machine(int(gpu), len(os.sched_getaffinity(0)), memory)
    shape = Shape(size.hidden, size.vocabulary, size.draft_vocabulary)
    parameters = resolve(TRAIN, {"draft_vocab_size": size.draft_vocabulary, "training_share": size.share, **given}, {})
    settings = training.choose(parameters, machine, size.data, shape)
    _say("; ".join(choice.sentence for choice in settings.choices))
    return {**settings.values, "epochs": given.get("epochs", 1)}


def _options(values: dict[str, Any], verifier: Path, data: Path, output: Path) -> list[str]:
    return training.trainer_options({**values, "verifier": str(verifier)}, str(data), str(output))


def _plain(folder: Path, name: str, options: list[str], steps: int, size: Size) -> Speed:
    """``python -m speculators.train`` as it is; its console's records carry the step times.

    Without a GPU it does not run at all, and the wrapper's CPU patches take its place.
    """
    log = folder / f"{name.split(',')[0]}_{options[options.index('--optimizer') + 1]}.log"
    argv = [sys.executable, "-m", "speculators.train", *options]
    found = Speed(name, command=" ".join(argv))
    times: list[float] = []
    if not _has_gpu():
        return _wrapped_run(found, folder / "out_cpu", options, [], steps, size.length, False)
    began = time.monotonic()
    process = _start(argv, log)
    deadline = began + RUN_SECONDS
    while len(times) < steps and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.5)
        found.gpu_mib = max(found.gpu_mib, _gpu_mib())
        times = [float(value) for value in _PLAIN_STEP.findall(log.read_text(errors="replace"))]
        if times and not found.first_step:
            found.first_step = round(time.monotonic() - began, 1)
    _end(process)
    return _figures(found, times, size.length)


def _wrapped(
    folder: Path,
    name: str,
    values: dict[str, Any],
    verifier: Path,
    data: Path,
    steps: int,
    size: Size,
    checkpoint: bool = False,
) -> Speed:
    output = folder / f"out_{name.replace(' ', '_').replace(',', '')}"
    options = _options(values, verifier, data, output)
    flags = ["--fused-optimizer"] if values["fused_optimizer"] else []
    flags += [] if values.get("keep_embedding") else ["--drop-embedding"]
    found = Speed(name, command=" ".join(options))
    return _wrapped_run(found, output, options, flags, steps, values["total_seq_len"], checkpoint)


def _wrapped_argv(
    values: dict[str, Any], verifier: Path, data: Path, output: Path, more: list[str]
) -> tuple[list[str], Path]:
    output.mkdir(parents=True, exist_ok=True)
    file = output / records.FILE
    flags = ["--fused-optimizer"] if values["fused_optimizer"] else []
    options = [*_options(values, verifier, data, output), *more]
    module = [sys.executable, "-m", "pipeline.training.trainer"]
    return [*module, "--records", str(file), *flags, "--drop-embedding", "--", *options], file


def _wrapped_run(
    found: Speed, output: Path, options: list[str], flags: list[str], steps: int, length: int, checkpoint: bool
) -> Speed:
    output.mkdir(parents=True, exist_ok=True)
    file = output / records.FILE
    argv = [sys.executable, "-m", "pipeline.training.trainer", "--records", str(file), *flags, "--", *options]
    if checkpoint:
        argv += ["--max-steps", str(steps)]
    began = time.time()
    phases: dict[str, float] = {}
    seen: list[tuple[float, int]] = []
    times: list[float] = []
    profiles: list[dict[str, float]] = []

    def read(record: dict[str, Any]) -> bool:
        if record["kind"] == records.PHASE:
            phases.setdefault(record["name"], round(record["t"] - began, 1))
        elif record["kind"] == records.TRAIN:
            profiles.append(record["profile"])
            times.append(record["profile"]["step_ms"])
        elif record["kind"] == records.STEP:
            seen.append((record["t"], record["global_step"]))
            found.first_step = found.first_step or round(record["t"] - began, 1)
        elif record["kind"] == records.SAVED:
            found.checkpoint_bytes, found.checkpoint_seconds = record["bytes"], record["seconds"]
            return True
        return not checkpoint and bool(seen) and seen[-1][1] >= steps

    found.gpu_mib = _run(argv, output / "log", file, read)
    found.phases = phases
    found.profile = {
        name: round(statistics.median(item[name] for item in profiles[len(profiles) // 4 :]), 2)
        for name in ("fetch_ms", "fwd_ms", "bwd_ms", "clip_ms", "opt_ms")
        if profiles
    }
    return _figures(found, times, length, seen)


def _figures(found: Speed, times: list[float], length: int, seen: Sequence[tuple[float, int]] = ()) -> Speed:
    """Medians of the logged steps; the rate from arrival times where steps were not all logged."""
    warm = sorted(times[min(WARM_STEPS, len(times) // 2) :])
    if warm:
        found.step_ms = round(statistics.median(warm), 2)
        found.step_ms_p10, found.step_ms_p90 = round(warm[len(warm) // 10], 2), round(warm[len(warm) * 9 // 10], 2)
        found.steps, found.steps_per_second = len(times), round(1000 / statistics.fmean(warm), 3)
    late = [item for item in seen if item[1] >= WARM_STEPS]
    if len(late) > 1 and late[-1][0] > late[0][0]:
        found.steps = late[-1][1]
        found.steps_per_second = round((late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0]), 3)
    found.tokens_per_second = round(found.steps_per_second * length, 1)
    return found


def _run(argv: list[str], log: Path, file: Path, read: Callable[[dict[str, Any]], bool]) -> int:
    """Runs until ``read`` says that it has seen enough; the most GPU memory that was seen, in MiB."""
    reader, most = records.Reader(file), 0
    process = _start(argv, log)
    deadline = time.monotonic() + RUN_SECONDS
    enough = False
    while not enough and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.2)
        most = max(most, _gpu_mib())
        enough = any(read(record) for record in reader.read())
    if not enough:
        _say(
            f"ended early ({process.poll()}): see {log}\n"
            + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        )
    _end(process)
    return most


def _start(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    variables = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "COLUMNS": "3000",
        "NO_COLOR": "1",
    }
    with open(log, "wb") as file:
        return subprocess.Popen(argv, stdout=file, stderr=file, env=variables, start_new_session=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The whole session, at once: nothing of it is to be kept."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def _gpu_mib() -> int:
    if not _has_gpu():
        return 0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    return int(answer.stdout.split()[0]) if answer.stdout.split() else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


_PARTS: dict[str, Callable[[Path, bool], list[dict[str, Any]]]] = {
    "overhead": overhead,
    "speed": speed,
    "defaults": defaults,
    "optimizers": optimizers,
}

if __name__ == "__main__":
    sys.exit(main())
