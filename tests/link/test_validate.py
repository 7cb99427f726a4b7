"""``validate`` as a user runs it: here, over a real sshd, and what a large draft costs on the wire."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fixtures.draft_defects import DEFECTS
from fixtures.draft_folder import Tensor, small
from link.sshd import SshServer, introduce, target

from eagle_console.cli import main
from eagle_console.link.connect import connect
from pipeline.plan import draft_config
from remote.protocol.errors import CONFLICT, REFUSED, RequestError

pytestmark = pytest.mark.system


def run(home: Path, *words: str) -> tuple[int, Any, str]:
    """Exit code, the JSON document, and what was said."""
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "eagle_console.cli", "validate", *words, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def broken(root: Path, name: str) -> Path:
    draft, verifier = small()
    (root / "verifier").mkdir(parents=True, exist_ok=True)
    (root / "verifier" / "config.json").write_text(json.dumps(verifier))
    draft = DEFECTS[name].change(draft, verifier) or draft
    return draft.write(root / name.replace(" ", "_"))


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_here_with_exit_codes_and_the_verifier(console_home: Path, tmp_path: Path) -> None:
    path = broken(tmp_path, "R1")
    code, document, _ = run(console_home, str(path), "--verifier", str(tmp_path / "verifier"))
    assert (code, document["verdict"], document["host"]) == (1, "error", None)
    assert [finding["rule"] for finding in document["findings"]] == ["R1"]
    assert document["not_judged"] == [] and document["verifier"] == str(tmp_path / "verifier")
    code, document, _ = run(console_home, str(broken(tmp_path, "R10")))
    assert (code, document["verdict"], document["counts"]["warning"]) == (0, "warning", 1)
    code, document, _ = run(console_home, str(tmp_path / "nothing"))
    assert (code, document["error"]["class"]) == (1, "not_found")
    code, document, err = run(console_home, f"box:{path}", "--verifier", f"other:{path}")
    assert code == 2 and "one host" in err


def test_layers_that_are_not_known_are_said_not_to_be_checked(
    console_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft, _ = small()
    _, document, _ = run(console_home, str(draft.write(tmp_path / "llama")))
    assert document["layers_checked"] is True
    draft.config["architectures"] = ["Eagle3DeepseekV2ForCausalLM"]
    path = str(draft.write(tmp_path / "latent"))
    _, document, _ = run(console_home, path)
    assert document["layers_checked"] is False
    main(["validate", path])
    assert "the tensors of Eagle3DeepseekV2ForCausalLM's layers are not checked" in capsys.readouterr().out


def test_a_corrected_copy_beside_the_draft(console_home: Path, tmp_path: Path) -> None:
    path = broken(tmp_path, "R7")
    before = files(path)
    code, document, err = run(console_home, str(path), "--fix")
    assert code == 0, err
    copy = Path(document["target"])
    assert copy.parent == path.parent and document["changes"] == ["R7: norm_before_fc is true"]
    assert [finding["rule"] for finding in document["validation"]["findings"]] == []
    assert document["copied"] == 0, "the weights are shared, not copied"
    assert files(path) == before
    assert json.loads((copy / "config.json").read_text())["norm_before_fc"] is True
    assert sorted(path.name for path in copy.parent.iterdir()) == ["eagle3_draft", "eagle3_draft_fixed"]

    code, document, _ = run(console_home, str(path), "--fix")
    assert (code, document["error"]["class"]) == (1, CONFLICT), "it overwrites nothing"
    code, document, _ = run(console_home, str(path), "--fix", str(path / "inside"))
    assert (code, document["error"]["class"]) == (5, REFUSED)
    code, document, _ = run(console_home, str(path), "--fix", str(tmp_path / "other"), "--readonly")
    assert code == 5 and not (tmp_path / "other").exists()
    code, document, _ = run(console_home, str(broken(tmp_path, "R2")), "--fix")
    assert (code, document["error"]["class"]) == (5, REFUSED), "nothing of it can be fixed without a guess"


def test_layer_ids_are_translated(console_home: Path, tmp_path: Path) -> None:
    path = broken(tmp_path, "R9 one less")
    code, document, err = run(console_home, str(path), "--layer-ids", "sglang", "--fix", str(tmp_path / "out"))
    assert code == 0, err
    assert document["validation"]["layer_ids"] == [2, 6, 9]


async def test_over_ssh_under_the_hosts_policy(sshd: SshServer, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    path = broken(workspace, "R12")
    async with connect(target(sshd, workspace), 30) as client:
        answer = await client.validate(str(path.relative_to(workspace)), str(workspace / "verifier"))
        assert [finding.rule for finding in answer.errors] == ["R12"]
        with pytest.raises(RequestError, match="outside the roots"):
            await client.fix_draft(str(path), str(tmp_path / "elsewhere"))
        assert (await client.journal(10)).entries == (), "what was refused is not announced"
        made = await client.fix_draft(str(path), requested_by="ann@console")
        [entry] = (await client.journal(10)).entries
        assert entry.action == "fix draft" and entry.paths == (made.target,) and entry.who.startswith("ann@console")
        assert made.validation.errors == () and made.target == f"{path}_fixed"
        with pytest.raises(RequestError, match="layer ids count"):
            await client.validate(str(path), layer_ids="dflash")
    readonly = dataclasses.replace(target(sshd, workspace, readonly=True))
    async with connect(readonly, 30) as client:
        with pytest.raises(RequestError, match="read-only"):
            await client.fix_draft(str(path))
        assert (await client.validate(str(path))).errors


def kimi_sized(root: Path) -> Path:
    """2.5 billion values, 5.0 GB in a sparse file: true headers and mappings, ones at the beginning of each tensor."""
    draft, _ = small()
    draft.config.update(
        hidden_size=7168, intermediate_size=25600, num_attention_heads=64, num_key_value_heads=64, head_dim=128,
        vocab_size=163840, draft_vocab_size=32000, num_aux_hidden_states=3,
    )  # fmt: skip
    shapes = {**draft_config.required_tensors(draft.config), "embed_tokens.weight": (163840, 7168)}
    draft.tensors = {name: Tensor("BF16", shape, b"\x80\x3f" * 4096) for name, shape in shapes.items()}
    tokens = range(0, 160000, 5)
    draft.set_integers("d2t", (token - place for place, token in enumerate(tokens)))
    draft.tensors["t2d"] = Tensor(
        "BOOL", (163840,), bytes(int(token % 5 == 0 and token < 160000) for token in range(163840))
    )
    return draft.write(root)


@asynccontextmanager
async def counted(server: SshServer) -> AsyncIterator[tuple[SshServer, list[int]]]:
    """The server behind a relay that counts the bytes of both directions."""
    passed = [0]

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            passed[0] += len(data)
            sink.write(data)
            await sink.drain()
        sink.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(server.host, server.port)
        await asyncio.gather(pump(reader, back), pump(onward, writer), return_exceptions=True)

    listener = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with listener:
        yield dataclasses.replace(server, port=listener.sockets[0].getsockname()[1]), passed


async def test_a_large_draft_costs_kilobytes_and_a_moment(
    sshd: SshServer, console_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kimi_sized(tmp_path)
    weights = (path / "model.safetensors").stat()
    async with counted(sshd) as (relayed, passed):
        introduce(relayed, console_home)
        async with connect(target(relayed), 30) as client:
            before, begin = passed[0], time.monotonic()
            answer = await client.validate(str(path))
            seconds, moved = time.monotonic() - begin, passed[0] - before
    with capsys.disabled():
        sys.stdout.write(
            f"\n{answer.parameters / 1e9:.2f} billion values, {weights.st_size / 1e9:.1f} GB: {seconds:.2f} s,"
            f" {moved / 1e3:.0f} kB over SSH, {passed[0] / 1e3:.0f} kB with the bootstrap,"
            f" {answer.bytes_read / 1e6:.1f} MB read on the host\n"
        )
    assert answer.parameters > 2.5e9 and answer.errors == ()
    assert passed[0] < 5_000_000 and moved < 100_000
    assert seconds < 3
    assert answer.bytes_read < 5_000_000
