from __future__ import annotations

import json

import pytest

from pipeline.plan import measurement
from pipeline.plan.measurement import Counters, Measured, Mismatch, Report

METRICS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 20.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 360.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 180.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 96.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 54.0
vllm:num_requests_running{engine="0",model_name="m"} 0.0
"""


def test_counters_are_added_over_engines_and_positions_are_in_order() -> None:
    assert measurement.read_counters(METRICS) == Counters(120.0, 360.0, 180.0, (96.0, 54.0, 30.0))


def test_a_server_without_a_draft_has_no_acceptance() -> None:
    counters = measurement.read_counters("vllm:num_requests_running 0.0\n")
    assert counters.acceptance_length is None
    assert counters.acceptance_at == ()


def test_acceptance_is_that_of_the_difference() -> None:
    before = Counters(20.0, 60.0, 30.0, (10.0,))
    counters = measurement.read_counters(METRICS).since(before)
    assert counters == Counters(100.0, 300.0, 150.0, (86.0, 54.0, 30.0))
    assert counters.acceptance_length == 2.5
    assert counters.acceptance_at == (0.86, 0.54, 0.3)


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 2, 3], [1, 9, 3], 1), ([1, 2], [1, 2, 3], 2), ([], [4], 0), ([], [], None)],
)
def test_the_first_difference(left: list[int], right: list[int], place: int | None) -> None:
    assert measurement.first_difference(left, right) == place


def report() -> Report:
    mismatch = Mismatch("p7", 12, " the", " a", 0.0031)
    counters = Counters(100, 300, 225, (90, 75, 60))
    measured = Measured("prompts", 40, 39, (3200, 3200), (32.0, 20.0), counters, (mismatch,))
    held_out = Measured("held-out", 10, 10, (800, 800), (8.0, 8.0), Counters(), ())
    return Report("/m/verifier", "/w/draft_1k", (measured, held_out), 2.4, {"concurrency": 8})


def test_the_report_as_json_holds_every_figure() -> None:
    data = measurement.as_json(report())
    json.dumps(data, allow_nan=False)
    first, second = data["sets"]
    assert data["predicted_acceptance"] == 2.4
    assert first["acceptance_length"] == 3.25
    assert first["acceptance_at"] == [0.9, 0.75, 0.6]
    assert first["tokens_per_second"] == {"without": 100.0, "with": 160.0}
    assert first["speed_up"] == 1.6
    assert (first["equal"], first["prompts"]) == (39, 40)
    assert first["mismatches"] == [
        {"prompt": "p7", "position": 12, "without": " the", "with": " a", "logprob_gap": 0.0031}
    ]
    assert second["acceptance_length"] is None


def test_the_table_shows_both_sets_side_by_side_and_each_mismatch() -> None:
    text = measurement.as_markdown(report())
    assert "| mean acceptance length | 3.25 | – |" in text
    assert "| predicted by validation | 2.40 | 2.40 |" in text
    assert "| accepted at position 3 | 60.0% | – |" in text
    assert "| tokens/s without the draft | 100.0 | 100.0 |" in text
    assert "| tokens/s with the draft | 160.0 | 100.0 |" in text
    assert "| equal texts | 39 of 40 | 10 of 10 |" in text
    assert "prompt p7: token 12: ' the' without, ' a' with the draft, log-probability gap 0.0031" in text


def test_totals_over_all_sets() -> None:
    totals = measurement.totals(report().sets)
    assert totals["prompts"] == 50
    assert totals["equal_share"] == pytest.approx(0.98)
    assert totals["drafts"] == 100
