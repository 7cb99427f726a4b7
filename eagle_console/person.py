"""Who works at this console, for the records on the host."""

from __future__ import annotations

import getpass
import os
import socket


def person() -> str:
    """``user at machine``; the number of a user that has no name, as in some containers."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"user {os.getuid()}"
    return f"{user} at {socket.gethostname()}"
