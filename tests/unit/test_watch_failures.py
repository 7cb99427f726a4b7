from __future__ import annotations

import re
from typing import Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.protocol.progress import Failure
from remote.watch import failures, kernel
from remote.watch.failure_classes import CLASSES, WORDS

HEADER = "ERROR 07-08 13:53:31 [core.py:846] "
ENGINE = f"(EngineCore_DP0 pid=7) {HEADER}"
WORKER = f"(Worker_TP3 pid=9) {HEADER}"
API = f"(APIServer pid=5) {HEADER}"
STARTED = (
    f"(EngineCore_DP0 pid=7) {HEADER.replace('ERROR', 'INFO')}Initializing a V1 LLM engine (v0.30.0) with config: x"
)
LOADED = f"(Worker_TP0 pid=9) {HEADER.replace('ERROR', 'INFO')}Model loading took 28.0 GiB memory and 21.5 seconds"
DRAFTING = f"(Worker_TP0 pid=9) {HEADER.replace('ERROR', 'INFO')}Loading drafter model..."


def verdict(*lines: str, code: Optional[int] = 1, signal: Optional[int] = None) -> Failure:
    scan = failures.initial()
    for line in lines:
        scan = failures.read_line(scan, line)
    failure = failures.verdict(scan, code, signal)
    assert failure is not None
    return failure


