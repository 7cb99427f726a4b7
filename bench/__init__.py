"""Benchmarks: speed and size of the parts, each beside a named peer in the same run."""
