"""Fixtures that several parts of the suite use; their modules in ``fixtures/`` say what they are."""

from __future__ import annotations

from fixtures.nvml import fake_nvml, nvml_library

__all__ = ["fake_nvml", "nvml_library"]
