"""A recipe's stages in turn, each a process of its own: what is up to date is skipped, the first failure ends it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

from pipeline.plan.catalog import stage_named
from pipeline.plan.recipes import Recipe, parameters_of, recipe_named
from pipeline.plan.stage import ParameterError, Stage
from pipeline.processes import Tree
from pipeline.stages.errors import StageError, Stopped, Told
from pipeline.stages.runtime import EXIT_STOPPED, StageRun, execute

POLL_SECONDS = 0.2


def run(spec_path: str) -> int:
    """Runs the recipe that the spec's stage names."""
    return execute(spec_path, _work)


def _work(stage: StageRun) -> None:
    recipe = recipe_named(stage.stage.name)
    specs = [(part, _spec(stage, recipe, part)) for part in map(stage_named, recipe.stages)]
    for part, spec in specs:
        stage.check_stop()
        stage.phase(part.name)
        _run(stage, part, spec)
    stage.evidence("stages", len(specs), "stages")
    stage.finished = True


def _spec(stage: StageRun, recipe: Recipe, part: Stage) -> Path:
    """The part's own spec, beside the job's. All are made before the first part runs: a bad value costs nothing."""
    try:
        parameters = parameters_of(recipe, part, stage.parameters)
    except ParameterError as error:
        raise StageError(f"{error}.", field=f"stage {part.name}", remedy="Choose another value.") from None
    path = Path(stage.directory) / f"spec-{part.name}.json"
    spec = {"id": stage.job, "stage": part.name, "part_of": recipe.name, "cwd": stage.run.workspace}
    path.write_text(json.dumps({**spec, "parameters": parameters}))
    return path


def _run(stage: StageRun, part: Stage, spec: Path) -> None:
    """One part to its end.

    :raises Told: when it failed; it has said why.
    :raises Stopped: when it was stopped with us.
    """
    argv = [sys.executable, "-m", "pipeline.stages", part.name, str(spec)]
    sys.stdout.write(f"{shlex.join(argv)}\n")
    sys.stdout.flush()
    tree = Tree(argv, os.environ, cwd=stage.run.workspace)
    try:
        with stage.on_stop(tree.terminate):
            while (code := tree.code()) is None:
                stage.sleep(POLL_SECONDS)
    finally:
        tree.end(part.grace_seconds)
    if code == EXIT_STOPPED or (code != 0 and stage.stopping):
        raise Stopped
    if code < 0:
        raise StageError(
            f"The stage {part.name} was ended by signal {-code}.",
            remedy="If nobody did that, see dmesg; run the recipe again, it goes on there.",
            klass="gone",
        )
    if code != 0:
        raise Told
