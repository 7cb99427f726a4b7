"""What can go wrong on the wire, and the codes that an agent answers with."""

from __future__ import annotations


class ProtocolError(Exception):
    """A frame that breaks the rules of the wire: too long, not an object, a field of the wrong type."""


class RequestError(Exception):
    """A request that the agent refuses or cannot do. Becomes the ``error`` of a response.

    :param code: one of the ``CODES``, stable for scripts.
    :param message: one sentence for a person.
    :param remedy: what to do about it, or empty.
    """

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


UNSUPPORTED = "unsupported"  # an operation or topic that this agent does not know
BAD_ARGUMENT = "bad_argument"  # the arguments do not fit the operation
NOT_FOUND = "not_found"
REFUSED = "refused"  # a safety rule: read-only, outside the roots, blocked by a check
CONFLICT = "conflict"  # the world is not as the request supposes (already ended, already running)
FAILED = "failed"  # tried, did not work

CODES = (UNSUPPORTED, BAD_ARGUMENT, NOT_FOUND, REFUSED, CONFLICT, FAILED)
