from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.watch import clock, wrappers
from remote.watch.explain import Explainer
from remote.watch.lines import parse
from remote.watch.sieve import Sieve

HEADED = "(EngineCore pid=3104) INFO 11-30 19:20:25 [core.py:116] Initializing a V1 LLM engine (v0.26.0)"
BAR = "Loading safetensors checkpoint shards:  11% Completed | 1/9 [00:02<00:16,  2.09s/it]"


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ("2026-11-30T19:20:25.123456789Z ", wrappers.DATE),
        ("2026-11-30T19:20:25.123Z stdout F ", wrappers.DATE),
        ("2026-11-30 19:20:25,123 ", wrappers.DATE),
        ("[2026-11-30 19:20:25] ", wrappers.DATE),
        ("vllm-1  | ", ""),
        ("vllm-1  | 2026-11-30T19:20:25.1Z ", wrappers.DATE),
        ("[pod/vllm-abc-1/vllm] ", ""),
        ("[pod/vllm-abc-1/vllm] 2026-11-30T19:20:25.1+01:00 ", wrappers.DATE),
        ("Nov 30 19:20:25 ", wrappers.DAY_OF_YEAR),
        ("Nov 30 19:20:25.123 ", wrappers.DAY_OF_YEAR),
        ("Nov 30 19:20:25 node1 vllm[123]: ", wrappers.DAY_OF_YEAR),
        ("00:00:49 ", wrappers.TIME_OF_DAY),
        ("[19:20:25] ", wrappers.TIME_OF_DAY),
        ("1796066375.880123 ", wrappers.SECONDS),
        ("   49.858 ", wrappers.SECONDS),
        ("0: ", ""),
        ("node-7: ", ""),
        ("[rank0]: ", ""),
        ("[1,0]<stdout>:", ""),
        ("(pid=9, ip=10.0.0.2) ", ""),
    ],
)
def test_what_stands_around_a_line_is_taken_off(before: str, kind: str) -> None:
    for line in (HEADED, BAR):
        assert parse(before + line).message.startswith(("Initializing", "Loading"))
        stamp = wrappers.unwrap(before + line).stamp
        assert (stamp.kind if stamp else "") == kind


@pytest.mark.parametrize(
    "line",
    [
        "Capturing eagle CUDA graphs (FULL):   0%|          | 0/35 [00:00<?, ?it/s]",
        "4.77 GiB",
        "vllm: error: bad option",
        BAR,
    ],
)
def test_a_lines_own_words_stay(line: str) -> None:
    assert wrappers.unwrap(line) == wrappers.Unwrapped(line)


def times(*lines: str) -> list[float]:
    at, found = clock.Clock(), []
    for line in lines:
        at = clock.read_line(at, line)
        found.append(round(at.now, 3))
    return found


def test_the_outermost_stamp_counts_and_time_never_goes_back() -> None:
    assert times(f"2026-11-30T19:20:25.500Z {HEADED}", "2026-11-30T19:20:27Z x", "2026-11-30T19:20:26Z x") == [
        0,
        1.5,
        1.5,
    ]


def test_midnight_and_the_new_year() -> None:
    header = "INFO {} [core.py:1] x"
    assert times(header.format("12-31 23:59:58"), header.format("01-01 00:00:03")) == [0, 5]
    assert times("23:59:58 x", "00:00:03 x") == [0, 5]


def test_a_bar_without_a_stamp_keeps_the_clock() -> None:
    bar = "Loading:  {}% Completed | 1/9 [{}<00:16,  2.09s/it]"
    assert times(HEADED, bar.format(0, "00:00"), bar.format(50, "00:40"), bar.format(90, "1:00:40")) == [0, 0, 40, 3640]
    assert times(bar.format(50, "00:40")) == [0], "nothing is known before the first stamp"


def test_seconds_that_count_from_the_start_do_so() -> None:
    assert times("  30.110 x", "  31.610 x") == [30.11, 31.61]
    assert times("1796066375.880 x", "1796066377.380 x") == [0, 1.5]


def test_a_log_that_begins_after_the_start_is_of_a_ready_server() -> None:
    explainer = Explainer()
    explainer.feed(b'INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 200 OK\n' * 3)
    found = explainer.explain()
    assert (found.state, found.progress.ready, found.error) == ("ready", True, None)


def test_the_sieve_passes_failures_stops_and_new_starts_only() -> None:
    sieve = Sieve()
    sieve.serving = True
    kept = [
        b"ERROR 11-30 19:20:25 [core.py:1] EngineCore encountered a fatal error.",
        b"Killed",
        b"INFO 11-30 19:20:25 [launcher.py:1] [shutdown] API server: shutdown triggered",
        b"INFO 11-30 19:20:25 [api.py:1] vLLM API server version 0.9.2",
    ]
    dropped = [
        b'INFO:     127.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK',
        b"ERROR:    Exception in ASGI application",
        b"Traceback (most recent call last):",
        b"ValueError: too long",
    ]
    for cut in (1, 7, 1000):
        content = b"\n".join([*dropped, *kept]) + b"\n"
        passed = [line for begin in range(0, len(content), cut) for line in sieve.feed(content[begin : begin + cut])]
        assert passed == kept


@given(st.text(max_size=300))
def test_any_text_can_be_unwrapped(text: str) -> None:
    assert text.endswith(wrappers.unwrap(text).text) or text.startswith('{"')
    clock.read_line(clock.Clock(), text)
