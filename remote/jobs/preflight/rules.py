"""The names of the checks: stable words, which ``--force`` takes and JSON carries."""

from __future__ import annotations

READ_ONLY = "read_only"
WORKSPACE = "workspace"
WRITER = "writer"
DISK = "disk"
CACHE = "cache"
PYTHON = "python"
BASE_PYTHON = "base_python"
VLLM = "vllm"
DISTRIBUTION = "distribution"
VERSIONS = "versions"
VERIFIER = "verifier"
MODEL_FILES = "model_files"
TOKENIZER = "tokenizer"
REMOTE_CODE = "remote_code"
LAYERS = "layers"
VOCABULARY = "vocabulary"
PATH = "path"
GPU_MEMORY = "gpu_memory"
MEMORY = "memory"
SHARED_MEMORY = "shared_memory"
OPEN_FILES = "open_files"
LOAD_TIME = "load_time"
PORT = "port"
ENDPOINT = "endpoint"
CLOCK = "clock"

RULES = (
    READ_ONLY,
    WORKSPACE,
    WRITER,
    DISK,
    CACHE,
    PYTHON,
    BASE_PYTHON,
    VLLM,
    DISTRIBUTION,
    VERSIONS,
    VERIFIER,
    MODEL_FILES,
    TOKENIZER,
    REMOTE_CODE,
    LAYERS,
    VOCABULARY,
    PATH,
    GPU_MEMORY,
    MEMORY,
    SHARED_MEMORY,
    OPEN_FILES,
    LOAD_TIME,
    PORT,
    ENDPOINT,
    CLOCK,
)
"""In the order in which a person would go through them."""

UNFORCEABLE = (READ_ONLY, WORKSPACE)
"""Without a place for the job directory nothing can be started; read-only is the host's word."""
