"""The known ways in which a vLLM start or server fails: how each shows in the log, what it means, what to do.

Texts are matched in the message of a line, without its prefixes (``lines``). ``{name}`` in a cause or remedy stands for
the pattern's group of that name. The wording was compared over the source releases 0.6.0 to 0.33.0; the classes from
other libraries (safetensors, NCCL, huggingface_hub, the kernel, Slurm) are theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from remote.protocol.progress import Failure

# When a class can apply, by what the log has said before.
ANY_TIME, BEFORE_MODEL_LOADED, AFTER_MODEL_LOADED, WITH_DRAFT, BEFORE_ENGINE = (
    "any time", "before the model is loaded", "after the model is loaded", "with a draft", "before the engine",
)  # fmt: skip


@dataclass(frozen=True)
class FailureClass:
    """One class.

    :param weak: counts only where no other cause is found, as the echo of another rank's end.
    :param frame: what the source line of the traceback's innermost frame must hold besides.
    """

    name: str
    patterns: tuple[re.Pattern[str], ...]
    cause: str
    remedy: str
    when: str = ANY_TIME
    weak: bool = False
    frame: str = ""


def _class(
    name: str, *patterns: str, cause: str, remedy: str, when: str = ANY_TIME, weak: bool = False, frame: str = ""
) -> FailureClass:
    return FailureClass(name, tuple(re.compile(pattern) for pattern in patterns), cause, remedy, when, weak, frame)


_OOM_REMEDY = "Use fewer load threads, no eager or prefetch loading, no swap space; or a host with more memory."
_SHAPES = (
    r"size mismatch|shape mismatch|shapes? .* (?:do not|don't|cannot) |Tried to load weights? of size"
    r"|The size of tensor a \(\d+\) must match"
)
_GPU_OOM = r"\bOutOfMemoryError: |CUDA out of memory"

CLASSES = (
    _class(
        "gpu_memory_busy",
        r"Free memory on device(?: cuda:\d+)? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than",
        cause="Only {free} of {total} GiB of the GPU's memory were free: another process holds the rest.",
        remedy="End the process that holds the memory (the GPU panel names it), or lower gpu_memory_utilization.",
    ),
    _class(
        "gpu_oom_load",
        r"Failed to load model - not enough GPU memory",
        cause="The weights do not fit into the GPUs' memory.",
        remedy="Use more GPUs (tensor_parallel) or a quantised checkpoint.",
    ),
    _class(
        "gpu_oom_load",
        _GPU_OOM,
        cause="The GPU's memory ran out while the weights were loaded.",
        remedy="Use more GPUs (tensor_parallel) or a quantised checkpoint.",
        when=BEFORE_MODEL_LOADED,
    ),
    _class(
        "gpu_oom_runtime",
        _GPU_OOM,
        cause="The GPU's memory ran out after the weights were loaded: too little is left for the work itself.",
        remedy="Lower gpu_memory_utilization, max_num_seqs or max_num_batched_tokens.",
        when=AFTER_MODEL_LOADED,
    ),
    _class(
        "kv_cache_too_small",
        r"max seq len \((?P<asked>[\d,]+)\) is larger than the maximum number of tokens that can be stored in KV cache"
        r" \((?P<most>[\d,]+)\)",
        r"To serve at least one request with the model(?:'s|s's) max seq len \((?P<asked>[\d,]+)\)"
        r".* estimated maximum model length is (?P<most>[\d,]+)",
        cause="A sequence of {asked} tokens does not fit into the KV cache.",
        remedy="Set max_model_len={most}, or leave more memory for the cache.",
    ),
    _class(
        "kv_cache_too_small",
        r"To serve at least one request with the model(?:'s|s's) max seq len \((?P<asked>[\d,]+)\)",
        cause="A sequence of {asked} tokens does not fit into the KV cache.",
        remedy="Lower max_model_len, or leave more memory for the cache.",
    ),
    _class(
        "kv_cache_zero",
        r"No available memory for the cache blocks",
        cause="The weights fill the whole memory budget: nothing is left for the KV cache.",
        remedy="Raise gpu_memory_utilization or use more GPUs.",
    ),
    _class(
        "lfs_pointer",
        r"header too (?:large|small)|Header(?:TooLarge|TooSmall)",
        cause="A checkpoint file is no weights file: it is empty, or a Git LFS pointer in its place.",
        remedy="Run git lfs pull, or download the checkpoint again.",
    ),
    _class(
        "lfs_pointer",
        r"^MemoryError$",
        cause="A checkpoint file is no weights file: its first letters were taken for the length of a header.",
        remedy="Run git lfs pull, or download the checkpoint again.",
        frame=r"length_of_metadata",  # vLLM 0.32 reads the header itself before safetensors does
    ),
    _class(
        "lfs_pointer",
        r"^struct\.error: unpack requires a buffer of",
        cause="A checkpoint file is empty, or so short that it has no header.",
        remedy="Run git lfs pull, or download the checkpoint again.",
        frame=r"struct.unpack",
    ),
    _class(
        "corrupt_shard",
        r"SafetensorError: Error while deserializing header: ",
        r"incomplete metadata, file not fully covered|MetadataIncompleteBuffer",
        cause="A checkpoint file was cut short, as by a stopped copy or a full disk.",
        remedy="Compare the files' sizes with the index and copy the checkpoint again.",
    ),
    _class(
        "draft_incompatible",
        r"Target and draft model should have the same vocabulary size",
        r"speculative_draft_tensor_parallel_size=\S+ cannot be other value",
        cause="The draft model does not fit the verifier.",
        remedy="Compare the draft's config.json with the verifier's: hidden size, vocabulary, layers, data types.",
    ),
    _class(
        "draft_incompatible",
        r"No valid attention backend found",
        r"KeyError: 'embed_tokens\.weight'",
        _SHAPES,
        cause="The draft model does not fit the verifier.",
        remedy="Compare the draft's config.json with the verifier's: hidden size, vocabulary, layers, data types.",
        when=WITH_DRAFT,
    ),
    _class(
        "shape_mismatch",
        _SHAPES,
        cause="The checkpoint's tensors do not have the shapes that its config.json describes.",
        remedy="Check that config.json and the weights are of the same model; copy both again.",
        when=BEFORE_MODEL_LOADED,
    ),
    _class(
        "missing_shard",
        r"Cannot find any model weights with",
        r"FileNotFoundError: .*safetensors|Weight files referenced in index but missing",
        r"Following weights were not initialized from checkpoint",
        cause="The checkpoint lacks weights: a file is missing or the path is wrong.",
        remedy="Compare the folder with model.safetensors.index.json.",
    ),
    _class(
        "nccl_init",
        r"NCCL error: unhandled (?:cuda|system) error|ncclUnhandledCudaError|ncclInternalError|ncclSystemError",
        cause="The GPUs cannot talk to each other (NCCL).",
        remedy="Start with NCCL_DEBUG=INFO; check NCCL_SOCKET_IFNAME, /dev/shm, and try --disable-custom-all-reduce.",
    ),
    _class(
        "nccl_timeout",
        r"Watchdog caught collective operation timeout",
        cause="One rank did not answer the others in time.",
        remedy="Find the rank that fell silent: it stalled or died first.",
        weak=True,
    ),
    _class(
        "peer_rank_died",
        r"recvValue failed .*Connection reset by peer|TCPStore server has shut down",
        cause="Another rank died; this is its echo.",
        remedy="Look for the kernel's out-of-memory killer and for the rank that is missing.",
        weak=True,
    ),
    _class(
        "engine_ready_timeout",
        r"Timed out waiting for engine core processes to start",
        r"[Tt]imed out waiting for .*engines? to send (?:initial )?message on input socket",
        cause="The API server stopped waiting for an engine that was still loading.",
        remedy="Set VLLM_ENGINE_READY_TIMEOUT_S=7200.",
    ),
    _class(
        "port_in_use",
        r"\[Errno 98\] (?:error while attempting to bind|Address already in use)",
        cause="The port is taken by another process.",
        remedy="Stop the old server or choose another port.",
    ),
    _class(
        "hf_gated",
        r"401 Client Error|GatedRepoError|Cannot access gated repo",
        cause="The model's page asks for a licence or a token.",
        remedy="Accept the licence on the model's page and set HF_TOKEN on the host.",
    ),
    _class(
        "hf_offline",
        r"LocalEntryNotFoundError|Can't load the configuration of|OSError: .* is not a local folder",
        r"HFValidationError: Repo id must be in the form",  # what a path that does not exist is taken for
        cause="The model is not on this host and cannot be fetched.",
        remedy="Check the verifier's path; with HF_HUB_OFFLINE=1 it must be a local folder.",
    ),
    _class(
        "disk_full",
        r"No space left on device|\[Errno 122\] Disk quota exceeded",
        cause="A disk is full; the caches of the compilers are on it too.",
        remedy="Free space, or move the caches (VLLM_CACHE_ROOT, TRITON_CACHE_DIR).",
    ),
    _class(
        "host_oom_killed",
        r"Failed core proc\(s\): \{[^}]*-9\b|Worker proc \S+ died unexpectedly \(exit code: -9\)",
        r"Out of memory: Killed process",
        r"^(?:.*: line \d+: +\d+ )?Killed(?: |$)",
        cause="A process of the server was killed (SIGKILL), as the kernel does when the host's memory runs out.",
        remedy=f"See dmesg for 'Out of memory'. {_OOM_REMEDY}",
    ),
    _class(
        "process_died",
        r"Failed core proc\(s\): \{[^}]*-(?P<signal>\d+)",
        r"Worker proc \S+ died unexpectedly \(exit code: -(?P<signal>\d+)\)",
        cause="A process of the server was ended by signal {signal} and left no reason in the log.",
        remedy="",
        weak=True,
    ),
    _class(
        "process_died",
        r"WorkerProc initialization failed due to an exception in a background process",
        cause="A worker process died while it started and left no reason in the log.",
        remedy=f"See dmesg for 'Out of memory: Killed process'. {_OOM_REMEDY}",
        weak=True,
    ),
    _class(
        "process_died",
        r"EngineDeadError: EngineCore encountered an issue",
        r"Failed core proc\(s\): \{\}",  # it looked before the system gave the exit code
        cause="The engine's process died and left no reason in the log.",
        remedy=f"See dmesg for 'Out of memory: Killed process'. {_OOM_REMEDY}",
        weak=True,
    ),
    _class(
        "trust_remote_code",
        r"(?:pass the argument|consider setting) `?trust_remote_code=True",
        cause="The model brings its own Python code, which vLLM runs only when told so.",
        remedy="Review the code in the model's folder, then add --trust-remote-code.",
    ),
    _class(
        "unsupported_arch",
        r"Model architectures \[.*\] are not supported for now|does not recognize this architecture"
        r"|Unknown gguf model_type|Load format .* is not supported",
        cause="This vLLM does not know the model's architecture or format.",
        remedy="Upgrade vLLM, or convert the checkpoint.",
    ),
    _class(
        "tp_divisible",
        r"Total number of attention heads \((?P<heads>\d+)\) must be divisible by"
        r" tensor parallel size \((?P<size>\d+)\)",
        cause="{heads} attention heads cannot be split over {size} GPUs.",
        remedy="Choose a tensor_parallel that divides {heads}.",
    ),
    _class(
        "driver_old",
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|no kernel image is available",
        cause="The NVIDIA driver or the GPU does not match this build of torch or vLLM.",
        remedy="Upgrade the driver, or install the matching build.",
    ),
    _class(
        "cuda_error",
        r"CUDA error: an illegal memory access|CUBLAS_STATUS_EXECUTION_FAILED|!!!!!!! Segfault encountered",
        cause="A GPU kernel crashed.",
        remedy="Try another attention backend, or take back the option that was new.",
    ),
    _class(
        "cancelled",
        r"slurmstepd: error: \*\*\* (?:JOB|STEP) .* CANCELLED|^Terminated$",
        cause="The scheduler or a user ended it.",
        remedy="",
    ),
    _class(
        "config",
        r"User-specified max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len"
        r" \([^)]*?=(?P<most>\d+)",
        cause="The model was made for {most} tokens, {asked} were asked for.",
        remedy="Set max_model_len={most} or less.",
        when=BEFORE_ENGINE,
    ),
    _class(
        "config",
        r"the config file at '(?P<path>[^']+)' is not a valid JSON file",
        cause="The model's config.json cannot be read: it is not valid JSON.",
        remedy="Copy {path} again.",
    ),
    _class(
        "config",
        r"ValueError: |^  Value error, |^\S+(?: serve)?: error: ",
        cause="vLLM refuses an option or a value.",
        remedy="Read the line and correct the option.",
        when=BEFORE_ENGINE,
    ),
    _class(
        "config",
        r"ValidationError: \d+ validation errors? for",  # the reason follows on the next line
        cause="vLLM refuses an option or a value.",
        remedy="Read the lines after this one in the log and correct the option.",
        when=BEFORE_ENGINE,
        weak=True,
    ),
)

WORDS = (
    "rror", "emory", "KV cache", "max seq len", "eader", "etadata", "vocabulary", "draft_tensor_parallel",
    "attention backend", "hape", "size of", "size mismatch", "load weight", "model weights", "Weight files",
    "weights were", "nccl", "atchdog", "recvValue", "TCPStore", "imed out", "Errno", "GatedRepo", "gated repo",
    "LocalEntryNotFound", "configuration of", "No space", "Killed", "core proc", "died unexpectedly", "WorkerProc",
    "trust_remote_code", "rchitecture", "gguf", "Load format", "attention heads", "NVIDIA driver", "driver version",
    "kernel image", "CUBLAS", "Segfault", "Terminated", "max_model_len", "config file", "NCCL",
)  # fmt: skip
"""One of these is in every text in which a class can be found. They are looked for first: nearly all text has none, and
to try every pattern on it takes a hundred times as long."""


def killed_by_kernel(line: str, how: str) -> Failure:
    """The failure that the kernel's own word proves. ``how`` is in which way the process ended."""
    limit = "Memory cgroup" in line or "control group" in line
    why = "the memory limit of its control group (container) was reached" if limit else "the host's memory ran out"
    return Failure("host_oom_killed", f"The kernel killed a process of it: {why} ({how}).", _OOM_REMEDY, line)


