"""docs/json.md names every key that a document of ``--json`` can carry, and every command."""

from __future__ import annotations

import argparse
import collections.abc
import dataclasses
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from eagle_console import cli, comparing, disk_documents, documents, draft_documents, gpu_documents

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
NAMED = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", PAGE))))
"""The words of the page that stand in code."""

DATA_KEY = "a key that is data"
BUILDERS = [
    builder
    for module in (comparing, disk_documents, documents, draft_documents, gpu_documents)
    for name, builder in inspect.getmembers(module, inspect.isfunction)
    if not name.startswith("_")
    and builder.__module__ == module.__name__
    and "Document" in str(builder.__annotations__["return"])
]


def filled(kind: Any) -> Any:
    """A value of a type with everything in it: nothing is None, one item in each list."""
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{field.name: filled(hints[field.name]) for field in dataclasses.fields(kind) if field.init})
    if origin in (Union, types.UnionType):
        return filled(next(arg for arg in args if arg is not type(None)))
    if origin is tuple:
        return (filled(args[0]),) if args[1:] == (...,) else tuple(filled(arg) for arg in args)
    if origin in (list, collections.abc.Sequence):
        return [filled(args[0])]
    if origin is dict or origin is collections.abc.Mapping:
        return {DATA_KEY: filled(args[1])}
    simple: dict[Any, Any] = {str: "text", int: 1, float: 1.0, bool: True, Path: Path("/path"), Any: 1}
    return simple[kind]


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != DATA_KEY:
                yield key
            yield from keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from keys(inner)


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda builder: f"{builder.__module__}.{builder.__name__}")
def test_every_key_is_named(builder: Any) -> None:
    hints = get_type_hints(builder)
    arguments = {name: filled(hints[name]) for name in inspect.signature(builder).parameters}
    found = set(keys(builder(**arguments)))
    assert found
    assert sorted(found - NAMED) == []


def test_every_command_is_named() -> None:
    parser = cli._parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices
    rows = set(re.findall(r"`([\w-]+)", "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))))
    without = {"demo", "screen", "shell"}
    """What opens a screen or a shell has no document."""
    assert sorted(set(commands) - rows - without) == []
