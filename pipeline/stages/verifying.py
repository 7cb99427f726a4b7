"""What several stages ask of the verifier: that it is there, what its config says, and its fingerprint."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline import shim
from pipeline.plan import verifier_config
from pipeline.plan.verifier_config import ConfigError, VerifierConfig
from pipeline.stages.errors import StageError
from pipeline.stages.runtime import StageRun


def folder(stage: StageRun) -> str:
    """The verifier's folder.

    :raises StageError: when none is set or it is not there.
    """
    path = stage.parameters.get("verifier")
    if not path:
        raise StageError(
            "No verifier is set.", field="parameter verifier", remedy="Set it in the profile, or verifier=PATH."
        )
    if not Path(path).is_dir():
        raise StageError(
            "It is no folder on this host.", file=path, field="parameter verifier", remedy="Check the path."
        )
    return str(path)


def config(stage: StageRun) -> VerifierConfig:
    """The verifier's config.

    :raises StageError: when it cannot be used, naming file and field.
    """
    path = folder(stage)
    try:
        return verifier_config.read(path)
    except ConfigError as error:
        raise StageError(
            f"{error.cause}.",
            file=error.file,
            field=error.field,
            remedy="Give the folder of a complete Hugging Face model.",
        ) from None


def check_code(stage: StageRun) -> None:
    """To be called before a tool reads the tokenizer: its own code runs only where that was allowed.

    :raises StageError: when the tokenizer is code of the folder, and nobody has allowed it.
    """
    path = Path(folder(stage)) / "tokenizer_config.json"
    try:
        code = json.loads(path.read_bytes()).get("auto_map")
    except (OSError, ValueError, AttributeError):
        return  # what is wrong with it the tool will say
    if code and not stage.parameters.get("trust_remote_code"):
        raise StageError(
            "The tokenizer is Python code of the model's folder.",
            file=str(path),
            field="auto_map",
            remedy="Look at that code, then allow it: trust_remote_code=true.",
            klass="remote_code",
        )


def plain_folder(stage: StageRun) -> str:
    """The verifier for tools that run no code of its folder: itself, or a stand-in of the run (``pipeline.shim``).

    :raises StageError: when no plain config is known for its type.
    """
    path = folder(stage)
    try:
        found = shim.stand_in(Path(path), stage.run.data / "verifier")
    except ConfigError as error:
        raise StageError(
            f"{error.cause}.",
            file=error.file,
            field=error.field,
            remedy="Give a folder whose config.json transformers knows without remote code.",
        ) from None
    if str(found) != path:
        stage.message(f"The verifier brings code of its own: tools get {found}, with a plain config and its weights.")
    return str(found)


def fingerprint(stage: StageRun) -> dict[str, str]:
    """The verifier as an input of the stage."""
    return stage.input_of(Path(folder(stage)), maker="")
