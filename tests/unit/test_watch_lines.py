from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.watch.lines import API, ENGINE, UNKNOWN, WORKER, LogLine, parse


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("INFO 12-20 00:49:35 loader.py:237] text", LogLine("text", "INFO")),
        ("INFO 07-08 13:53:31 [loader.py:1770] text", LogLine("text", "INFO")),
        ("(EngineCore pid=101) INFO 10-08 16:50:22 [core.py:129] text", LogLine("text", "INFO", ENGINE)),
        ("(EngineCore_DP3 pid=9) ERROR 10-08 16:50:22 [core.py:129] text", LogLine("text", "ERROR", ENGINE)),
        ("(Worker_DP0_TP7_EP7 pid=9) WARNING 10-08 16:50:22 [a.py:1] text", LogLine("text", "WARNING", WORKER)),
        ("(VllmWorker rank=3 pid=9) INFO 10-08 16:50:22 [a.py:1] text", LogLine("text", "INFO", WORKER)),
        ("(VllmWorker TP0 pid=9) INFO 10-08 16:50:22 [a.py:1] text", LogLine("text", "INFO", WORKER)),
        ("(VllmWorkerProcess pid=9) INFO 10-08 16:50:22 a.py:1] text", LogLine("text", "INFO", WORKER)),
        ("(ApiServer_1 pid=9) INFO 10-08 16:50:22 [a.py:1] text", LogLine("text", "INFO", API)),
        ("(APIServer pid=9) INFO:     Started server process [9]", LogLine("Started server process [9]", "INFO", API)),
        ("INFO:     Waiting for application startup.", LogLine("Waiting for application startup.", "INFO")),
        (
            "(RayWorkerWrapper pid=9, ip=10.0.0.2) INFO 10-08 16:50:22 [a.py:1] text [repeated 30x across cluster]",
            LogLine("text", "INFO", WORKER),
        ),
        (
            "(EngineCore pid=8) (RayWorkerProc pid=9) INFO 10-08 16:50:22 [a.py:1] text",
            LogLine("text", "INFO", WORKER),
        ),
        ("node-7 | INFO 10-08 16:50:22 [a.py:1] text", LogLine("text", "INFO")),
        ("DEBUG 10-08 16:50:22 [v1/worker/gpu_model_runner.py:2641] text", LogLine("text", "DEBUG")),
        ('(EngineCore pid=1) ERROR 10-08 16:50:22 [a.py:1]   File "x"', LogLine('  File "x"', "ERROR", ENGINE)),
        ("(EngineCore pid=3104) ", LogLine("", "", ENGINE)),
        ("just a print", LogLine("just a print")),
        (
            '{"asctime": "x", "levelname": "ERROR", "processName": "EngineCore", "message": "text\\nmore"}',
            LogLine("text", "ERROR", ENGINE),
        ),
        ('{"message": 3', LogLine('{"message": 3')),
        ('{"message": 3}', LogLine('{"message": 3}')),
    ],
)
def test_parts_of_a_line(line: str, parts: LogLine) -> None:
    assert parse(line) == parts


@given(st.text(max_size=400))
def test_any_text_is_a_line(text: str) -> None:
    assert parse(text).role in (API, ENGINE, WORKER, UNKNOWN)
