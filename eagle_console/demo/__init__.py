"""The embedded host of ``eagle-console demo``: a real SSH server and agent on loopback, with simulated leftovers."""

from eagle_console.demo.server import DemoHost

__all__ = ["DemoHost"]
