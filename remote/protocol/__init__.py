"""Every frame and record that crosses the wire: frozen dataclasses, the one schema of both ends.

A module a topic. Times named ``wall`` are seconds since the epoch on the host's clock; times named ``mono`` are the
host's monotonic clock and good for differences only. Sizes are bytes. Unknown is ``None``, never 0.
"""
