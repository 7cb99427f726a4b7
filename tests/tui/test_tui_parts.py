"""The pure parts of the screen: bars, histories, columns, lines, buffers, words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tui_fakes import NOW, PROFILE, WALL, disk, done_check, gpus, host_sample, job, ready_job, stage_list, state

from eagle_console.state import LinkState, LinkStatus, Timed
from eagle_console.tui import job_words
from eagle_console.tui.actions import SCREENS
from eagle_console.tui.holders import holders, ranges
from eagle_console.tui.log_buffer import LogBuffer, severity
from eagle_console.tui.stage_form_model import check_value, hint, obstacle
from eagle_console.tui.stage_form_model import given as given_values
from eagle_console.tui.view import View
from eagle_console.tui.widgets.disk_panel import DiskPanel
from eagle_console.tui.widgets.filter_input import matches
from eagle_console.tui.widgets.gpu_panel import gpu_summary, host_line
from eagle_console.tui.widgets.gpu_row import Columns, gpu_row, header
from eagle_console.tui.widgets.job_strip import strip
from eagle_console.tui.widgets.key_footer import footer_line
from eagle_console.tui.widgets.meter import meter
from eagle_console.tui.widgets.spark import spark
from eagle_console.tui.widgets.status_bar import status_line
from remote.protocol.gpu import Gpu, GpuProcess, GpuSnapshot
from remote.protocol.stages import ParameterInfo


def view(*jobs: object, **changes: object) -> View:
    return View(state(*jobs, **changes), PROFILE, NOW + 0.4, WALL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "──────────"),
        (0, "──────────"),
        (0.001, "╸─────────"),
        (0.5, "━━━━━─────"),
        (0.55, "━━━━━╸────"),
        (0.999, "━━━━━━━━━╸"),
        (1, "━━━━━━━━━━"),
        (7, "━━━━━━━━━━"),
    ],
)
def test_meter(share: float | None, text: str) -> None:
    assert meter(share, 10).plain == text


def test_meter_in_ascii() -> None:
    assert meter(0.5, 12, ascii=True).plain == "[#####.....]"
    assert meter(None, 12, ascii=True).plain == "[..........]"


@given(st.floats(0, 1), st.integers(0, 200), st.booleans())
def test_meter_is_as_wide_as_asked(share: float, width: int, ascii: bool) -> None:
    assert meter(share, width, ascii=ascii).cell_length == (max(2, width) if ascii and width else width)


def test_spark_shows_the_newest_and_gaps() -> None:
    assert spark([0, 50, 100], 3) == "▁▅█"
    assert spark([0, None, 100], 5) == "  ▁ █"
    assert spark([100, 0, 0], 2) == "▁▁"
    assert spark([100], 2, ascii=True) == " #"
    assert spark([1], 0) == ""


@given(st.integers(30, 300))
def test_gpu_rows_and_their_header_are_aligned(width: int) -> None:
    snapshot = gpus(lost=True)
    columns = Columns.for_width(width, snapshot.gpus)
    head = header(columns)
    assert head.cell_length <= width
    for gpu in snapshot.gpus:
        row = gpu_row(gpu, (1.0, None), columns, width)
        assert row.cell_length <= width
        if gpu.state == "ok":
            assert row.cell_length == head.cell_length


def test_a_narrow_row_gives_up_the_history_first() -> None:
    wide, narrow = (Columns.for_width(width, gpus().gpus) for width in (76, 36))
    assert wide.spark >= 5
    assert wide.power
    assert wide.temp
    assert narrow.spark == 0
    assert narrow.bar >= 3


def test_holders_are_summed_over_gpus() -> None:
    cards = tuple(
        Gpu(
            index,
            "ok",
            0.0,
            processes=(GpuProcess(1, 10), GpuProcess(2, None), *([GpuProcess(3, 99)] if index else [])),
        )
        for index in range(3)
    )
    found = holders(GpuSnapshot("ok", cards))
    assert [(holder.pid, holder.gpu_text, holder.memory) for holder in found] == [
        (3, "1-2", 198),
        (1, "0-2", 30),
        (2, "0-2", None),
    ]
    assert found[0].name == "(outside this container)"


def test_ranges() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert ranges([]) == ""


def test_gpu_summary_counts_kinds() -> None:
    assert gpu_summary(gpus()) == "8 × RTX PRO 6000"
    assert gpu_summary(gpus(lost=True)) == "6 × RTX PRO 6000 + 2 unnamed"


def test_the_host_line_leaves_out_what_does_not_fit() -> None:
    full = host_line(host_sample(), 120).plain
    assert full == "CPU 12% of 128  RAM 324.0/1024.0 GiB  load 12.1  /dev/shm 12.0/512.0 GiB  up 12 d 3 h"
    assert host_line(host_sample(), 40).plain == "CPU 12% of 128  RAM 324.0/1024.0 GiB"
    assert host_line(replace(host_sample(), cpu_percent=None, memory_available=None, load=None), 40).plain.startswith(
        "CPU – of 128  RAM –/1024.0 GiB"
    )


@pytest.mark.parametrize("width", [60, 80, 120, 300])
def test_status_line_keeps_the_host_the_link_and_the_clock(width: int) -> None:
    line = status_line(view(job()), width)
    assert line.cell_length == width
    assert line.plain.startswith(" gpu-box  LIVE 0.4s")
    assert line.plain.rstrip().endswith("20:26")


def test_status_line_counts_down_and_names_the_try() -> None:
    waiting = view(link=LinkStatus(LinkState.WAITING, "x", retry_at=NOW + 8.4))
    assert "DOWN, next try in 8s (R: now)" in status_line(waiting, 100).plain
    connecting = view(link=LinkStatus(LinkState.CONNECTING, attempt=3))
    assert "CONNECTING (try 3)" in status_line(connecting, 100).plain


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_footer_always_has_help_and_quit(screen: str, width: int) -> None:
    line = footer_line(screen, 2, width)
    assert line.cell_length <= width
    assert "? help" in line.plain
    assert "q quit" in line.plain


def test_the_disk_says_how_fast_it_fills_up() -> None:
    growing = replace(disk(), growth=3.2e9, full_in=97 * 3600.0)
    lines = "\n".join(line.plain for line in DiskPanel().body(view(disk=Timed(growing, NOW)), 90, 12))
    assert "grows 3.2 GB/h, full in 4 d 1 h" in lines
    assert "4 d 1 h to full" in status_line(view(disk=Timed(growing, NOW)), 160).plain
    again = replace(growing, scanning=True, files_seen=100, files_expected=10_576)
    lines = "\n".join(line.plain for line in DiskPanel().body(view(disk=Timed(again, NOW)), 90, 12))
    assert "scanning again: 100 of about 10,576 files so far" in lines


@pytest.mark.parametrize("screen", SCREENS)
def test_footer_says_what_keeps_running(screen: str) -> None:
    assert "q quit (1 job keeps running)" in footer_line(screen, 1, 120).plain
    assert "q quit (2 jobs keep running)" in footer_line(screen, 2, 120).plain
    assert "running" not in footer_line(screen, 0, 120).plain
    assert "x stop" in footer_line("dashboard", 2, 80).plain


def test_job_strip_counts_what_does_not_fit() -> None:
    many = [done_check() for _ in range(20)]
    line = strip(view(*many, job()), 80).plain
    assert line.startswith(" serve  RUNNING  8:56 61%")
    assert line.endswith("more")
    assert len(line) <= 80


def test_running_time_goes_on_between_readings() -> None:
    picture = replace(view(job(), done_check()), now=NOW + 2)
    assert picture.seconds(job()) == 538.0
    assert picture.seconds(done_check()) == 14.0


def test_running_time_stands_still_once_the_reading_is_stale() -> None:
    assert replace(view(job()), now=NOW + 40).seconds(job()) == 536.0
    assert view(job(), link=LinkStatus(LinkState.WAITING, "lost")).seconds(job()) == 536.0


def test_what_stopping_loses() -> None:
    assert job_words.lost_by_stopping(job(), 1_100.0).startswith("18 min of loading: the loaded model")
    assert job_words.lost_by_stopping(ready_job(), 5_000.0).startswith("22 min of loading")
    assert job_words.lost_by_stopping(replace(done_check(), stage="no such"), 65.0) == "1 min of work"


def test_exit_words() -> None:
    assert job_words.exit_text(job(code=1)) == "exit 1"
    assert job_words.exit_text(job(signal=9)) == "signal 9"
    assert job_words.exit_text(job()) == "–"
    assert job_words.state_word(job(state="elsewhere")) == "on gpu-box"


def test_progress_of_a_job_that_runs_or_ended() -> None:
    assert job_words.progress_text(job()) == "61% weights"
    assert job_words.progress_text(replace(job(), state="failed")) == "61% weights"
    assert job_words.progress_text(done_check()) == ""


def test_loose_files_are_no_directory() -> None:
    snapshot = disk()
    (first, *_) = snapshot.entries
    lines = DiskPanel().body(view(disk=Timed(replace(snapshot, entries=(first, replace(first, name="."))), NOW)), 60, 8)
    assert lines[2].plain.startswith("(loose files)")
    assert " in 1 directory, scanned " in lines[-1].plain


@pytest.mark.parametrize(
    ("text", "pattern", "passes"),
    [
        ("Loading Weights", "weights", True),
        ("Loading", "weights", False),
        ("Loading", "!weights", True),
        ("weights", "!weights", False),
        ("anything", "", True),
        ("anything", "!", True),
    ],
)
def test_filter(text: str, pattern: str, passes: bool) -> None:
    assert matches(text, pattern) is passes


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("(EngineCore pid=101) ERROR 10-08 16:50:22 [core.py:129] x", "error"),
        ("Traceback (most recent call last):", "error"),
        ("ValueError: no", "error"),
        ("torch.OutOfMemoryError: CUDA out of memory", "error"),
        ("WARNING 10-08 x", "warning"),
        ("INFO no error here", ""),
        ("error_count=0", ""),
    ],
)
def test_severity(line: str, kind: str) -> None:
    assert severity(line) == kind


def test_bars_of_one_name_are_folded_and_others_kept() -> None:
    buffer = LogBuffer()
    assert not buffer.append(["Loading shards:  10% Completed | 1/10", "INFO between"])
    assert buffer.append(["Capturing graphs:  10%|#   | 1/10", "Capturing graphs:  20%|##  | 2/10", "x: 5%| | 1/2"])
    assert buffer.shown == [
        "Loading shards:  10% Completed | 1/10",
        "INFO between",
        "Capturing graphs:  20%|##  | 2/10",
        "x: 5%| | 1/2",
    ]


def test_a_filtered_buffer_drops_the_right_lines() -> None:
    buffer = LogBuffer(max_lines=100)
    buffer.filter("odd")
    buffer.append([f"{'odd' if number % 2 else 'even'} {number}" for number in range(1_000)])
    assert buffer.total <= 100
    kept = 1_000 - buffer.dropped
    assert buffer.total == kept
    assert buffer.shown == [f"odd {number}" for number in range(buffer.dropped, 1_000) if number % 2]


def test_the_first_error_is_the_cause_that_the_host_found() -> None:
    buffer = LogBuffer()
    buffer.append(["INFO a", "ERROR noise", "RuntimeError: the cause [/data]", "ERROR last"])
    assert buffer.first_error() == 1
    assert buffer.first_error("RuntimeError: the cause [/data]") == 2
    buffer.filter("INFO")
    assert buffer.first_error() is None


PORT = ParameterInfo("port", "int", "port", 8000, "", 1, 65535)


@pytest.mark.parametrize(
    ("info", "text", "message"),
    [
        (PORT, "", ""),
        (PORT, "8001", ""),
        (PORT, "x", "not a whole number"),
        (PORT, "0", "at least 1"),
        (ParameterInfo("verifier", "path", ""), "models", "an absolute path of the host is needed"),
        (ParameterInfo("flag", "bool", ""), "maybe", "not true or false"),
        (ParameterInfo("new", "a type of tomorrow", ""), "anything", ""),
    ],
)
def test_values_are_checked_as_the_catalogue_does(info: ParameterInfo, text: str, message: str) -> None:
    assert check_value(info, text) == message


def test_only_what_was_typed_rightly_is_sent() -> None:
    parameters = stage_list().stages[1].parameters
    typed = {"port": "8001", "max_model_len": "", "enforce_eager": "yes", "verifier": "relative"}
    assert given_values(parameters, typed) == {"port": 8001, "enforce_eager": True}


def test_hints_name_type_unit_and_range() -> None:
    assert hint(PORT) == "whole number, 1 to 65535"
    assert hint(ParameterInfo("n", "int", "", None, "tokens", 1)) == "whole number, in tokens, from 1"


def test_obstacles_in_order_of_weight() -> None:
    ok, blocked = stage_list().stages[1], stage_list(True).stages[1]
    assert "read-only" in obstacle({}, ok, True, True)
    assert "no connection" in obstacle({}, ok, False, False)
    assert obstacle({"port": "not a whole number"}, ok, True, False) == "port: not a whole number."
    assert "Asking" in obstacle({}, None, True, False)
    assert obstacle({}, None, True, False, "it failed") == "it failed"
    assert obstacle({}, blocked, True, False) == "Blocked by gpu_memory: see above."
    assert obstacle({}, ok, True, False) == ""
