"""The stage ``serve``: prints the exact ``vllm serve`` line and becomes that process."""

from __future__ import annotations

import json
import os
import sys

from pipeline import vllm_server
from pipeline.plan import commands, environment, serving


def run(spec_path: str) -> int:
    """Becomes the server with the parameters of the job's ``spec.json``; returns only when it cannot."""
    with open(spec_path) as file:
        spec = json.load(file)
    ours = environment.inspect(sys.executable)
    try:
        command = commands.serve(serving.complete(spec["parameters"], spec["cwd"]), ours)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(command.line + "\n")
    sys.stdout.flush()
    try:
        variables = vllm_server.server_environment(command, ours, os.path.dirname(spec_path), os.environ)
        vllm_server.become(command, variables)
    except OSError as error:
        sys.stderr.write(f"vLLM could not be started: {error}\n")
        return 127