CONSEQUENCES = re.compile(
    r"EngineCore (?:failed to start|encountered (?:an issue|a fatal error))"
    r"|Engine core initialization failed\. See root cause above"
    r"|Engine process failed to start"
    r"|WorkerProc (?:initialization failed|failed to start|hit an exception)"
    r"|Worker proc \S+ died unexpectedly"
    r"|EngineDeadError|AsyncLLM output_handler failed|AsyncEngineDeadError"
    r"|destroy_process_group|resource_tracker: There appear to be"
    r"|Executor failed|Exception in worker \S+ while processing"
)
"""What is said because something else went wrong before; ``Failed core proc(s)`` with a signal is still a cause."""

HARMLESS = re.compile(
    r"Address already in use\. Retrying with a new port"
    r"|No available shared memory broadcast block found"  # said while a rank compiles or quantises
    r"|Dumping (?:input|scheduler) "  # the whole configuration, after the engine died of something else
)
"""Looks like a failure and is none."""

IN_REQUEST = re.compile(r"Exception in ASGI application|Error in preprocessing prompt inputs")
"""Begins the traceback of a request: it is answered with an error, the server lives on."""

STOPPED = re.compile(
    r"\[shutdown\] API server: shutdown triggered"  # 0.23 and later
    r"|Shutting down FastAPI HTTP server"
    r"|Shutting down$"  # uvicorn
    r"|[Rr]eceived (?:signal )?SIG(?:TERM|INT)"
)
"""The server was told to stop; not so where it stops because its engine has died, which is said before."""
