"""Why a stage ends before its work is done."""

from __future__ import annotations


class StageError(Exception):
    """The stage cannot go on: one sentence for the cause, one for the remedy, and where it was found.

    :param cause: what is wrong, a plain sentence.
    :param file: path of the file or folder that it is about; empty where there is none.
    :param field: what in that file: a line, a key, a parameter; empty where it is the whole.
    :param remedy: what to do.
    :param klass: a stable name of the class.
    """

    def __init__(self, cause: str, file: str = "", field: str = "", remedy: str = "", klass: str = "stage") -> None:
        super().__init__(cause)
        self.cause, self.file, self.field, self.remedy, self.klass = cause, str(file), field, remedy, klass

    @property
    def where(self) -> str:
        """File and field in one word: ``/data/prompts.jsonl: line 7``."""
        return ": ".join(word for word in (self.file, self.field) if word)

    @property
    def line(self) -> str:
        """Everything on one line, for the log."""
        words = [f"{self.where}: {self.cause}" if self.where else self.cause]
        if self.remedy:
            words.append(self.remedy)
        return " ".join(" ".join(words).split())


class Told(Exception):
    """The stage cannot go on, and the reason has been said already: by the child that failed."""


class Stopped(Exception):
    """The stage was asked to stop, and has saved what can be saved."""
