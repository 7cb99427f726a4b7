"""Keeps the agent small: one heap for all its threads.

glibc gives threads heaps of their own (up to eight a core), each of which keeps what was ever freed in it. The agent
has a thread for each kind of reading and does little in any of them: on a host with 16 cores and one H200 the heaps
were 12 of its 61 MB.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h


def use_one_heap() -> bool:
    """Makes all threads share one heap; whether the C library could do that. Call it before the first thread starts.

    Done by call and not by ``MALLOC_ARENA_MAX``, which the stages would inherit. mallopt(3).
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1))
    except (OSError, AttributeError):
        return False  # not glibc
