from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.training import records
from pipeline.training.records import Reader, Validation, Writer


def val(epoch: int, *full: float) -> dict[str, Any]:
    values = {f"full_acc_{position}_epoch": value for position, value in enumerate(full)}
    return {"val": {**values, "loss_epoch": 2.0}, "epoch": epoch}


def test_records_survive_whole_and_with_every_digit(tmp_path: Path) -> None:
    path = tmp_path / records.FILE
    writer, reader = Writer(str(path)), Reader(path)
    writer.write(records.TRAIN, step=3, train={"loss": 0.12345678901234567, "bad": float("nan"), "worse": float("inf")})
    (record,) = reader.read()
    assert record["train"] == {"loss": 0.12345678901234567, "bad": None, "worse": None}
    assert (record["kind"], record["step"]) == ("train", 3)
    assert reader.read() == []


def test_a_reader_begins_where_the_file_was_and_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / records.FILE
    path.write_bytes(b'{"kind":"old"}\n')
    reader = Reader(path)
    with open(path, "ab", buffering=0) as file:
        file.write(b'{"kind":"n')
        assert reader.read() == []
        file.write(b'ew"}\nnot json\n[1]\n')
    assert reader.read() == [{"kind": "new"}]


def test_only_one_trainer_writes_a_file(tmp_path: Path) -> None:
    path = tmp_path / records.FILE
    assert not records.in_use(path)
    writer = Writer(str(path))
    assert records.in_use(path)
    with pytest.raises(BlockingIOError):
        Writer(str(path))
    del writer
    assert not records.in_use(path)


def test_predicted_acceptance_is_one_and_the_accuracies_up_to_each_position() -> None:
    assert Validation(0, None, (0.962, 0.912, 0.869), ()).predicted == pytest.approx(3.743)


def test_the_last_validation_of_an_epoch_counts(tmp_path: Path) -> None:
    path = tmp_path / records.FILE
    writer = Writer(str(path))
    for epoch, accuracy in ((0, 0.1), (1, 0.5), (1, 0.4), (2, float("nan"))):
        writer.write(records.VAL, step=1, **val(epoch, accuracy, accuracy / 2))
    found = records.validations(path)
    assert {epoch: item.full_acc for epoch, item in found.items()} == {0: (0.1, 0.05), 1: (0.4, 0.2)}
    assert found[1].loss == 2.0
    assert records.validations(tmp_path / "nowhere") == {}


def test_the_best_epoch_is_one_that_is_there() -> None:
    found = {
        number: Validation(number, None, (value,), ()) for number, value in ((0, 0.2), (1, 0.9), (2, 0.5), (3, 0.5))
    }
    assert records.best(found, [0, 1, 2]) == 1
    assert records.best(found, [0, 2, 3]) == 3
    assert records.best(found, [7]) is None
