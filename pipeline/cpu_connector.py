"""A hidden-states connector for vLLM's CPU build: its own one copies into pinned memory, which only accelerators have.

It is copied to a folder of the job and named in ``--kv_transfer_config``, so that the server sees none of our packages.
Written for vLLM 0.22 to 0.32.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import example_hidden_states_connector as example


class _Copied:
    """Stands where the CUDA build has an event: a copy on the CPU is complete when it is made."""

    def synchronize(self) -> None:
        return

    def query(self) -> bool:
        return True


class CPUHiddenStatesConnector(example.ExampleHiddenStatesConnector):  # type: ignore[misc]
    """``ExampleHiddenStatesConnector`` without pinned memory and streams."""

    def _submit_async_write(self, pending: Any) -> None:
        if not self._is_tp_rank_zero:
            return
        blocks = torch.tensor(pending.block_ids, dtype=torch.long)
        slots = (torch.arange(self._block_size).reshape(1, -1) + blocks.reshape(-1, 1) * self._block_size).flatten()
        states = example.extract_from_kv_cache(self._kv_cache, slots, pending.token_ids.shape[0]).clone()
        tensors = {"hidden_states": states, "token_ids": pending.token_ids.clone()}
        os.makedirs(os.path.dirname(pending.filename), exist_ok=True)
        copied = _Copied()
        lock = self._lock_fds.pop(pending.req_id, None)
        written = self._executor.submit(self._write_tensors, tensors, copied, pending.filename, lock)
        self._req_copy_events[pending.req_id] = copied
        self._req_futures[pending.req_id] = written
        written.add_done_callback(partial(self._on_write_done, pending.req_id))
