from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.protocol.progress import Progress
from remote.watch import vllm_load
from remote.watch.follow import LineSplitter
from remote.watch.vllm_wording import PHASES

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORDING = Path(__file__).parent.parent.parent / "eagle_console" / "demo" / "recordings" / "serve.jsonl"
HEADER = "INFO 07-08 13:53:31 [x.py:1] "


def read(*lines: str, at: float = 1000.0) -> vllm_load.LoadState:
    state = vllm_load.initial()
    for line in lines:
        state = vllm_load.read_line(state, line, at)
    return state


def shown(*lines: str, at: float = 1000.0) -> Progress:
    return vllm_load.progress(read(*lines, at=at), at, healthy=False)


def shards(done: int, total: int) -> str:
    percent = 100 * done // total
    return f"Loading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{total} [00:20<00:40, 2.00s/it]"


def h200() -> Iterator[tuple[float, str]]:
    """The recorded lines with their arrival; a leading ``\\r`` says that a carriage return ended the text."""
    for line in (FIXTURES / "h200_start_cold.log").read_text().splitlines():
        match = re.match(r" *(\d+\.\d+) (?:\\r )?(.*)$", line)
        if match:
            yield float(match[1]), match[2]


def recorded() -> Iterator[tuple[float, str]]:
    splitter = LineSplitter()
    for line in RECORDING.read_text().splitlines()[1:]:
        record = json.loads(line)
        for text in splitter.feed(record["text"].encode()):
            yield record["at"], text


