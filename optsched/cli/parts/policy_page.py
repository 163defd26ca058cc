"""The catalogue of policies as a page: docs/policies.md."""

from collections.abc import Sequence

from ...plugins.options import DeclaredOption
from ...plugins.policy import Source
from ...plugins.registry import Listed

HEAD = """# Policies

Every policy runs in the same simulator on the same instances (`optsched simulate INSTANCE --policy NAME`), is also a
solver (`optsched solve INSTANCE --solver NAME`), and every plan it makes is verified. It drives [real nodes](live.md),
too (`policy = "NAME"` in `cluster.toml`). This page is what `optsched list policies --markdown` prints.

How sure it is that a policy is what was published: **verified** against public code or text, **derived** by arithmetic
from a stated model, **reconstructed** where only an abstract or a secondary text describes it. Names that end in
`-style` are reconstructions; those that end in `-myopic` optimise the reward of a learning system exactly one step
ahead and are not that system.

`needs` are the fields of the [instance file](formats.md) that a policy reads beyond what all do (GPUs, run time,
submission); where a job does not have them the policy treats it as if they played no role. Options are set by
`--option NAME=VALUE`; a length of time is written as 90s, 5m, 2h or 1h30m, a list with commas.

Rules that let small jobs pass may leave a gang waiting for as long as small jobs come. `optsched`, `srsf`, `srtf` and
`las` keep a place for one that has waited too long ([mathematics](mathematics.md), section 9); all others do as
published, also where that starves gangs (`sjf`, `wspt`, `qssf`, `gittins`, `xion` and others).

"""  # noqa: E501


def page(policies: Sequence[Listed]) -> str:
    """Return the page as Markdown: a table, then a section for each policy."""
    lines = [HEAD + "| policy | idea | year | needs | sureness |", "|---|---|--:|---|---|"]
    for policy in policies:
        source = policy.source
        needs = ", ".join(f"`{name}`" for name in source.needs) if source else ""
        year, sureness = (str(source.year), source.sureness) if source else ("", "")
        linked = source or policy.options
        name = f"[`{policy.name}`](#{policy.name})" if linked else f"`{policy.name}`"
        lines.append(f"| {name} | {_cell(policy.title)} | {year} | {needs} | {sureness} |")
    for policy in policies:
        if policy.source is not None or policy.options:
            lines += ["", *_section(policy)]
    return "\n".join(lines) + "\n"


OPTIONS_HEAD = """# Options of solvers, executors and formats

What each may be given, as `optsched list NAME` and `optsched list KIND --markdown` show it; those of policies are in
[policies.md](policies.md). Those of solvers are set by `--option NAME=VALUE`, those of an executor in a table of its name in
`cluster.toml`, those of a format by flags of `optsched import`. A length of time is written as 90s, 5m, 2h or 1h30m.

"""  # noqa: E501


def options_page(kind: str, plug_ins: Sequence[Listed]) -> str:
    """Return the plug-ins of a kind and their options as Markdown."""
    lines = [f"## {kind.capitalize()}"]
    for plug_in in plug_ins:
        named = options_table(plug_in.options, flags=kind == "formats")
        lines += [
            "",
            f"### `{plug_in.name}`",
            "",
            f"{plug_in.title[0].upper()}{plug_in.title[1:]}.",
            *named,
        ]
    return "\n".join(lines) + "\n"


def _section(plug_in: Listed) -> list[str]:
    lines = [f"## {plug_in.name}", "", f"{plug_in.title[0].upper()}{plug_in.title[1:]}."]
    if plug_in.source is not None:
        parts = {
            "Verified": plug_in.source.verified,
            "Derived": plug_in.source.derived,
            "Reconstructed": plug_in.source.reconstructed,
            "Published result": plug_in.source.published,
        }
        stated = [f"- {name}: {text[0].upper()}{text[1:]}." for name, text in parts.items() if text]
        lines += ["", f"- Cite: {_linked(plug_in.source)}", *stated]
    return [*lines, *options_table(plug_in.options)]


def options_table(options: Sequence[DeclaredOption], *, flags: bool = False) -> list[str]:
    """Return the lines of a Markdown table of options, an empty line first; none without any."""
    rows = [
        f"| `{option.flag if flags else option.name}` | "
        f"{'a flag |' if flags and option.switches else _value(option)} | {_cell(option.meaning)} |"
        for option in options
    ]
    return (
        ["", "| option | value | default | meaning |", "|---|---|---|---|", *rows] if rows else []
    )


def _value(option: DeclaredOption) -> str:
    return f"{_cell(option.expected)} | {_cell(option.default)}"


def _linked(source: Source) -> str:
    where = f"{source.authors}. *{source.title}*. {source.venue}, {source.year}."
    if source.link is None:
        return where
    kind, _, name = source.link.partition(":")
    address = {"doi": f"https://doi.org/{name}", "arXiv": f"https://arxiv.org/abs/{name}"}.get(
        kind, source.link
    )
    return f"{where} [{source.link}]({address})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
