"""Benchmarks: speed and size of the parts, each beside a named peer in the same run.

``python -m bench`` runs those that any machine can; ``agent_gpu``, ``free_gpu`` and ``train_gpu`` want a real GPU.
They start what the tests start (sshd, fake GPUs, made-up runs), and import it under the same names.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
