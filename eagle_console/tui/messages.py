"""The messages that cross from the link into the screen."""

from __future__ import annotations

from textual.message import Message

from eagle_console.state import HostState


class StateChanged(Message):
    """The link published a new state. A newer one in the queue replaces it: samples are latest-wins."""

    def __init__(self, state: HostState) -> None:
        super().__init__()
        self.state = state

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, StateChanged)
