"""The metrics of vLLM servers, with the names of several releases."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.watch import serving
from remote.watch.serving import Reading

V1 = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="/models/tiny, \\"v1\\" {x}"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.125
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:generation_tokens_total{engine="0",model_name="m"} 500.0
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 150.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 20.0
python_gc_objects_collected_total{generation="0"} 1234.0
"""


def parsed(text: str, at: float = 0.0) -> Reading:
    reading = serving.parse(text, at)
    assert reading is not None
    return reading


def test_a_reading() -> None:
    assert parsed(V1, 7.0) == Reading(
        7.0, 3.0, 2.0, 0.125, 1000.0, 500.0, 4.0, 100.0, 300.0, 150.0, (80.0, 50.0, 20.0), '/models/tiny, \\"v1\\" {x}'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm:gpu_cache_usage_perc 0.5\n", {"kv_cache": 0.5}),  # up to 0.11.2
        ("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.4\n", {"kv_cache": 0.4}),
        ('vllm:num_requests_running{a="b"} 1\nvllm:num_requests_running{a="c"} 2\n', {"running": 3.0}),
        ('vllm:kv_cache_usage_perc{a="b"} 0.1\nvllm:kv_cache_usage_perc{a="c"} 0.9\n', {"kv_cache": 0.9}),
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting 1\n", {"running": None, "waiting": 1.0}),
        ("vllm:num_requests_running 1e3 1700000000\n", {"running": 1000.0}),
        ("vllm:num_requests_waiting 1\nvllm:num_requests_run", {"waiting": 1.0, "running": None}),
    ],
)
def test_names_engines_and_odd_values(text: str, expected: dict[str, object]) -> None:
    reading = parsed(text)
    assert {name: getattr(reading, name) for name in expected} == expected


@pytest.mark.parametrize(
    "text", ["", "<html>404</html>", "python_info 1\n", "vllm:unheard_of 3\n", "vllm:num_requests_running x"]
)
def test_what_is_not_vllms_is_no_reading(text: str) -> None:
    assert serving.parse(text, 0.0) is None


def test_rates_come_from_two_readings() -> None:
    first = parsed(V1, 10.0)
    assert serving.compare(None, first).generation_rate is None
    grown = {
        "prompt_tokens_total": "1100.0",
        "generation_tokens_total": "700.0",
        "spec_decode_num_drafts_total": "150.0",
        "spec_decode_num_draft_tokens_total": "450.0",
        "spec_decode_num_accepted_tokens_total": "250.0",
    }
    later = V1.replace('position="0"} 80.0', 'position="0"} 125.0')
    for name, value in grown.items():
        later = re.sub(rf"(vllm:{name}{{[^}}]*}}) .*", rf"\g<1> {value}", later)
    now = serving.compare(first, parsed(later, 20.0))
    assert (now.generation_rate, now.prompt_rate, now.window) == (20.0, 10.0, 10.0)
    assert now.acceptance_length == 1 + 100 / 50
    assert now.acceptance_rate == pytest.approx(100 / 150)
    assert now.position_rates == (45 / 50, 0.0, 0.0)


def test_acceptance_since_the_start_where_nothing_was_drafted_meanwhile() -> None:
    now = serving.compare(parsed(V1, 10.0), parsed(V1, 20.0))
    assert now.generation_rate == 0.0
    assert (now.acceptance_length, now.acceptance_rate, now.window) == (2.5, 0.5, None)
    assert now.position_rates == (0.8, 0.5, 0.2)


def test_a_counter_that_began_anew_gives_no_rate() -> None:
    now = serving.compare(parsed(V1, 10.0), parsed(V1.replace(" 500.0", " 3.0"), 20.0))
    assert now.generation_rate is None and now.prompt_rate is None and now.generated_tokens == 3.0


def test_a_server_without_speculative_decoding_has_no_acceptance() -> None:
    plain = "\n".join(line for line in V1.splitlines() if "spec_decode" not in line)
    now = serving.compare(parsed(plain, 0.0), parsed(plain, 5.0))
    assert now.drafts is None and now.acceptance_length is None and now.position_rates == ()


def test_an_extraction_server_drafts_without_accepting() -> None:
    none = re.sub(r"(vllm:spec_decode_num_drafts_total{[^}]*}) .*", r"\g<1> 0.0", V1)
    assert serving.compare(None, parsed(none)).acceptance_length is None


@given(st.lists(st.one_of(st.sampled_from(V1.splitlines()), st.text(max_size=60))))
def test_no_text_breaks_it(lines: list[str]) -> None:
    reading = serving.parse("\n".join(lines), 0.0)
    if reading is not None:
        serving.compare(reading, Reading(1.0))
        serving.compare(None, reading)
