"""The size of a small tree, such as a checkpoint, read at this moment. Large trees are measured by ``disk.tree``."""

from __future__ import annotations

import os
import stat

from remote.disk.tree import Inode
from remote.protocol.artifacts import Size

_BLOCK = 512


def sized(path: str) -> Size:
    """Allocated, apparent and exclusive bytes of a file or a tree; no symbolic link is followed, no file system left.

    :raises OSError: when the top cannot be read; what cannot be read below it does not count.
    """
    top = os.lstat(path)
    if not stat.S_ISDIR(top.st_mode):
        allocated = top.st_blocks * _BLOCK
        return Size(allocated, top.st_size, allocated if top.st_nlink == 1 else 0, 1)
    allocated = apparent = count = 0
    linked: dict[Inode, list[int]] = {}
    queue = [path]
    while queue:
        folder = queue.pop()
        try:
            with os.scandir(folder) as entries:
                statuses = [(item.path, item.stat(follow_symlinks=False)) for item in entries]
        except OSError:
            if folder == path:
                raise
            continue
        for child, status in statuses:
            if stat.S_ISDIR(status.st_mode):
                if status.st_dev == top.st_dev:
                    queue.append(child)
                continue
            if status.st_nlink > 1:
                known = linked.setdefault((status.st_dev, status.st_ino), [0, status.st_nlink, status.st_blocks])
                known[0] += 1
                if known[0] > 1:
                    continue
            allocated += status.st_blocks * _BLOCK
            apparent += status.st_size
            count += 1
    shared = sum(blocks * _BLOCK for seen, names, blocks in linked.values() if seen < names)
    return Size(allocated, apparent, allocated - shared, count)
