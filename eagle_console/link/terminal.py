"""This process's terminal while it is lent to a shell: raw mode, size, and its way back in every case."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

FALLBACK_SIZE = os.terminal_size((80, 24))


def is_terminal() -> bool:
    """Whether stdin is a terminal."""
    return sys.__stdin__ is not None and os.isatty(sys.__stdin__.fileno())


def size() -> os.terminal_size:
    """Columns and lines of the terminal."""
    try:
        return os.get_terminal_size(0)
    except OSError:
        return FALLBACK_SIZE


@contextmanager
def kept() -> Iterator[None]:
    """Gives the terminal back as it was: its modes, and this process in its foreground. Without a terminal: nothing."""
    if not is_terminal():
        yield
        return
    modes = termios.tcgetattr(0)
    try:
        yield
    finally:
        # A shell that was killed leaves its own process group in the foreground; to take it back raises SIGTTOU.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            if os.tcgetpgrp(0) != os.getpgrp():
                os.tcsetpgrp(0, os.getpgrp())
            termios.tcsetattr(0, termios.TCSADRAIN, modes)
        except (OSError, termios.error):
            pass  # the terminal is gone
        finally:
            signal.signal(signal.SIGTTOU, before)


@contextmanager
def raw() -> Iterator[None]:
    """Every key is a byte, nothing is echoed. Without a terminal: nothing."""
    with kept():
        if is_terminal():
            tty.setraw(0, termios.TCSADRAIN)
        yield


@contextmanager
def keys_are_for_the_child() -> Iterator[None]:
    """Ctrl-C and Ctrl-\\ reach this process too while a child has its terminal: they are not meant for it.

    A handler, not ``SIG_IGN``: that one a child would inherit.
    """
    numbers = (signal.SIGINT, signal.SIGQUIT)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
