"""Slurm as an engine: it queues, places and ends what the runner runs; the job directory stays the truth.

Only the text command line is used, with explicit formats. ``squeue --json`` of a controller that is down says that
there are no jobs, and its shape changes from version to version.
"""
