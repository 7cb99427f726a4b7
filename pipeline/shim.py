"""A folder that stands in for a verifier with remote code: a plain config, and links to everything else."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pipeline.plan import shim, verifier_config
from pipeline.plan.manifest import write_json
from pipeline.plan.verifier_config import ConfigError

_LINKED = (".safetensors", ".json", ".model", ".jinja", ".txt")


def stand_in(verifier: Path, folder: Path) -> Path:
    """The folder to give to tools that run no remote code: the verifier's own where it is plain, else ``folder``.

    :param folder: is made, or brought up to date; its links point into the verifier's folder.
    :raises ConfigError: when the config cannot be read, or no plain one is known for its type.
    :raises OSError: when the folder cannot be written.
    """
    config = verifier_config.load(str(verifier))
    if not shim.needed(config):
        return verifier
    try:
        plain = shim.plain(config)
    except ValueError as error:
        raise ConfigError(str(error), str(verifier / verifier_config.FILE), "model_type") from None
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {
        path.name: path.resolve()
        for path in verifier.iterdir()
        if path.suffix in _LINKED and path.name != verifier_config.FILE
    }
    for path in folder.iterdir():
        if path.name not in wanted and path.name != verifier_config.FILE:
            path.unlink()
    for name, target in wanted.items():
        link = folder / name
        if link.is_symlink() and os.readlink(link) == str(target):
            continue
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(target)
    write_json(folder / verifier_config.FILE, plain)
    return folder
