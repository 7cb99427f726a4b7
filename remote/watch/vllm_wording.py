"""What vLLM 0.6 to 0.33 says while it starts: phases in their order, the wording that begins each, figures, bars.

The wording was compared over the source releases 0.6.0 to 0.33.0; a message here is without its prefixes (``lines``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CONFIG = "config"
ENGINE = "engine"
WORKERS = "workers"
BUILD = "build"
DOWNLOAD = "download"
WEIGHTS = "weights"
DRAFT = "draft weights"
POST_LOAD = "post-load"
COMPILE = "compile"
PROFILE = "profile"
KV_CACHE = "kv cache"
WARM_UP = "warm-up"
CAPTURE = "capture"
SERVER = "server"
READY = "ready"

PHASES = (
    CONFIG, ENGINE, WORKERS, BUILD, DOWNLOAD, WEIGHTS, DRAFT, POST_LOAD, COMPILE, PROFILE, KV_CACHE, WARM_UP, CAPTURE,
    SERVER, READY,
)  # fmt: skip

# Which value stays when several ranks or attempts give the same figure.
FIRST, LARGEST, SMALLEST = "first", "largest", "smallest"


@dataclass(frozen=True)
class Mark:
    """A message that belongs to a phase. Named groups of the pattern become figures of that name.

    :param keep: which value stays of a figure that is said again; seconds keep the slowest rank's.
    :param reads_checkpoint: said at the beginning of reading a checkpoint: the second time it is the draft's.
    :param detail: a word for people while this is the latest message; ``\\1``-style references are expanded.
    """

    phase: str
    pattern: re.Pattern[str]
    keep: str = LARGEST
    reads_checkpoint: bool = False
    detail: str = ""


@dataclass(frozen=True)
class BarWording:
    """A progress bar, by the beginning of its description. ``unit`` is what it counts; ``bytes`` when it shows B/s."""

    phase: str
    description: str
    unit: str


def _mark(phase: str, pattern: str, keep: str = LARGEST, detail: str = "", reads_checkpoint: bool = False) -> Mark:
    return Mark(phase, re.compile(pattern), keep, reads_checkpoint, detail)


_N = r"[\d,]+(?:\.\d+)?"
_TAGGED = r".{0,40}?"  # 0.32 puts a tag of the compiled part before the compiler's messages

MARKS = (
    _mark(CONFIG, r"vLLM API server version (?P<version>\S+)"),
    _mark(CONFIG, r"[ ▄█▀]+version (?P<version>\d\S*)"),  # the banner; 0.18 and later
    _mark(CONFIG, r"non-default args: |args: Namespace\("),
    _mark(CONFIG, r"Resolved architecture: (\S+)", detail=r"\1"),
    _mark(CONFIG, rf"Using max model len (?P<max_model_len>{_N})"),
    _mark(ENGINE, r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[^)]*)\)"),
    _mark(WORKERS, r"world_size=\d+ rank=\d+ local_rank=\d+ distributed_init_method="),
    _mark(WORKERS, r"vLLM is using nccl=="),
    _mark(WORKERS, r"rank \d+ in world size (?P<world_size>\d+) is assigned as"),
    _mark(WORKERS, r"Worker ready; awaiting tasks"),
    _mark(BUILD, r"Starting to load model |Loading model from scratch|Using V2 Model Runner"),
    _mark(BUILD, rf"Initializing model took (?P<build_seconds>{_N}) seconds", detail="memory is allocated"),
    _mark(DOWNLOAD, rf"Time spent downloading weights for .*: (?P<download_seconds>{_N}) seconds"),
    _mark(WEIGHTS, r"Using model weights format|EP weight filter: |Auto-prefetch is disabled|Network filesystem \("),
    _mark(
        WEIGHTS,
        rf"Filesystem type for checkpoints: (\S+)\. Checkpoint size: (?P<checkpoint_gib>{_N}) GiB\."
        rf" Available RAM: (?P<host_ram_available_gib>{_N}) GiB",
        FIRST,
        detail=r"file system \1",
        reads_checkpoint=True,
    ),
    _mark(WEIGHTS, r"Prefetching checkpoint files(?:: .*\((\d+/\d+)\))?", detail=r"prefetching \1"),
    _mark(WEIGHTS, r"Loading weights with BitsAndBytes|\[RunAI Streamer\]|Mapped \d+ tensors from the weight cache"),
    _mark(WEIGHTS, r"Weight cache unusable", detail="weight cache unusable, reading from disk"),
    _mark(WEIGHTS, rf"Loading weights took (?P<weights_seconds>{_N}) seconds", detail="one rank has read its weights"),
    _mark(DRAFT, r"Loading drafter model"),
    _mark(POST_LOAD, rf"Loading model weights took (?P<model_gib>{_N}) GB"),
    _mark(
        POST_LOAD,
        rf"Model loading took (?P<model_gib>{_N}) Gi?B(?: memory)? and (?P<model_seconds>{_N}) seconds",
    ),
    _mark(COMPILE, rf"{_TAGGED}Using cache directory: .* for vLLM's torch\.compile"),
    _mark(COMPILE, rf"{_TAGGED}Dynamo bytecode transform time: (?P<dynamo_seconds>{_N}) s"),
    _mark(COMPILE, rf"{_TAGGED}Directly load (?:the compiled graph|AOT compilation)", detail="from the compile cache"),
    _mark(COMPILE, rf"{_TAGGED}(?:Starting torch\.compile|Compiling a graph for|Cache the graph of)"),
    _mark(COMPILE, rf"{_TAGGED}(?:saving|saved) AOT compiled function"),
    _mark(COMPILE, rf"{_TAGGED}torch\.compile (?:takes|took) (?P<compile_seconds>{_N}) s"),
    _mark(PROFILE, rf"{_TAGGED}Initial profiling/warmup run took (?P<profile_seconds>{_N}) s"),
    _mark(PROFILE, rf"Memory profiling takes (?P<profile_seconds>{_N}) seconds"),
    _mark(PROFILE, rf"Estimated CUDA graph memory: (?P<graphs_estimate_gib>{_N}) GiB"),
    _mark(KV_CACHE, rf"# (?:GPU|cuda|CPU|cpu) blocks: (?P<kv_cache_blocks>{_N})", SMALLEST),
    _mark(KV_CACHE, rf"Available KV cache memory: (?P<kv_cache_gib>{_N}) GiB", SMALLEST),
    _mark(KV_CACHE, rf"Explicitly set \((?P<kv_cache_gib>{_N})/{_N}\) GiB for KV cache", SMALLEST),
    _mark(
        KV_CACHE,
        rf"\S+ KV cache size: (?P<kv_cache_tokens>{_N}) tokens"
        rf"(?:, Maximum concurrency for {_N} tokens per request: (?P<max_concurrency>{_N})x)?",
        SMALLEST,
    ),
    _mark(KV_CACHE, rf"Maximum concurrency for {_N} tokens per request: (?P<max_concurrency>{_N})x", SMALLEST),
    _mark(WARM_UP, r"DeepGEMM warmup|\[AutoTuner\]: Tuning|JIT kernel warmup|Running FlashInfer autotune|Warming up "),
    _mark(CAPTURE, r"Capturing the model for CUDA graphs|Capturing cudagraphs for|Capturing model for .*speculator"),
    _mark(
        CAPTURE,
        rf"Graph capturing finished in (?P<capture_seconds>{_N}) secs(?:, took (?P<graphs_gib>{_N}) GiB)?",
    ),
    _mark(
        SERVER,
        rf"init engine \(.*\) took (?P<init_engine_seconds>{_N}) s(?:econds)?\b"
        rf"(?: \(compilation: (?P<compilation_seconds>{_N}) s)?",
        detail="the engine is ready",
    ),
    _mark(SERVER, r"Starting vLLM (?:API )?server |Available routes are|Started server process"),
    _mark(SERVER, r"Waiting for application startup"),
)

STARTED = re.compile(r"Application startup complete")
"""uvicorn's last word before the port answers."""

