"""Processes that run on the host without having been started by us: found, watched, and left alone."""