TABLE = [
    (
        "gpu_memory_busy",
        "ValueError: Free memory on device cuda:0 (11.5/79.3 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 71.3 GiB).",
    ),
    ("gpu_memory_busy", "ValueError: Free memory on device (11.5/79.3 GiB) on startup is less than desired GPU memory"),
    ("gpu_oom_load", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB."),
    ("gpu_oom_load", "Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization"),
    (
        "kv_cache_too_small",
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored "
        "in KV cache (30000).",
    ),
    (
        "kv_cache_too_small",
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (3.7 GiB). Based on the available memory, "
        "the estimated maximum model length is 30000.",
    ),
    (
        "kv_cache_too_small",
        "ValueError: To serve at least one request with the model's max seq len (131072), (16 GiB is needed.",
    ),
    ("kv_cache_zero", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    (
        "corrupt_shard",
        "SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
    ),
    ("corrupt_shard", "SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"),
    ("lfs_pointer", "SafetensorError: Error while deserializing header: header too large"),
    ("lfs_pointer", "SafetensorError: Error while deserializing header: HeaderTooSmall"),
    ("missing_shard", "RuntimeError: Cannot find any model weights with `/models/m`"),
    ("missing_shard", "FileNotFoundError: No such file or directory: /models/m/model-00003-of-00009.safetensors"),
    ("missing_shard", "ValueError: Following weights were not initialized from checkpoint: {'lm_head.weight'}"),
    ("nccl_init", "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    ("nccl_init", "torch.distributed.DistBackendError: ncclUnhandledCudaError: Call to CUDA function failed."),
    ("nccl_timeout", "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7) ran for 600000 ms"),
    ("peer_rank_died", "recvValue failed on SocketImpl(fd=77): Connection reset by peer"),
    ("engine_ready_timeout", "TimeoutError: Timed out waiting for engine core processes to start. This may be"),
    ("engine_ready_timeout", "RuntimeError: Timed out waiting for engines to send initial message on input socket."),
    ("port_in_use", "OSError: [Errno 98] Address already in use"),
    ("port_in_use", "[Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use"),
    ("hf_gated", "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url x"),
    ("hf_offline", "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate snapshot folder"),
    ("hf_offline", "OSError: some/name is not a local folder and is not a valid model identifier"),
    ("hf_offline", "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/no/folder'"),
    ("disk_full", "OSError: [Errno 28] No space left on device: '/home/u/.triton/cache/x'"),
    ("disk_full", "OSError: [Errno 122] Disk quota exceeded"),
    ("host_oom_killed", "RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': -9}"),
    ("host_oom_killed", "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor."),
    ("host_oom_killed", "Killed"),
    ("process_died", "Worker proc VllmWorker-0 died unexpectedly (exit code: -11), shutting down executor."),
    ("process_died", "RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore': -11}"),
    ("process_died", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
    ("process_died", "Exception: WorkerProc initialization failed due to an exception in a background process."),
    ("process_died", "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace"),
    ("shape_mismatch", "AssertionError: Tried to load weights of size torch.Size([9, 5]) to a parameter of [9, 4]"),
    ("config", "OSError: It looks like the config file at '/m/config.json' is not a valid JSON file."),
    ("host_oom_killed", "start.sh: line 3:  1234 Killed                  vllm serve x"),
    ("trust_remote_code", "ValueError: The model x has code. Please pass the argument `trust_remote_code=True`"),
    ("unsupported_arch", "ValueError: Model architectures ['NewForCausalLM'] are not supported for now."),
    ("unsupported_arch", "ValueError: Load format `gguf` is not supported."),
    ("draft_incompatible", "ValueError: Target and draft model should have the same vocabulary size. Target model 1"),
    (
        "tp_divisible",
        "  Value error, Total number of attention heads (9) must be divisible by tensor parallel size (8). [type",
    ),
    ("driver_old", "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)."),
    ("driver_old", "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"),
    ("cuda_error", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ("cuda_error", "!!!!!!! Segfault encountered !!!!!!!"),
    ("cancelled", "slurmstepd: error: *** JOB 77 ON node1 CANCELLED AT 2026-07-08T10:00:00 ***"),
    ("cancelled", "Terminated"),
]  # fmt: skip


@pytest.mark.parametrize(("klass", "text"), TABLE)
def test_class_of_a_message(klass: str, text: str) -> None:
    for prefix in (WORKER, ENGINE, ""):
        if text in ("Killed", "Terminated") or text.startswith(("start.sh", "slurmstepd")):
            prefix = ""
        failure = verdict(STARTED, prefix + text)
        assert failure.klass == klass
        assert failure.line == text.strip().removeprefix("[rank3]: ")
        assert failure.cause.endswith(".")
        assert "{" not in failure.cause + failure.remedy


def test_every_class_has_a_test() -> None:
    elsewhere = {"gpu_oom_runtime"}
    assert {klass.name for klass in CLASSES} == {name for name, _ in TABLE} | elsewhere


def test_figures_of_the_line_are_named() -> None:
    assert "11.5 of 79.3 GiB" in verdict(ENGINE + TABLE[0][1]).cause
    assert "max_model_len=30000" in verdict(ENGINE + TABLE[5][1]).remedy


def test_gpu_memory_that_runs_out_after_loading() -> None:
    assert verdict(STARTED, LOADED, WORKER + "torch.OutOfMemoryError: CUDA out of memory.").klass == "gpu_oom_runtime"


def test_draft_failures_need_a_draft() -> None:
    text = WORKER + "KeyError: 'embed_tokens.weight'"
    assert verdict(STARTED, DRAFTING, text).klass == "draft_incompatible"
    assert verdict(STARTED, text).klass == "exception"


@pytest.mark.parametrize(
    "text",
    [
        API + "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, User-specified max_model_len (100000000) is greater than the derived max_model_len",
        "ValueError: Cannot use x with y",
        "vllm serve: error: unrecognized arguments: --max-modl-len 4096",
        "api_server.py: error: argument --dtype: invalid choice: 'flaot32'",
    ],
)
def test_refused_options_before_the_engine(text: str) -> None:
    assert verdict(text, code=2).klass == "config"
    assert verdict(STARTED, text).klass != "config"


def test_the_reason_is_on_the_line_after_the_validation_error() -> None:
    reason = "  Value error, User-specified max_model_len (100000000) is greater than the derived max_model_len"
    failure = verdict("pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", reason)
    assert failure.line == reason.strip()


def test_a_pointer_file_that_vllm_reads_itself() -> None:
    source = '    metadata = json.loads(f.read(length_of_metadata).decode("utf-8"))'
    marks = "               ^^^^^^^^^^^^^^^^^^^^^"
    assert verdict('  File "hub.py", line 9, in parse', source, marks, "MemoryError").klass == "lfs_pointer"
    assert verdict('  File "hub.py", line 9, in parse', "    f.read(size)", "MemoryError").klass == "exception"
    assert verdict(source, "another line", "MemoryError").klass == "exception"


def test_an_empty_file_that_vllm_reads_itself() -> None:
    source = '    length_of_metadata = struct.unpack("<Q", f.read(8))[0]'
    assert verdict(source, "struct.error: unpack requires a buffer of 8 bytes").klass == "lfs_pointer"


def test_the_context_that_the_model_was_made_for_is_named() -> None:
    failure = verdict(
        "  Value error, User-specified max_model_len (100000) is greater than the derived max_model_len "
        "(max_position_embeddings=8192.0 or model_max_length=None in model's config.json)."
    )
    assert failure.klass == "config"
    assert failure.remedy == "Set max_model_len=8192 or less."


def test_the_kernel_proves_what_an_echo_does_not_tell() -> None:
    scan = failures.read_line(failures.initial(), API + "EngineDeadError: EngineCore encountered an issue.")
    told = "[812.3] Out of memory: Killed process 77 (VLLM::EngineCor) total-vm:1kB"
    found = failures.verdict(scan, 0, None, told)
    assert found is not None
    assert (found.klass, found.line) == ("host_oom_killed", told)
    assert kernel.oom_kill([told, "[813.0] Out of memory: Killed process 5 (postgres)"]) == told
    assert kernel.oom_kill(["Memory cgroup out of memory: Killed process 9 (python3)"], {9}) != ""
    assert kernel.oom_kill(["Memory cgroup out of memory: Killed process 9 (python3)"], {8}) == ""
    assert "ran out" in found.cause and "exit code 0" in found.cause


def test_the_kernels_word_makes_a_likely_kill_certain_and_its_silence_says_so_too() -> None:
    likely = "RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': -9}"
    scan = failures.read_line(failures.initial(), likely)
    told = "Memory cgroup out of memory: Killed process 77 (VLLM::EngineCor) total-vm:1kB"
    found = failures.verdict(scan, 1, None, told)
    assert found is not None and found.line == told
    assert "memory limit of its control group" in found.cause and "exit code 1" in found.cause
    likely_only = failures.verdict(scan, 1, None, "")
    assert likely_only is not None and "-9" in likely_only.line
    other = failures.read_line(failures.initial(), "ERROR 12-01 torch.OutOfMemoryError: CUDA out of memory. Tried")
    cause = failures.verdict(other, 1, None, told)
    assert cause is not None and cause.klass == "gpu_oom_load", "what the log names was first"
    silent = failures.verdict(failures.initial(), None, 9, "")
    assert silent is not None and (silent.klass, "killed none" in silent.remedy) == ("gone", True)


def test_records_and_counts_of_the_kernel() -> None:
    record = "6,1204,813000123,-;Out of memory: Killed process 9 (python3) total-vm:1kB"
    assert kernel.message(record) == record.partition(";")[2]
    assert [kernel.message(line) for line in (" SUBSYSTEM=pci", "", "6,1;x", "Out of memory: Killed process 9")] == [
        ""
    ] * 4
    assert kernel.oom_files("0::/user/a\n", "/cg") == ("/cg/user/a/memory.events", "/cg/memory.events")
    assert kernel.oom_files("4:memory:/a\n9:name=systemd:/\n0::/\n", "/cg") == (
        "/cg/memory/a/memory.oom_control", "/cg/memory/memory.oom_control", "/cg/memory.events",
    )  # fmt: skip
    assert kernel.oom_files("nonsense\n:\n", "/cg") == ()
    assert kernel.parse_oom_count("low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n") == 2
    assert kernel.parse_oom_count("oom_kill_disable 0\nunder_oom 0\n") is None


def test_a_request_that_fails_and_a_wanted_stop_are_no_failure_of_the_server() -> None:
    ready = "INFO:     Application startup complete."
    request = ["ERROR:    Exception in ASGI application", "Traceback (most recent call last):", "ValueError: too long"]
    stop = HEADER.replace("ERROR", "INFO") + "[shutdown] API server: shutdown triggered"
    dead = API + "EngineDeadError: EngineCore encountered an issue."
    assert verdict(STARTED, ready, *request).klass == "gone"
    assert verdict(STARTED, ready, stop, dead, WORKER + "RuntimeError: torn down").klass == "gone"
    assert verdict(STARTED, ready, dead, stop, WORKER + "RuntimeError: x").klass == "exception"


def test_what_did_not_keep_it_from_being_ready_is_not_why_it_died() -> None:
    handled = WORKER + "OSError: [Errno 28] No space left on device"
    assert verdict(STARTED, handled, "INFO:     Application startup complete.").klass == "gone"


def test_a_wrapped_message_is_joined() -> None:
    line = ENGINE + TABLE[5][1]
    pieces = [line[n : n + 80] for n in range(0, len(line), 80)]
    assert verdict(STARTED, *pieces).klass == "kv_cache_too_small"


@pytest.mark.parametrize("pattern", [pattern for klass in CLASSES for pattern in klass.patterns])
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_every_text_of_a_class_has_one_of_the_words(pattern: re.Pattern[str], data: st.DataObject) -> None:
    text = data.draw(st.from_regex(pattern))
    assert any(word in text for word in WORDS), text


def test_a_flood_of_other_text_is_not_searched_again_and_again() -> None:
    """Joined to one message, each of its lines would be searched with all before it: counted, not timed."""
    scan = failures.initial()
    longest = 0
    for number in range(200):
        scan = failures.read_line(scan, f"an error that is none, {number} " + 80 * "x")
        longest = max(longest, len(scan.open_text))
    assert longest < 1200
    line = ENGINE + TABLE[5][1]
    for piece in (line[n : n + 80] for n in range(0, len(line), 80)):
        scan = failures.read_line(scan, piece)
    assert scan.cause is not None and scan.cause.klass == "kv_cache_too_small"


def test_source_text_in_a_traceback_is_no_message() -> None:
    assert verdict('    if "CUDA out of memory" in str(error):', "RuntimeError: other").klass == "exception"


def test_the_cause_is_the_first_and_not_its_consequences() -> None:
    failure = verdict(
        STARTED,
        WORKER + "WorkerProc failed to start.",
        WORKER + "Traceback (most recent call last):",
        WORKER + '  File "gpu_worker.py", line 1, in load_model',
        WORKER + "RuntimeError: the shape of the tensor is wrong",
        ENGINE + "EngineCore failed to start.",
        ENGINE + "Exception: WorkerProc initialization failed due to an exception in a background process.",
        ENGINE + "recvValue failed on SocketImpl(fd=77): Connection reset by peer",
        API + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    )
    assert failure.klass == "exception"
    assert failure.line == "RuntimeError: the shape of the tensor is wrong"


def test_an_engine_exception_counts_before_an_earlier_one_of_the_api_server() -> None:
    failure = verdict(STARTED, "RuntimeError: from somewhere", WORKER + "AssertionError: the real one")
    assert failure.line == "AssertionError: the real one"


def test_a_known_class_counts_before_an_unknown_exception() -> None:
    failure = verdict(
        STARTED, WORKER + "ImportError: optional thing", WORKER + "OSError: [Errno 28] No space left on device"
    )
    assert failure.klass == "disk_full"


def test_a_killed_worker_is_the_cause_of_what_the_engine_and_the_server_say() -> None:
    failure = verdict(
        STARTED,
        LOADED,
        ENGINE + "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
        ENGINE + "EngineCore encountered a fatal error.",
        ENGINE + "RuntimeError: Executor failed.",
        API + "AsyncLLM output_handler failed.",
        API + "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)",
        "RuntimeError: Executor failed.",
        code=0,
    )
    assert failure.klass == "host_oom_killed"


def test_echoes_count_only_where_nothing_else_does() -> None:
    echo = ENGINE + "[rank1] recvValue failed on SocketImpl(fd=77): Connection reset by peer"
    assert verdict(echo).klass == "peer_rank_died"
    assert verdict(echo, WORKER + "RuntimeError: real").klass == "exception"


@pytest.mark.parametrize(
    "line",
    [
        f"(Worker pid=9) {HEADER.replace('ERROR', 'INFO')}No space left on device",
        f"(Worker pid=9) {HEADER.replace('ERROR', 'WARNING')}CUDA out of memory, trying again",
        HEADER + "[Errno 98] Address already in use. Retrying with a new port.",
        HEADER + "No available shared memory broadcast block found in 60 seconds.",
        HEADER + "Dumping input data for V1 LLM engine with config: consider setting trust_remote_code=True",
        "KeyboardInterrupt",
        "SystemExit: 0",
        '    raise RuntimeError("indented source text")',
    ],
)
def test_what_is_no_cause(line: str) -> None:
    assert verdict(line).klass == "gone"


@pytest.mark.parametrize(
    ("code", "signal", "words", "hint"),
    [
        (0, None, "exit code 0", False),
        (1, None, "exit code 1", False),
        (None, 9, "signal 9, SIGKILL", True),
        (None, 15, "signal 15, SIGTERM", False),
        (137, None, "exit code 137, as a shell reports signal 9, SIGKILL", True),
        (255, None, "exit code 255)", False),
    ],
)
def test_gone_without_a_reason(code: Optional[int], signal: Optional[int], words: str, hint: bool) -> None:
    failure = verdict("some text", code=code, signal=signal)
    assert failure.klass == "gone"
    assert "no reason in the log" in failure.cause
    assert words in failure.cause
    assert ("dmesg" in failure.remedy) == hint
    assert failure.line == ""


def test_no_verdict_while_it_runs_without_a_known_cause() -> None:
    scan = failures.read_line(failures.initial(), WORKER + "RuntimeError: may be handled")
    assert failures.verdict(scan, None, None) is None
    scan = failures.read_line(scan, WORKER + "OSError: [Errno 28] No space left on device")
    known = failures.verdict(scan, None, None)
    assert known is not None
    assert known.klass == "disk_full"


def test_a_long_line_is_cut() -> None:
    assert len(verdict(WORKER + "RuntimeError: " + "x" * 10_000).line) == failures.MAX_LINE


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([STARTED, LOADED, DRAFTING, *(text for _, text in TABLE)]), st.text(max_size=80))
    )
)
def test_any_lines_give_one_verdict(lines: list[str]) -> None:
    failure = verdict(*lines)
    assert failure.klass
    assert failure.cause
    assert len(failure.line) <= failures.MAX_LINE
