"""The tables of a study for papers: LaTeX with booktabs."""

from collections.abc import Sequence

from .table import Cell, Row, instance_tables

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: "\\" + letter for letter in "&%$#_{}"},
}


def as_latex(rows: Sequence[Row]) -> str:
    r"""Return a tabular for each instance, methods as rows; the document needs
    \usepackage{booktabs}."""
    parts = [r"% needs \usepackage{booktabs}"]
    for table in instance_tables(rows):
        names = [column.name for column in table.columns]
        units = [f"({column.unit})" if column.unit else "" for column in table.columns]
        parts += [
            f"% {table.instance}",
            r"\begin{tabular}{" + "l" * table.words + "r" * len(names) + "}",
            r"\toprule",
            _line(["method", *table.parameters, *names]),
            _line([""] * table.words + units),
            r"\midrule",
        ]
        for row, words, cells in table.lines:
            if row.failed:
                numbers = [rf"\multicolumn{{{len(cells)}}}{{l}}{{failed}}"]
            else:
                numbers = [_number(cell) for cell in cells]
            parts.append(" & ".join([*map(escape, words), *numbers]) + r" \\")
        parts += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(parts)


def escape(text: str) -> str:
    """Return text with what LaTeX would take for a command made plain."""
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def _number(cell: Cell) -> str:
    """Return a mean with its interval, in bold where it is the best."""
    if cell.mean == "-":
        return "--"
    mean = rf"\mathbf{{{cell.mean}}}" if cell.best else cell.mean
    text = mean if not cell.half else rf"{mean} \pm {cell.half}"
    return f"${text.replace(',', '{,}')}$"  # else LaTeX sets the comma as punctuation


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
