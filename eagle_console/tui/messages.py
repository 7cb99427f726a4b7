"""The messages that cross from the link into the screen."""

from __future__ import annotations

from textual.message import Message

from eagle_console.state import HostState


class StateChanged(Message):
    """A host's link published a new state. A newer one in the queue replaces it: samples are latest-wins."""

    def __init__(self, host: str, state: HostState) -> None:
        super().__init__()
        self.host, self.state = host, state

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, StateChanged) and message.host == self.host
