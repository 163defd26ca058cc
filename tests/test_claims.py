"""What is measured for the documentation: read, compared, kept, and written where it is stated."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import claims
from benchmarks.reference import calls

CLAIM = claims.Claim(
    name="speed",
    what="How fast",
    command="python -c pass",
    keep=("size", "took_s", "done"),
    at_most={"took_s": 1.5},
    at_least={"done": 0.9},
    measured="`abc` on a machine",
    values=[{"size": 10, "took_s": 2.0, "done": 1.0}, {"size": 1000, "took_s": 0.0, "done": 0.5}],
)
FILE = """
[claims.speed]
what = "How fast"
command = "COMMAND"
keep = ["size", "took_s"]
at_most = {took_s = 1.5}
measured = "`abc` on a machine"
values = [
  {size = 1000, took_s = 2.0},
]

[claims.other]
what = "Something else"
command = "python -c pass"
keep = ["text"]
measured = "`abc` on a machine"
values = [
  {text = "a [1]"},
]

[tables.speed]
head = '''
| size | took |
|---|---|
'''
rows = [{claim = "speed", row = "| {0[size]:,} | {0[took_s]:.0%} |"}]

[tables.inline]
rows = [{claim = "other", row = "it says {0[text]}"}]
"""


def test_json_lines_are_records_and_other_lines_are_not() -> None:
    line = {"size": 1, "took_s": 2.5, "done": 1, "extra": True}
    output = f"hello\n{json.dumps(line)}\n{json.dumps({'size': 1})}\n"
    assert CLAIM.records(output) == [{"size": 1, "took_s": 2.5, "done": 1}]


def test_text_is_read_by_its_pattern() -> None:
    claim = claims.Claim(
        name="text",
        what="",
        command="",
        keep=("jobs", "took_s"),
        values=[],
        measured="",
        pattern=r"^(?P<jobs>[\d,]+) jobs in (?P<took_s>[\d.]+) s",
    )
    assert claim.records("x\n1,000 jobs in 7.50 s; more") == [{"jobs": 1000, "took_s": 7.5}]


@pytest.mark.parametrize(
    ("changed", "worse"),
    [
        ({}, 0),
        ({"took_s": 2.9, "done": 0.91}, 0),
        ({"took_s": 3.1}, 1),
        ({"done": 0.8}, 1),
        ({"took_s": 3.1, "done": 0.8}, 2),
        ({"took_s": 0.1, "done": 5.0}, 0),
        ({"size": 11}, 1),
    ],
)
def test_worse_is_beyond_what_may_vary(changed: dict[str, float], worse: int) -> None:
    first, second = CLAIM.values
    assert len(CLAIM.worse([{**first, **changed}, second])) == worse


def test_a_recorded_zero_stays_zero() -> None:
    first, second = CLAIM.values
    assert CLAIM.worse([first, {**second, "took_s": 1e-6}])


def test_missing_and_surplus_records_are_worse() -> None:
    assert CLAIM.worse(CLAIM.values[:1])
    assert CLAIM.worse([*CLAIM.values, CLAIM.values[0]])


def test_tables_are_written_between_their_marks_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    path = tmp_path / "claims.toml"
    path.write_text(FILE)
    page = tmp_path / "README.md"
    page.write_text(
        "a\n\n<!-- claims:speed -->old<!-- /claims -->\n\n"
        "b <!-- claims:inline -->x<!-- /claims -->, c"
    )
    assert claims.write_tables(claims.read(path), tmp_path) == ["README.md"]
    assert page.read_text() == (
        "a\n\n<!-- claims:speed -->\n| size | took |\n|---|---|\n| 1,000 | 200 % |\n\n"
        "*Measured: `abc` on a machine.*\n<!-- /claims -->\n\n"
        "b <!-- claims:inline -->it says a [1]<!-- /claims -->, c"
    )
    assert claims.write_tables(claims.read(path), tmp_path) == []


def test_new_values_replace_those_of_their_claim_alone(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(FILE)
    before = claims.read(path).claims
    records = [{"size": 1, "took_s": 0.5}, {"size": 2, "took_s": 1.5}]
    claims.record_values(before["speed"], records, "`def` on \\1 another", path)
    after = claims.read(path).claims
    assert after["other"] == before["other"]
    assert after["speed"].values == records
    assert after["speed"].measured == "`def` on \\1 another"


def test_an_empty_list_of_values_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    head, begin = FILE.split("\nvalues = [", 1)[0], FILE.split("\n]\n", 1)[1]
    path.write_text(f"{head}\nvalues = []\n{begin}")
    before = claims.read(path).claims
    [name] = [name for name, claim in before.items() if not claim.values]
    claims.record_values(before[name], [{"size": 1, "took_s": 0.5}], "now", path)
    after = claims.read(path).claims
    assert after[name].values == [{"size": 1, "took_s": 0.5}]
    assert {**after, name: None} == {**before, name: None}


def test_what_is_measured_is_not_measured_again(tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    script = tmp_path / "count.py"
    script.write_text(
        f"open({str(counter)!r}, 'a').write('x')\n"
        'print(\'{"size": 1, "took_s": 1, "done": 1}\')\n'
    )
    claim = claims.Claim(
        name="counted",
        what="",
        command=f"{sys.executable} {script}",
        keep=CLAIM.keep,
        values=[],
        measured="",
    )
    results = [claims.run(claim, tmp_path / "kept", again=False) for _ in range(3)]
    assert counter.read_text() == "x"
    assert results == [[{"size": 1, "took_s": 1, "done": 1}]] * 3
    claims.run(claim, tmp_path / "kept", again=True)
    assert counter.read_text() == "xx"


BOOK = claims.read()


@pytest.mark.parametrize(("took_s", "status"), [(2.9, 0), (3.1, 1)])
def test_a_check_fails_where_a_number_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_s: float, status: int
) -> None:
    script = tmp_path / "measure.py"
    script.write_text(f"print({json.dumps(json.dumps({'size': 1000, 'took_s': took_s}))})\n")
    claim = replace(CLAIM, command=f"python {script}", keep=("size", "took_s"), at_least={})
    book = claims.Book({"speed": replace(claim, values=[{"size": 1000, "took_s": 2.0}])}, {})
    monkeypatch.setattr(claims, "read", lambda: book)
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["claims", "--check"])
    assert claims.main() == status


def _called(times: int) -> None:
    for _ in range(times):
        math.sqrt(2.0)


def test_calls_are_counted_alike_each_time() -> None:
    counted = [calls(_called, n) for n in (100, 100, 200)]
    assert counted[0] == counted[1] < counted[2]


def test_every_table_is_quoted_and_every_mark_is_a_table() -> None:
    quoted = [
        mark[2] for page in claims.pages() for mark in claims.MARKED.finditer(page.read_text())
    ]
    assert sorted(quoted) == sorted(BOOK.tables)


def test_every_claim_is_quoted_or_checked_by_ci() -> None:
    quoted = {row.claim for _, rows in BOOK.tables.values() for row in rows}
    assert quoted <= set(BOOK.claims)
    assert {name for name, claim in BOOK.claims.items() if not claim.fast} <= quoted


@pytest.mark.parametrize("page", claims.pages(), ids=lambda page: page.name)
def test_pages_say_what_is_recorded(page: Path) -> None:
    assert BOOK.marked(page.read_text()) == page.read_text(), "run: make claims-tables"


@pytest.mark.parametrize("claim", BOOK.claims.values(), ids=BOOK.claims)
def test_recorded_values_have_the_fields_that_are_kept(claim: claims.Claim) -> None:
    assert claim.values
    assert all(list(record) == list(claim.keep) for record in claim.values)
    assert {*claim.at_most, *claim.at_least} <= set(claim.keep)
    assert not set(claim.at_most) & set(claim.at_least)
