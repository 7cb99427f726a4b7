from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.plan.safetensors import HeaderError, read_header


def write(path: Path, tensors: dict[str, tuple[str, list[int], int]], data: bytes | None = None) -> Path:
    """A safetensors file; ``tensors`` is name to dtype, shape and bytes."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + (bytes(offset) if data is None else data))
    return path


def test_names_shapes_and_places_of_a_whole_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"x": ("BF16", [2, 3], 12), "flags": ("BOOL", [5], 5)})
    header = read_header(str(path))
    assert header.shapes == {"x": (2, 3), "flags": (5,)}
    assert header.metadata == {"format": "pt"}
    assert header.tensors["flags"].end == path.stat().st_size
    assert header.tensors["x"].bytes == 12


@pytest.mark.parametrize("keep", [0, 7, 8, 20, -1])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / "a.safetensors", {"x": ("BF16", [2, 3], 12)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(HeaderError, match="cut"):
        read_header(str(path))


def test_a_longer_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"x": ("U8", [2], 2)}, data=b"1234")
    with pytest.raises(HeaderError, match="2 bytes after its last tensor"):
        read_header(str(path))


def test_a_shape_that_does_not_fit_its_bytes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"x": ("F32", [2], 4)})
    with pytest.raises(HeaderError, match="x has 4 bytes"):
        read_header(str(path))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n" * 4)
    with pytest.raises(HeaderError, match="no safetensors file"):
        read_header(str(path))
    path.write_bytes((2).to_bytes(8, "little") + b"[]")
    with pytest.raises(HeaderError, match="header cannot be read"):
        read_header(str(path))
    path.write_bytes((40).to_bytes(8, "little") + b'{"x":{"dtype":"U8","data_offsets":[0,1]}}'.ljust(40))
    with pytest.raises(HeaderError):
        read_header(str(path))
