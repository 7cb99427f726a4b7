"""Starts the agent from an unpacked bundle: ``python -I run_agent.py``."""

from __future__ import annotations

import os
import sys

bundle_dir = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(bundle_dir, "lib"), os.path.join(bundle_dir, "vendor")]

from remote.agent import main  # noqa: E402

main(bundle_dir)
