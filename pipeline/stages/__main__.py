"""``python -m pipeline.stages STAGE [SPEC_JSON]``: one stage, in the host's ML environment."""

from __future__ import annotations

import importlib
import sys

from pipeline.plan.catalog import STAGES
from pipeline.plan.recipes import RECIPES


def main(arguments: list[str]) -> int:
    """Runs the stage and returns its exit code; 2 for a wrong command line."""
    names = [stage.name for stage in STAGES]
    if not arguments or arguments[0] not in names:
        sys.stderr.write(f"usage: python -m pipeline.stages {{{','.join(names)}}} [SPEC_JSON]\n")
        return 2
    module = "recipe" if arguments[0] in [recipe.name for recipe in RECIPES] else arguments[0]
    code: int = importlib.import_module(f"pipeline.stages.{module}").run(*arguments[1:2])
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
