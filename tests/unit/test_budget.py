"""The token budget: whatever is asked of a server, no step and no memory grows past its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.plan import budget, data_commands

KIMI = budget.bytes_per_token(7168, 4, "bfloat16")


def test_503_000_tokens_are_never_prefilled_at_once() -> None:
    bound = budget.extraction(KIMI, 8192, 2000, host_memory=2 * 1024**4, cpu_only=False)
    prompts = [503] * 1000
    assert sum(prompts) == 503_000
    steps = budget.prefill_steps(prompts, bound.batched_tokens)
    assert max(steps) <= 8192 and sum(steps) == 503_000 and len(steps) == 62
    assert "8,192 tokens are prefilled in one step" in bound.words


@given(st.lists(st.integers(1, 600_000), max_size=20), st.integers(100, 20_000))
def test_no_step_is_larger_than_its_bound_and_none_is_lost(prompts: list[int], bound: int) -> None:
    steps = budget.prefill_steps(prompts, bound)
    assert sum(steps) == sum(prompts)
    assert all(0 < step <= bound for step in steps)
    assert all(step == bound for step in steps[:-1])


SIZES = st.integers(1, 200_000)


@given(SIZES, SIZES, st.integers(1, 5000), st.none() | st.integers(0, 2**42), st.booleans())
def test_the_hosts_memory_bounds_what_is_open(
    token_bytes: int, length: int, wanted: int, memory: int | None, cpu_only: bool
) -> None:
    bound = budget.extraction(token_bytes, length, wanted, memory, cpu_only)
    assert 1 <= bound.concurrency <= wanted and bound.sequences <= bound.concurrency
    assert bound.host_bytes == bound.concurrency * length * token_bytes
    if memory is not None and bound.concurrency > 1:
        assert bound.host_bytes <= memory * budget.HOST_SHARE


def test_the_storys_token_is_57_kilobytes() -> None:
    assert KIMI == 57_344
    assert budget.bytes_per_token(576, 4, "float32") == 9216


def test_the_servers_longest_sequence() -> None:
    given = {"max_model_len": None, "max_tokens": 8192}
    assert data_commands.synthesis_length(given) == data_commands.synthesis_length(given, 262_144) == 10_240
    assert data_commands.synthesis_length(given, 4096) == 4096, "no more than the verifier has positions"
    assert data_commands.synthesis_length({**given, "max_model_len": 500}, 4096) == 500


def test_a_request_may_take_as_long_as_its_tokens_need() -> None:
    assert budget.request_seconds(8192, None) > 8192
    assert budget.request_seconds(8192, 10.0) >= 60 + 3 * 819.2
    assert budget.request_seconds(96, 50.0) < 90
    assert budget.request_seconds(8192, 0.0) < 200_000, "a bound all the same"