SERVING = re.compile(
    r'\S+ - "(?:GET|POST) \S{1,200} HTTP/1\.\d" 200'  # uvicorn's word about a request
    r"|(?:Engine \d+: |\d+ Engines Aggregated: )?Avg prompt throughput: "
)
"""What only a server says that is ready: all there is where stderr, or the beginning of the log, is missing."""

BARS = (
    BarWording(WEIGHTS, "Loading safetensors checkpoint shards", "shards"),
    BarWording(WEIGHTS, "Loading pt checkpoint shards", "shards"),
    BarWording(WEIGHTS, "Loading np_cache checkpoint shards", "shards"),
    BarWording(WEIGHTS, "Multi-thread loading", "shards"),
    BarWording(WEIGHTS, "Loading safetensors using Fastsafetensor loader", "file groups"),
    BarWording(WEIGHTS, "Loading safetensors using Runai Model Streamer", "tensors"),  # files before 0.10.0
    BarWording(WEIGHTS, "Loading safetensors using InstantTensor loader", "tensors"),
    BarWording(CAPTURE, "Capturing ", "graphs"),
    BarWording(WARM_UP, "DeepGEMM warmup", "kernels"),
    BarWording(WARM_UP, "JIT kernel warmup", "kernels"),
    BarWording(WARM_UP, "Compiling CuTeDSL kernels", "kernels"),
    BarWording(DOWNLOAD, "Fetching ", "files"),
)

BAR = re.compile(
    r"(?P<description>[^|\r\n]{1,200}?):?\s+\d{1,3}%(?:\|[^|]*\| ?| Completed \| )"
    r"(?P<done>[\d.]+[kKMGTP]?)/(?P<total>[\d.]+[kKMGTP]?) \[(?P<rate>[^\]]*)"
)
"""tqdm's bar, in vLLM's own format (``26% Completed | 22/85 [..]``) and in tqdm's (``26%|██▌  | 22/85 [..]``)."""
