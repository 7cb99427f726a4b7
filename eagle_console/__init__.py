"""The console floor: the link to a host, the screen and its scriptable twin."""

__version__ = "0.1.0"
