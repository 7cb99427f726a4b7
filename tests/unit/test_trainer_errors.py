from __future__ import annotations

from typing import Any

from pipeline.training import trainer


def raised(error: Exception, file: str) -> Exception:
    """The error, as if it had been raised in that file."""
    names: dict[str, Any] = {"error": error}
    try:
        exec(compile("raise error", file, "exec"), names)
    except Exception as found:
        return found
    raise AssertionError


class OutOfMemoryError(RuntimeError):
    pass


def test_a_failure_of_the_compiler_is_known_by_its_place_or_its_kind() -> None:
    fails = raised(AssertionError("ListVariable(length=21) is already tracked"), "/x/torch/_dynamo/side_effects.py")
    assert trainer._compiling(fails)
    kind = type("CompilationError", (Exception,), {"__module__": "triton.compiler.errors"})
    assert trainer._compiling(raised(kind("no"), "/x/speculators/losses/fused.py"))


def test_what_compiled_code_raises_is_no_failure_of_the_compiler() -> None:
    assert not trainer._compiling(raised(ValueError("bad batch"), "/x/speculators/train/data.py"))
    assert not trainer._compiling(raised(OutOfMemoryError("CUDA out of memory"), "/x/torch/_inductor/runtime.py"))
