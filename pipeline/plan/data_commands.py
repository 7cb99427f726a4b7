"""The command lines of the data stages: speculators' own commands, and the servers that they talk to. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from pipeline.plan import commands
from pipeline.plan.commands import Command
from pipeline.plan.environment import Environment
from pipeline.plan.layout import Run

RETRIES = 3
PROMPT_ROOM = 2048
"""Tokens that a server's longest sequence leaves to the prompt, where nothing else is said."""


def regenerate(parameters: Mapping[str, Any], run: Run, base: str, model: str) -> list[str]:
    """``speculators regenerate-responses``: answers to the run's prompts; those that are there are not asked again."""
    arguments = ["regenerate-responses", "--endpoint", f"{base}/v1/chat/completions", "--model", model]
    arguments += ["--dataset", str(run.prompts), "--outfile", str(run.responses), "--resume"]
    arguments += ["--concurrency", str(parameters["concurrency"]), "--max-tokens", str(parameters["max_tokens"])]
    arguments += ["--max-retries", str(RETRIES)]
    if parameters["temperature"] is not None:
        arguments += ["--sampling-params", json.dumps({"temperature": parameters["temperature"]})]
    return arguments


def regenerating(parameters: Mapping[str, Any], environment: Environment) -> tuple[str, ...]:
    """What runs ``regenerate``'s arguments: speculators' script, or ours that allows the tokenizer's own code."""
    if not parameters["trust_remote_code"]:
        return (environment.script("speculators"),)
    return (environment.python, "-P", str(Path(__file__).resolve().parents[1] / "trusting.py"))


def prepare(parameters: Mapping[str, Any], data: Path, output: Path, render: Optional[str] = None) -> list[str]:
    """``speculators prepare-data``, with the token frequencies that it leaves out unless told.

    :param render: base URL of the render server, for rows that are not tokenized.
    """
    workers = parameters["workers"] or max(1, min(16, (os.cpu_count() or 2) // 2))
    arguments = ["prepare-data", "--model", parameters["verifier"] or "VERIFIER", "--data", str(data)]
    arguments += ["--output", str(output), "--seq-length", str(parameters["seq_length"])]
    arguments += ["--seed", str(parameters["seed"]), "--num-preprocessing-workers", str(workers)]
    arguments.append("--no-skip-token-freq")
    if render is not None:
        arguments += ["--render-endpoint", render]
    if parameters["trust_remote_code"]:
        arguments.append("--trust-remote-code")
    return arguments


def extract(run: Run, base: str, model: str, concurrency: int, seconds: object) -> list[str]:
    """``speculators generate-offline-data``: states of the rows that have no file."""
    arguments = ["generate-offline-data", "--model", model, "--endpoint", f"{base}/v1"]
    arguments += ["--preprocessed-data", str(run.prepared), "--output", str(run.hidden_states)]
    arguments += ["--concurrency", str(concurrency), "--validate-outputs", "--max-retries", str(RETRIES)]
    return [*arguments, "--request-timeout", str(seconds)]


def synthesis_length(parameters: Mapping[str, Any], positions: Optional[int] = None) -> int:
    """Longest sequence of the server that answers: as given, else room for prompt and answer.

    :param positions: that the verifier has; None when unknown. vLLM refuses a longer sequence.
    """
    if parameters["max_model_len"]:
        return int(parameters["max_model_len"])
    wanted = int(parameters["max_tokens"]) + PROMPT_ROOM
    return wanted if positions is None else min(wanted, positions)


def synthesize_shown(parameters: Mapping[str, Any], environment: Environment, workspace: str) -> tuple[Command, ...]:
    """The server and the command of the stage ``synthesize``; with states our own client takes the command's place."""
    states = parameters["states"]
    server = _server(
        parameters,
        environment,
        commands.EXTRACTION if states else commands.PLAIN,
        max_model_len=synthesis_length(parameters),
        max_num_seqs=parameters["concurrency"],
    )
    if states:
        return server
    base, model = _asked(parameters)
    arguments = regenerate(parameters, _run(parameters, workspace), base, model)
    return (*server, Command((*regenerating(parameters, environment), *arguments)))


def prepare_shown(parameters: Mapping[str, Any], environment: Environment, workspace: str) -> tuple[Command, ...]:
    """The command of the stage ``prepare`` for rows that are tokenized, as ``synthesize`` leaves them."""
    run = _run(parameters, workspace)
    return (_tool(environment, prepare(parameters, run.responses, run.prepared)),)


def extract_shown(parameters: Mapping[str, Any], environment: Environment, workspace: str) -> tuple[Command, ...]:
    """The server and the command of the stage ``extract``."""
    server = _server(parameters, environment, commands.EXTRACTION)
    base, model = _asked(parameters)
    arguments = extract(_run(parameters, workspace), base, model, parameters["concurrency"], "SECONDS")
    return (*server, _tool(environment, arguments))


def _server(parameters: Mapping[str, Any], environment: Environment, kind: str, **more: Any) -> tuple[Command, ...]:
    """The stage's own server, none where one runs already."""
    if parameters["endpoint"]:
        return ()
    return (commands.serve({**parameters, "kind": kind, "port": "PORT", **more}, environment),)


def _asked(parameters: Mapping[str, Any]) -> tuple[str, str]:
    return parameters["endpoint"] or "http://127.0.0.1:PORT", parameters["verifier"] or "VERIFIER"


def _tool(environment: Environment, arguments: list[str]) -> Command:
    return Command((environment.script("speculators"), *arguments))


def _run(parameters: Mapping[str, Any], workspace: str) -> Run:
    return Run(workspace, parameters["run"])
