"""The tables of a study for papers: LaTeX with booktabs."""

from collections.abc import Sequence

from .table import COLUMNS, Row, number, parameter_names, used_columns

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{one: "\\" + one for one in "&%$#_{}"},
}


def as_latex(found: Sequence[Row]) -> str:
    r"""A tabular for each instance, methods as rows; the document needs \usepackage{booktabs}."""
    parts = [r"% needs \usepackage{booktabs}"]
    for instance in dict.fromkeys(row.instance for row in found):
        here = [row for row in found if row.instance == instance]
        shown = used_columns(here)
        extra = parameter_names(row.parameters for row in here)
        names = [COLUMNS[i].name for i in shown]
        units = [f"({COLUMNS[i].unit})" if COLUMNS[i].unit else "" for i in shown]
        parts += [
            f"% {instance}",
            r"\begin{tabular}{" + "l" * (1 + len(extra)) + "r" * len(shown) + "}",
            r"\toprule",
            _line(["method", *extra, *names]),
            _line([""] * (1 + len(extra)) + units),
            r"\midrule",
        ]
        for row in here:
            own = dict(row.parameters)
            first = [row.method, *(str(own.get(name, "")) for name in extra)]
            if row.failed:
                parts.append(
                    " & ".join(map(escape, first))
                    + rf" & \multicolumn{{{len(shown)}}}{{l}}{{failed}} \\"
                )
            else:
                parts.append(
                    _line([*first, *(number(row.means[i], COLUMNS[i].digits) for i in shown)])
                )
        parts += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(parts)


def escape(text: str) -> str:
    """Return text with what LaTeX would take for a command made plain."""
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
