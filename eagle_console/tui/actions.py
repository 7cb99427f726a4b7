"""Every key of the console in one table: it makes the bindings, the help screen, the footer and the palette.

A key that is not here does nothing, and an entry here without an effect fails a test. Keys that terminals cannot tell
from others (ctrl with h, i, j, m or [) are never used, and no lower-case key destroys anything without a dialog.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from textual.binding import Binding, BindingType


class Risk(Enum):
    """What an action can cost. Each grade has a dialog of its own look, so that click-through does not carry over."""

    NONE = ""
    REVERSIBLE = "asks first"
    COSTLY = "asks first, says what is lost"
    IRREVERSIBLE = "wants the size typed"


EVERYWHERE = "everywhere"
DASHBOARD, GPUS, STAGES, LOGS, LOAD, TRAINING = "dashboard", "gpus", "stages", "logs", "load", "training"
HOSTS = "hosts"
CHECKPOINTS, TRIAGE, TRASH, JOURNAL = "checkpoints", "triage", "trash", "journal"
PRUNABLE = (CHECKPOINTS, TRIAGE)
DISK = (*PRUNABLE, TRASH)
SCREENS = (DASHBOARD, GPUS, STAGES, LOGS, *DISK, JOURNAL, LOAD, TRAINING, HOSTS)

GO, ACT, LOOK, PROGRAM = "Go to", "Act", "Look", "Console"
GROUPS = (GO, ACT, LOOK, PROGRAM)


@dataclass(frozen=True)
class Action:
    """One thing that a key does.

    :param id: stable name, also that of the key binding (a user's keymap refers to it).
    :param keys: Textual's names of the keys; the first is the one that is shown.
    :param label: one or two words for the footer.
    :param help: one sentence for the help screen and the palette.
    :param action: Textual's action string; without a prefix it belongs to the screens named in ``where``.
    :param where: the screens on which the key works, or ``EVERYWHERE``.
    :param footer: whether the footer shows it.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    group: str
    action: str
    where: tuple[str, ...] = (EVERYWHERE,)
    risk: Risk = Risk.NONE
    footer: bool = False


SIGNS = {
    "question_mark": "?",
    "slash": "/",
    "escape": "esc",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "ctrl+p": "ctrl+p",
    "colon": ":",
    "exclamation_mark": "!",
    "full_stop": ".",
    "comma": ",",
    "equals_sign": "=",
}
"""Textual's names of keys that people write otherwise."""

ACTIONS: tuple[Action, ...] = (
    Action("dashboard", ("0",), "Dashboard", "Everything at once", GO, "app.go('dashboard')", footer=True),
    Action("gpus", ("1",), "GPUs", "GPUs and the processes that hold their memory", GO, "app.go('gpus')", footer=True),
    Action("stages", ("2",), "Stages", "Stages of the pipeline and all jobs", GO, "app.go('stages')", footer=True),
    Action("logs", ("3",), "Logs", "The log of a job", GO, "app.go('logs')", footer=True),
    Action(
        "checkpoints", ("4",), "Checkpoints", "Runs and their checkpoints", GO, "app.go('checkpoints')", footer=True
    ),
    Action("journal", ("5",), "Journal", "Who changed what, when and why", GO, "app.go('journal')", footer=True),
    Action("load", ("6",), "Load", "The model load with all phases", GO, "app.go('load')", footer=True),
    Action("training", ("7",), "Training", "A training run with its curves", GO, "app.go('training')", footer=True),
    Action("hosts", ("8",), "Hosts", "All hosts side by side", GO, "app.go('hosts')", footer=True),
    Action("next-host", ("right_curly_bracket",), "next host", "Show the next host", GO, "app.host(1)"),
    Action("previous-host", ("left_curly_bracket",), "previous host", "Show the host before", GO, "app.host(-1)"),
    Action("back", ("escape",), "back", "One level back: filter, zoom, screen", GO, "screen.back"),
    Action(
        "open", ("enter",), "open", "Open what is selected: a panel, a stage's form, a job's log, a host", GO, "open",
        where=(DASHBOARD, STAGES, TRAINING, HOSTS), footer=True,
    ),
    Action(
        "start", ("s",), "start", "Open the form that starts a stage", ACT, "start",
        where=(DASHBOARD, STAGES, LOAD, TRAINING), risk=Risk.REVERSIBLE, footer=True,
    ),
    Action(
        "stop", ("x",), "stop", "Stop the shown or selected job", ACT, "stop",
        where=(DASHBOARD, STAGES, LOGS, LOAD, TRAINING), risk=Risk.COSTLY, footer=True,
    ),
    Action("mark-job", ("space",), "mark", "Mark the job for a comparison, or not", ACT, "mark_job", where=(STAGES,)),
    Action(
        "compare", ("equals_sign",), "compare", "The job beside the marked one, or the one before", LOOK, "compare",
        where=(STAGES, TRAINING), footer=True,
    ),
    Action("mark", ("space",), "mark", "Mark the row for pruning, or not", ACT, "mark", PRUNABLE, footer=True),
    Action(
        "prune", ("D",), "prune", "Plan a deletion: of what is marked, of the row, or of a run as recommended", ACT,
        "prune", where=PRUNABLE, risk=Risk.REVERSIBLE, footer=True,
    ),
    Action(
        "free", ("D",), "free", "Plan the end of what holds GPU memory, and wait until it is back", ACT, "free",
        where=(GPUS,), risk=Risk.COSTLY, footer=True,
    ),
    Action("undo", ("u",), "undo", "Bring back what went into the trash last", ACT, "undo", DISK, footer=True),
    Action("triage", ("T",), "Triage", "All on the disk, with verdicts", GO, "app.go('triage')", DISK, footer=True),
    Action("trash", ("B",), "Trash", "The bin: what can be undone", GO, "app.go('trash')", DISK, footer=True),
    Action("pin", ("P",), "pin", "Protect the row from every prune, or let go of it", ACT, "pin", PRUNABLE),
    Action(
        "purge", ("X",), "purge", "Free what the row has in the trash, for good", ACT, "purge", where=(TRASH,),
        risk=Risk.IRREVERSIBLE, footer=True,
    ),
    Action("scan", ("r",), "scan", "Scan the disk in full, or end the scan that runs", LOOK, "scan", (DASHBOARD,)),
    Action("look", ("r",), "look again", "Ask the host again now", LOOK, "look", (*DISK, JOURNAL, LOAD, TRAINING)),
    Action("shell", ("exclamation_mark",), "shell", "A shell on the host, then the screen again", ACT, "app.shell"),
    Action(
        "forward", ("F",), "forward", "The job's server on a port of this machine, or the end of that", ACT, "forward",
        where=(DASHBOARD, STAGES, LOGS, LOAD),
    ),
    Action(
        "copy", ("c",), "copy", "Copy the job's command line", ACT, "copy_command",
        where=(DASHBOARD, STAGES, LOGS, LOAD, TRAINING),
    ),
    Action("reconnect", ("R",), "reconnect", "Connect again now, without waiting", ACT, "app.reconnect"),
    Action(
        "filter", ("slash",), "filter", "Show only lines that contain a text; !text hides them", LOOK, "filter",
        where=(GPUS, STAGES, LOGS, TRIAGE, JOURNAL), footer=True,
    ),
    Action("follow", ("f",), "follow", "Follow the log's end, or stop following", LOOK, "follow", (LOGS,), footer=True),
    Action("error", ("e",), "error", "Jump to the first error of the log", LOOK, "first_error", (LOGS,), footer=True),
    Action("next-match", ("n",), "next", "The next line with the text of /, among all", LOOK, "next_match", (LOGS,)),
    Action("previous-match", ("N",), "previous", "The line with it before", LOOK, "previous_match", (LOGS,)),
    Action("next-problem", ("full_stop",), "problem", "The next error or warning", LOOK, "next_problem", (LOGS,)),
    Action("previous-problem", ("comma",), "problem before", "The one before", LOOK, "previous_problem", (LOGS,)),
    Action("copy-lines", ("y",), "copy lines", "Copy the marked line, or those in sight", LOOK, "copy_lines", (LOGS,)),
    Action("wrap", ("w",), "wrap", "Wrap long lines, or cut them", LOOK, "wrap", (LOGS,), footer=True),
    Action("previous-log", ("left_square_bracket",), "older", "The next older job", LOOK, "older", (LOGS, TRAINING)),
    Action("next-log", ("right_square_bracket",), "newer", "The next newer job", LOOK, "newer", (LOGS, TRAINING)),
    Action("zoom", ("z",), "zoom", "The focused panel alone, or all again", LOOK, "zoom", (DASHBOARD,), footer=True),
    Action("pause", ("p",), "pause", "Stop painting, to read or copy; data is still kept", LOOK, "app.pause"),
    Action("theme", ("t",), "theme", "Choose the colours", PROGRAM, "app.change_theme"),
    Action("palette", ("ctrl+p", "colon"), "commands", "All commands by name", PROGRAM, "app.command_palette"),
    Action("help", ("question_mark", "f1"), "help", "This help", PROGRAM, "app.help", footer=True),
    Action("quit", ("q", "ctrl+q"), "quit", "Leave; jobs keep running on the host", PROGRAM, "app.leave", footer=True),
)  # fmt: skip


def actions_at(screen: str) -> Iterator[Action]:
    """The actions that work on a screen, in the order of the table."""
    return (action for action in ACTIONS if screen in action.where or EVERYWHERE in action.where)


def bindings(place: str) -> list[BindingType]:
    """Textual's bindings of one place: a screen's own, or ``EVERYWHERE`` for the app's."""
    return [
        Binding(",".join(action.keys), action.action, action.label, id=f"{place}.{action.id}", show=False)
        for action in ACTIONS
        if place in action.where
    ]
