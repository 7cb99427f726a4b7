"""Data goes to stdout, talk to stderr, and a hostile name cannot forge a row or colour the terminal."""

from __future__ import annotations

import io
import json

from eagle_console.output import Output


def make(json_mode: bool = False) -> tuple[Output, io.StringIO, io.StringIO]:
    data, talk = io.StringIO(), io.StringIO()
    return Output(json_mode, data, talk), data, talk


def test_a_table_is_aligned_in_cells_not_characters() -> None:
    out, data, _ = make()
    out.table(("SIZE", "NAME"), [("1 GB", "模型"), ("143 GB", "output_1k")], right=(0,))
    assert data.getvalue().splitlines() == ["  SIZE  NAME", "  1 GB  模型", "143 GB  output_1k"]


def test_wide_characters_push_the_next_column_by_their_width() -> None:
    out, data, _ = make()
    out.table(("A", "B"), [("模型", "x"), ("abcd", "y")])
    assert data.getvalue().splitlines() == ["A     B", "模型  x", "abcd  y"]


def test_hostile_names_stay_one_row_without_escapes() -> None:
    out, data, _ = make()
    out.table(("NAME",), [("a\nFAKE ROW\x1b[31m\x1b]0;title\x07[/red]‮",)])
    lines = data.getvalue().splitlines()
    assert len(lines) == 2
    assert "\x1b" not in data.getvalue() and "‮" not in data.getvalue() and "[/red]" in lines[1]


def test_json_is_one_ascii_document_and_tables_are_silent() -> None:
    out, data, talk = make(json_mode=True)
    out.table(("A",), [("x",)])
    out.line("for people")
    out.document({"name": "a\udcffb‮\x1b"})
    out.say("talk")
    assert json.loads(data.getvalue()) == {"name": "a\udcffb‮\x1b"}
    assert data.getvalue().isascii() and "\x1b" not in data.getvalue()
    assert talk.getvalue() == "talk\n"


def test_an_empty_table_has_its_headers() -> None:
    out, data, _ = make()
    out.table(("A", "B"), [])
    assert data.getvalue() == "A  B\n"
