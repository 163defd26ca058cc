"""The offline page of a study: figures, what reproduces them, tables, and every run with its
picture."""

import re
from collections.abc import Sequence
from html import escape

from ...duration import human
from ...picture.html import div, document, folding, row, tiles
from ...picture.interactive import figure
from ...picture.panels import Chart
from ..design import Study
from ..fallbacks import fallbacks
from ..results import Result
from ..summary import summaries, summary_table
from ..table import instance_tables, level, number, rows
from .compare import MEAN_JCT, P99_JCT, VALUE, Comparison, Entry

MOST_RUNS = 5000
GAP_PERCENT = level("gap", times=100)
CODE, WORDS = r"`([^`]+)`", r"<code>\1</code>"


def page(
    study: Study,
    results: Sequence[Result],
    comparison: Comparison,
    charts: Sequence[Chart],
    foot: Sequence[str],
    commands: Sequence[str],
    gantts: dict[str, str],
    files_of: dict[str, list[str]],
    untested: str | None = None,
) -> str:
    """Return the whole document, which needs no network. `gantts` has the link of each run that has
    a picture, by address; `files_of` the names of the files of each figure, by its key; `untested`
    says why differences are not tested."""
    parts = [re.sub(CODE, WORDS, escape(part)) for part in study.introduction.split("\n\n") if part]
    about = "".join(f"<p class=about>{part}</p>" for part in parts)
    sections = [
        _figure(chart, k == 0, foot, files_of.get(chart.key, [])) for k, chart in enumerate(charts)
    ]
    if untested is not None:
        sections.append(
            '<section class="picture" id="untested"><h2>Differences over seeds</h2>'
            f"<p>{escape(untested)}</p></section>"
        )
    places = [(chart.key, chart.title) for chart in charts]
    places += [("numbers", "Numbers"), ("runs", "Runs"), ("commands", "Commands")]
    links = "".join(f'<a href="#{key}">{escape(name)}</a>' for key, name in places)
    body = f"""{tiles(_tiles(study, results))}
<nav>{links}</nav>
{"".join(sections)}
{_numbers(results)}
{_runs(comparison, gantts)}
<details id="commands" open><summary>Commands</summary><pre>{escape(chr(10).join(commands))}</pre>
{_foot(foot)}</details>"""
    return document(study.title, f"<h1>{escape(study.title)}</h1>{about}", body, MORE_STYLE)


def _tiles(study: Study, results: Sequence[Result]) -> list[tuple[str, str, str, str]]:
    failed = sum(result.answer is None for result in results)
    cpu_s = sum(result.cpu_s for result in results)
    groups = list(dict.fromkeys(instance.group or instance.name for instance in study.instances))
    some = ", ".join(groups[:4]) + (", ..." if len(groups) > 4 else "")
    return [
        ("runs", f"{len(results):,}", f"{failed:,} failed", ""),
        ("instances", f"{len(study.instances):,}", some, ""),
        ("methods", f"{len(study.all_methods):,}", "", ""),
        ("seeds", f"{len(study.seeds):,}", "", ""),
        ("processor time", human(cpu_s), "of all runs", ""),
    ]


def _figure(chart: Chart, first: bool, foot: Sequence[str], names: Sequence[str]) -> str:
    html = div(figure(chart), f"figure-{chart.key}", first)
    links = " ".join(f'<a href="figures/{name}">{name.rpartition(".")[2]}</a>' for name in names)
    return (
        f'<section class="picture" id="{chart.key}"><h2>{escape(chart.title)} <span '
        f"class=links>{links}</span></h2>"
        f"<p>{escape(chart.note)}</p>{html}{_small_table(chart.table)}{_foot(foot)}</section>"
    )


def _foot(foot: Sequence[str]) -> str:
    return f'<p class="foot">{"<br>".join(escape(line) for line in foot)}</p>'


def _small_table(lines: Sequence[Sequence[str]]) -> str:
    return _scrolled([_row(cells, tag="th" if k == 0 else "td") for k, cells in enumerate(lines)])


def _row(cells: Sequence[str], words: int = 1, tag: str = "td") -> str:
    """Return a row whose first cells are words, all others numbers."""
    return row([escape(cell) for cell in cells], range(words, len(cells)), tag)


