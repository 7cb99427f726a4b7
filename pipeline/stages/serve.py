"""The stage ``serve``: prints the exact ``vllm serve`` line and becomes that process."""

from __future__ import annotations

import json
import os
import sys

from pipeline import vllm_server
from pipeline.plan import commands, environment


def run(spec_path: str) -> int:
    """Becomes the server with the parameters of the job's ``spec.json``; returns only when it cannot."""
    with open(spec_path) as file:
        parameters = json.load(file)["parameters"]
    ours = environment.inspect(sys.executable)
    command = commands.serve(parameters, ours)
    sys.stdout.write(command.line + "\n")
    sys.stdout.flush()
    try:
        variables = vllm_server.server_environment(command, ours, os.path.dirname(spec_path), os.environ)
        vllm_server.become(command, variables)
    except OSError as error:
        sys.stderr.write(f"vLLM could not be started: {error}\n")
        return 127
