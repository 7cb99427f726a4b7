"""Where a run's files are: one name, four folders below the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.plan.stage import Parameter

RUN_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

RUN = Parameter(
    "run",
    "str",
    "name of the run: its folders are data_NAME, output_NAME, draft_NAME and bench_NAME",
    "1k",
    pattern=RUN_PATTERN,
    pattern_words="letters, digits, dots, underscores and hyphens, beginning with a letter or digit",
)
"""The parameter that every stage with data has."""


@dataclass(frozen=True)
class Run:
    """The paths of one run.

    :param workspace: the profile's workspace, absolute.
    :param name: matches ``RUN_PATTERN``.
    """

    workspace: str
    name: str

    @property
    def data(self) -> Path:
        """Everything that training reads."""
        return Path(self.workspace) / f"data_{self.name}"

    @property
    def prompts(self) -> Path:
        """One conversation a line: ``{"id", "conversations": [{"from": "human", "value"}]}``."""
        return self.data / "prompts.jsonl"

    @property
    def held_out(self) -> Path:
        """Prompts that no stage trains on, in the same form: for the measurement."""
        return self.data / "held_out.jsonl"

    @property
    def responses(self) -> Path:
        """One assistant turn a line, as speculators' regenerate-responses writes it."""
        return self.data / "responses.jsonl"

    @property
    def captured(self) -> Path:
        """Hidden states that came with the answers, until ``extract`` gives them their row: one file an answer."""
        return self.data / "captured"

    @property
    def prepared(self) -> Path:
        """The arrow data set, ``token_freq.pt`` and the vocabulary mapping."""
        return self.data / "prepared"

    @property
    def hidden_states(self) -> Path:
        """``hs_N.safetensors`` for row N of the data set."""
        return self.prepared / "hidden_states"

    @property
    def output(self) -> Path:
        """The trainer's save path: a folder for each epoch."""
        return Path(self.workspace) / f"output_{self.name}"

    @property
    def draft(self) -> Path:
        """The exported draft in the flat format."""
        return Path(self.workspace) / f"draft_{self.name}"

    @property
    def bench(self) -> Path:
        """``report.json`` and ``report.md``."""
        return Path(self.workspace) / f"bench_{self.name}"

    @property
    def bench_json(self) -> Path:
        return self.bench / "report.json"

    @property
    def bench_markdown(self) -> Path:
        return self.bench / "report.md"

    @property
    def _own(self) -> Path:
        return Path(self.workspace) / ".eagle_console"

    @property
    def locks(self) -> Path:
        """A file for each artifact that a living stage writes."""
        return self._own / "locks"

    def manifest(self, stage: str) -> Path:
        """What the stage has proven about its outputs."""
        return self._own / "manifests" / self.name / f"{stage}.json"