def _numbers(results: Sequence[Result]) -> str:
    """Return the tables of table.md: summaries of groups, and the methods over each instance of
    none."""
    parts = []
    summed = summaries(results)
    for group in dict.fromkeys(entry.group for entry in summed):
        here_too = [entry for entry in summed if entry.group == group]
        heads, cells_of, words = summary_table(here_too)
        wrong = "".join(
            f"<p><em>Error: {escape(entry.method)}, {escape(said)}</em></p>"
            for entry in here_too
            for said in entry.wrong
        )
        lines = [_row(heads, words, "th"), *(_row(cells, words) for cells in cells_of)]
        parts.append(folding(group, _scrolled(lines) + wrong, " open"))
    answered = "".join(f"<li>{escape(said.replace('`', ''))}</li>" for said in fallbacks(results))
    if answered:
        parts.append(folding("Answers of heuristics", f"<ul>{answered}</ul>", " open"))
    for table in instance_tables([line for line in rows(results) if line.group is None]):
        lines = [_row(table.heads, table.words, "th")]
        for line, given, cells in table.lines:
            failed = "; ".join(line.failed)
            lines.append(
                _failed_row(given, len(cells), failed)
                if failed
                else _row([*given, *(cell.text for cell in cells)], table.words)
            )
        parts.append(folding(table.instance, _scrolled(lines)))
    return f'<h2 id="numbers">Numbers: means over seeds ± 95 %</h2>{"".join(parts)}'


def _scrolled(lines: Sequence[str]) -> str:
    return f"<div class=scroll><table>{''.join(lines)}</table></div>" if lines else ""


def _failed_row(words: Sequence[str], columns: int, reason: str) -> str:
    """Return a row whose numbers are replaced by the reason of the failure."""
    head = _row(words, len(words)).removesuffix("</tr>")
    return f'{head}<td colspan="{columns}"><em>failed: {escape(reason)}</em></td></tr>'


def _runs(comparison: Comparison, gantts: dict[str, str]) -> str:
    heads = (
        "instance",
        "method",
        "seed",
        "mean JCT h",
        "p99 JCT h",
        "objective",
        "gap %",
        "processor s",
        "plan",
    )
    lines = [
        _row(heads, 3, "th"),
        *(_run(entry, gantts) for entry in comparison.entries[:MOST_RUNS]),
    ]
    more = len(comparison.entries) - MOST_RUNS
    note = f"<p>and {more:,} more, in runs.csv</p>" if more > 0 else ""
    return folding("Runs", _scrolled(lines) + note, ' id="runs"')


def _run(entry: Entry, gantts: dict[str, str]) -> str:
    names = [entry.case, entry.method, "" if entry.seed is None else str(entry.seed)]
    if not entry.ok:
        return _failed_row(names, 6, entry.result.reason or "")
    values: list[tuple[float | None, int]] = [
        (MEAN_JCT(entry.result), 2),
        (P99_JCT(entry.result), 1),
        (VALUE(entry.result), 4),
        (GAP_PERCENT(entry.result), 1),
        (entry.result.cpu_s, 1),
    ]
    link = gantts.get(entry.result.address)
    picture = f'<a href="{link}">Gantt</a>' if link else ""
    cells = [*names, *(number(value, digits) for value, digits in values)]
    return _row(cells, 3).removesuffix("</tr>") + f"<td class=n>{picture}</td></tr>"


MORE_STYLE = """
h2{font-size:15px;font-weight:600;margin:0 0 4px 8px} h2#numbers{margin:22px 0 8px}
.about{max-width:110ch;color:#1f2430} .picture p{margin:4px 8px;max-width:150ch;color:#667085;font-size:12.5px}
.foot{color:#98a2b3!important;font-size:11px!important;border-top:1px solid #e4e7ec;
padding:6px 0 4px;max-width:none!important;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:6px 18px;margin-bottom:14px} a{color:#1f5f9e} .links{font-size:12px;font-weight:400}
.scroll{max-height:560px;overflow:auto} td,th{white-space:nowrap} pre{overflow:auto;font-size:12px}
"""  # noqa: E501