@pytest.mark.parametrize(
    ("message", "phase", "figures"),
    [
        ("vLLM API server version 0.6.3", "config", {}),
        ("  █▄█▀ █     █     █     █  version 0.26.0", "config", {}),
        ("non-default args: {'model': '/m'}", "config", {}),
        ("Resolved architecture: LlamaForCausalLM", "config", {}),
        ("Using max model len 4096", "config", {"max_model_len": 4096}),
        ("Initializing an LLM engine (v0.6.6) with config: model='/m'", "engine", {}),
        ("Initializing a V0 LLM engine (v0.8.5) with config: model='/m'", "engine", {}),
        ("Initializing a V1 LLM engine (v0.33.0) with config: model='/m'", "engine", {}),
        (
            "world_size=8 rank=0 local_rank=0 distributed_init_method=tcp://127.0.0.1:33393 backend=nccl",
            "workers",
            {},
        ),
        ("vLLM is using nccl==2.27.3", "workers", {}),
        ("rank 0 in world size 8 is assigned as DP rank 0, PP rank 0, TP rank 0", "workers", {"world_size": 8}),
        ("Worker ready; awaiting tasks", "workers", {}),
        ("Starting to load model /m...", "build", {}),
        ("Loading model from scratch...", "build", {}),
        ("Using V2 Model Runner", "build", {}),
        ("Initializing model took 2.500000 seconds", "build", {"build_seconds": 2.5}),
        ("Time spent downloading weights for a/b: 61.5 seconds", "download", {"download_seconds": 61.5}),
        ("Using model weights format ['*.safetensors']", "weights", {}),
        ("EP weight filter: ep_size=8, ep_rank=0, loading 32/256 experts", "weights", {}),
        (
            "Filesystem type for checkpoints: NFS4. Checkpoint size: 361.06 GiB. Available RAM: 259.63 GiB.",
            "weights",
            {"checkpoint_gib": 361.06, "host_ram_available_gib": 259.63},
        ),
        ("Prefetching checkpoint files: 10% (3/30)", "weights", {}),
        ("Loading weights took 364.66 seconds", "weights", {"weights_seconds": 364.66}),
        ("Loading drafter model...", "draft weights", {}),
        ("Loading model weights took 14.9888 GB", "post-load", {"model_gib": 14.9888}),
        (
            "Model loading took 14.9888 GB and 9.500000 seconds",
            "post-load",
            {"model_gib": 14.9888, "model_seconds": 9.5},
        ),
        (
            "Model loading took 28.0 GiB and 21.289784 seconds",
            "post-load",
            {"model_gib": 28, "model_seconds": 21.289784},
        ),
        ("Model loading took 28.0 GiB memory and 21.5 seconds", "post-load", {"model_gib": 28, "model_seconds": 21.5}),
        ("Using cache directory: /c/backbone for vLLM's torch.compile", "compile", {}),
        ("(backbone) Using cache directory: /c/backbone for vLLM's torch.compile", "compile", {}),
        ("Dynamo bytecode transform time: 7.22 s", "compile", {"dynamo_seconds": 7.22}),
        ("Directly load the compiled graph(s) for dynamic shape from the cache, took 2.1 s", "compile", {}),
        ("Directly load AOT compilation from path /c", "compile", {}),
        ("Compiling a graph for general shape takes 20.1 s", "compile", {}),
        ("Compiling a graph for compile range (1, 8192) takes 11.52 s", "compile", {}),
        ("Starting torch.compile", "compile", {}),
        ("torch.compile takes 22.24 s in total", "compile", {"compile_seconds": 22.24}),
        ("torch.compile took 22.24 s in total", "compile", {"compile_seconds": 22.24}),
        ("Initial profiling/warmup run took 1.12 s", "profile", {"profile_seconds": 1.12}),
        ("Memory profiling takes 3.50 seconds", "profile", {"profile_seconds": 3.5}),
        ("Estimated CUDA graph memory: 1.25 GiB total", "profile", {"graphs_estimate_gib": 1.25}),
        ("# GPU blocks: 27000, # CPU blocks: 2048", "kv cache", {"kv_cache_blocks": 27000}),
        ("# cuda blocks: 27000, # CPU blocks: 2048", "kv cache", {"kv_cache_blocks": 27000}),
        ("Available KV cache memory: 97.98 GiB", "kv cache", {"kv_cache_gib": 97.98}),
        ("Explicitly set (1.0/7.21) GiB for KV cache on node 0.", "kv cache", {"kv_cache_gib": 1}),
        ("GPU KV cache size: 651,504 tokens", "kv cache", {"kv_cache_tokens": 651504}),
        (
            "CPU KV cache size: 23,296 tokens, Maximum concurrency for 1,024 tokens per request: 22.75x",
            "kv cache",
            {"kv_cache_tokens": 23296, "max_concurrency": 22.75},
        ),
        ("Maximum concurrency for 4,096 tokens per request: 261.29x", "kv cache", {"max_concurrency": 261.29}),
        ("JIT kernel warmup starting.", "warm-up", {}),
        ("Running FlashInfer autotune", "warm-up", {}),
        ("[AutoTuner]: Tuning trtllm::fused_moe", "warm-up", {}),
        ("Capturing the model for CUDA graphs. This may lead to", "capture", {}),
        ("Capturing cudagraphs for decoding. This may lead to", "capture", {}),
        ("Graph capturing finished in 20 secs.", "capture", {"capture_seconds": 20}),
        (
            "Graph capturing finished in 5 secs, took 1.51 GiB",
            "capture",
            {"capture_seconds": 5, "graphs_gib": 1.51},
        ),
        (
            "init engine (profile, create kv cache, warmup model) took 45.75 seconds",
            "server",
            {"init_engine_seconds": 45.75},
        ),
        (
            "init engine (profile, create kv cache, warmup model) took 45.75 s (compilation: 22.24 s)",
            "server",
            {"init_engine_seconds": 45.75, "compilation_seconds": 22.24},
        ),
        ("Starting vLLM API server on http://0.0.0.0:8000", "server", {}),
        ("Starting vLLM API server 0 on http://0.0.0.0:8000", "server", {}),
        ("Starting vLLM server on http://0.0.0.0:8000", "server", {}),
        ("Available routes are:", "server", {}),
        ("Received request cmpl-1: prompt: 'Loading drafter model', params: x", "", {}),
        ("The user said: Application startup complete.", "", {}),
        ("unknown text", "", {}),
    ],
)
def test_phase_and_figures_of_a_message(message: str, phase: str, figures: dict[str, float]) -> None:
    for prefix in ("", HEADER, "INFO 12-20 00:49:35 x.py:1] ", "(EngineCore pid=7) " + HEADER):
        progress = shown(prefix + message)
        assert progress.phase == phase
        assert (progress.figures or {}) == figures
        assert not progress.ready


