"""The agent with three more operations, as a process: one sleeps, one prints where frames go, one gives a lot."""

from __future__ import annotations

import os
import time
from typing import Any

from remote import agent
from remote.capabilities import Capabilities
from remote.protocol.jobs import LogChunk

original = Capabilities.__init__


def with_slow_operations(self: Capabilities, *args: Any) -> None:
    original(self, *args)
    self.operations["sleep"] = lambda args, key: time.sleep(60)
    self.operations["noise"] = lambda args, key: os.write(1, b"printed by a library\n") and LogChunk("", 0, 0, 0, ())
    self.operations["bulk"] = lambda args, key: LogChunk("", 0, 0, 0, ("x" * 200_000,))
    self.operations["crash"] = lambda args, key: 1 // 0


Capabilities.__init__ = with_slow_operations  # type: ignore[method-assign]
agent.main()