@pytest.mark.parametrize(
    ("line", "phase", "done", "total", "unit"),
    [
        (shards(22, 85), "weights", 22, 85, "shards"),
        (shards(0, 9), "weights", 0, 9, "shards"),
        ("Loading safetensors checkpoint shards (eager):  50% Completed | 1/2 [0<1, 2s/it]", "weights", 1, 2, "shards"),
        ("Loading pt checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.9s/it]", "weights", 1, 2, "shards"),
        ("Multi-thread loading shards:  25% Completed | 16/64 [1:02:03<3:00:00, 2.0s/it]", "weights", 16, 64, "shards"),
        (
            "Loading safetensors using Runai Model Streamer:   1% Completed | 900/119028 [00:01<01:00, 900it/s]",
            "weights", 900, 119028, "tensors",
        ),
        (
            "Loading safetensors using InstantTensor loader:  50% Completed | 92G/184G [00:11<00:11, 8.41GB/s]",
            "weights", 92e9, 184e9, "bytes",
        ),
        ("Capturing CUDA graph shapes:  46%|████▌     | 16/35 [00:08<00:09,  2.0it/s]", "capture", 16, 35, "graphs"),
        ("Capturing CUDA graphs (decode, FULL): 100%|███| 35/35 [0<0, 2it/s]", "capture", 35, 35, "graphs"),
        ("Capturing eagle CUDA graphs (FULL):   0%|          | 0/35 [00:00<?, ?it/s]", "capture", 0, 35, "graphs"),
        ("DeepGEMM warmup:  10%|█         | 10/100 [00:08<00:09,  2.0it/s]", "warm-up", 10, 100, "kernels"),
        ("Fetching 30 files:  10%|█         | 3/30 [00:08<00:09,  2.0it/s]", "download", 3, 30, "files"),
    ],
)  # fmt: skip
def test_progress_bars(line: str, phase: str, done: float, total: float, unit: str) -> None:
    for prefix in ("", "(Worker_TP0 pid=7) ", "\r"):
        progress = shown(prefix + line)
        assert (progress.phase, progress.done, progress.total, progress.unit) == (phase, done, total, unit)
        assert progress.percent == pytest.approx(100 * done / total)


@pytest.mark.parametrize(
    "line",
    [
        "Processed prompts:  50%|█████     | 1/2 [00:01<00:01,  1.9s/it]",  # not a bar of the start
        "Loading safetensors checkpoint shards: 200% Completed | 4/2 [00:01<00:01,  1.9s/it]",
        "Loading safetensors checkpoint shards:   0% Completed | 0/0 [00:01<00:01,  1.9s/it]",
        "Loading safetensors checkpoint shards:  50% Completed | ./. [00:01<00:01,  1.9s/it]",
        "Loading safetensors checkpoint shards:  50% Compl",
    ],
)
def test_bars_that_say_nothing(line: str) -> None:
    assert read(line) == vllm_load.initial()


def test_nothing_is_known_before_the_first_line() -> None:
    assert shown() == Progress()


def test_a_log_that_begins_with_a_bar_makes_up_no_earlier_phase() -> None:
    progress = shown(shards(3, 9), at=40.0)
    assert [(phase.name, phase.start, phase.end) for phase in progress.phases] == [("weights", 40.0, None)]
    assert progress.figures is None


def test_the_first_phase_begins_with_the_process() -> None:
    progress = shown("Resolved architecture: X", at=30.0)
    assert [(phase.name, phase.start) for phase in progress.phases] == [("config", 0.0)]


def test_a_phase_never_goes_back() -> None:
    progress = shown("Model loading took 28.0 GiB and 21.3 seconds", shards(1, 9), "Resolved architecture: X")
    assert progress.phase == "post-load"
    assert progress.done is None


def test_counts_of_several_engines_in_one_log_do_not_fall() -> None:
    assert shown(shards(5, 9), shards(3, 9), shards(0, 9)).done == 5


def test_a_second_bar_is_the_draft() -> None:
    state = read(shards(0, 9), shards(9, 9), shards(9, 9))
    assert state.phase == "weights"
    progress = vllm_load.progress(vllm_load.read_line(state, shards(0, 1), 1000.0), 1000.0, False)
    assert (progress.phase, progress.done, progress.total) == ("draft weights", 0, 1)


def test_a_second_bar_of_the_same_length_is_the_draft() -> None:
    assert shown(shards(0, 1), shards(1, 1), shards(0, 1)).phase == "draft weights"


def test_a_second_checkpoint_is_the_draft() -> None:
    size = "Filesystem type for checkpoints: XFS. Checkpoint size: {} GiB. Available RAM: 259.63 GiB."
    state = read(HEADER + size.format("361.06"), HEADER + size.format("361.06"))
    assert state.phase == "weights"
    for line in ("Loading weights took 61.00 seconds", size.format("1.50"), "Loading weights took 0.40 seconds"):
        state = vllm_load.read_line(state, HEADER + line, 100.0)
    assert state.phase == "draft weights"
    assert state.figures["checkpoint_gib"] == 361.06
    assert state.figures["weights_seconds"] == 61.0
    assert state.figures["draft_checkpoint_gib"] == 1.5
    assert state.figures["draft_weights_seconds"] == 0.4


def test_the_drafter_line_begins_the_draft_and_its_bar_counts_anew() -> None:
    progress = shown(shards(9, 9), HEADER + "Loading drafter model...", shards(0, 2))
    assert (progress.phase, progress.done, progress.total) == ("draft weights", 0, 2)


def test_seconds_longer_than_the_clock_are_not_believed() -> None:
    assert shown("Loading weights took 1200.56 seconds", at=12.0).figures is None
    assert shown("Loading weights took 11.50 seconds", at=12.0).figures == {"weights_seconds": 11.5}


def test_the_slowest_rank_and_the_smallest_cache_count() -> None:
    figures = shown(
        "Loading weights took 61.0 seconds",
        "Loading weights took 197.0 seconds",
        "Loading weights took 70.0 seconds",
        "Available KV cache memory: 20.5 GiB",
        "Available KV cache memory: 20.1 GiB",
    ).figures
    assert figures == {"weights_seconds": 197.0, "kv_cache_gib": 20.1}


def test_startup_complete_waits_for_health_and_reads_no_more() -> None:
    state = read("INFO:     Application startup complete.")
    progress = vllm_load.progress(state, 1000.0, False)
    assert (progress.phase, progress.ready, progress.detail) == ("server", False, "waiting for /health")
    assert vllm_load.read_line(state, "GPU KV cache size: 1 tokens", 1001.0) is state


def test_ready_is_health_alone() -> None:
    state = read(shards(9, 9), at=20.0)
    assert not vllm_load.progress(state, 30.0, False).ready
    progress = vllm_load.progress(state, 30.0, True)
    assert progress.ready
    assert [(phase.name, phase.start, phase.end) for phase in progress.phases] == [
        ("weights", 20.0, 30.0),
        ("ready", 30.0, None),
    ]


def test_the_moment_of_readiness_stays_and_its_loss_shows() -> None:
    state = vllm_load.read_health(vllm_load.read_health(read(shards(9, 9), at=20.0), 30.0), 60.0)
    assert vllm_load.progress(state, 90.0, True).phases[-1].start == 30.0
    lost = vllm_load.progress(state, 90.0, False)
    assert not lost.ready
    assert lost.detail == "was ready; /health does not answer"


def test_a_real_start_on_a_gpu() -> None:
    state = vllm_load.initial()
    percents = []
    for at, line in h200():
        state = vllm_load.read_line(state, line, at)
        progress = vllm_load.progress(state, at, False)
        if progress.phase == "weights" and progress.percent is not None:
            percents.append(round(progress.percent))
    assert [(phase.name, phase.start) for phase in state.phases] == [
        ("config", 0.0),
        ("engine", 49.858),
        ("workers", 51.088),
        ("build", 51.141),
        ("weights", 52.796),
        ("post-load", 73.080),
        ("compile", 80.820),
        ("profile", 96.960),
        ("kv cache", 99.357),
        ("capture", 100.134),
        ("server", 118.839),
    ]
    assert sorted(set(percents)) == [0, 11, 22, 33, 44, 56, 67, 78, 89, 100]
    assert percents == sorted(percents)
    assert state.version == "0.26.0"
    assert state.startup_complete
    assert state.figures["checkpoint_gib"] == 28.0
    assert state.figures["weights_seconds"] == 19.34
    assert state.figures["kv_cache_tokens"] == 1070224
    assert state.figures["graphs_gib"] == 1.51


def test_a_real_start_on_a_cpu() -> None:
    state = vllm_load.initial()
    for at, line in recorded():
        state = vllm_load.read_line(state, line, at)
    assert [phase.name for phase in state.phases] == [
        "config", "engine", "workers", "build", "weights", "kv cache", "server",
    ]  # fmt: skip
    assert state.version == "0.32.0"
    assert state.startup_complete
    assert state.figures["checkpoint_gib"] == 0.25
    assert state.figures["kv_cache_tokens"] == 23296
    assert 0 < state.figures["weights_seconds"] < 10


REAL_LINES = [line for _, line in h200()][:160] + [line for _, line in recorded()]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(REAL_LINES),
            st.text(max_size=80),
            st.builds(lambda line, cut: line[cut:], st.sampled_from(REAL_LINES), st.integers(0, 120)),
            st.builds(shards, st.integers(0, 12), st.integers(1, 12)),
        ),
        max_size=60,
    ),
    st.lists(st.floats(0, 1e6), min_size=60, max_size=60),
    st.booleans(),
)
def test_any_mixture_of_lines_keeps_the_promises(lines: list[str], times: list[float], healthy: bool) -> None:
    state = vllm_load.initial()
    for line, at in zip(lines, times):
        before = state
        state = vllm_load.read_line(state, line, at)
        names = [phase.name for phase in state.phases]
        assert names[: len(before.phases)] == [phase.name for phase in before.phases]
        assert [PHASES.index(name) for name in names] == sorted({PHASES.index(name) for name in names})
        starts = [phase.start for phase in state.phases]
        assert starts == sorted(starts)
        progress = vllm_load.progress(state, at, healthy)
        assert progress.ready == healthy
        if progress.done is not None and progress.total is not None:
            assert 0 <= progress.done <= progress.total
            assert progress.percent is not None
            assert 0 <= progress.percent <= 100
