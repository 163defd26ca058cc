"""Hostlist expressions: `gpu-[0-3,7]` for five nodes, `rack[1-2]n[01-16]` for thirty-two."""

import re
from collections.abc import Iterator
from dataclasses import replace

from .model import MOST_OF_A_NAME, Node

MAX_NODES = 200_000


def expand_hostlist(expression: str) -> list[str]:
    """Return the names that an expression stands for; `n[08-11]` keeps its zeros. ValueError for a
    malformed one."""
    names = [""]
    for part in re.split(r"(\[[^\]]*\])", expression):
        if part.startswith("["):
            spans = part[1:-1].split(",")
            ends = [number for span in spans for number in _numbers(span, expression)]
        elif "[" in part or "]" in part:
            raise ValueError(f"{expression!r} has a bracket without its partner")
        else:
            ends = [part]
        if max(map(len, names)) + max(map(len, ends)) > MOST_OF_A_NAME:
            raise ValueError(f"a node has a name of more than {MOST_OF_A_NAME} characters")
        if len(names) * len(ends) > MAX_NODES:
            raise ValueError(f"{expression!r} stands for more than {MAX_NODES} nodes")
        names = [name + end for name in names for end in ends]
    if names == [""]:
        raise ValueError("the name is empty")
    if len(set(names)) < len(names):
        raise ValueError(f"{expression!r} names a node twice")
    return names


def _numbers(span: str, expression: str) -> list[str]:
    bounds = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", span.strip())
    if bounds is None:
        raise ValueError(f"range {span!r} in {expression!r} is malformed")
    first, last, width = int(bounds[1]), int(bounds[2] or bounds[1]), len(bounds[1])
    if last < first:
        raise ValueError(f"range {span!r} in {expression!r} runs backwards")
    if last - first >= MAX_NODES:
        raise ValueError(f"{expression!r} stands for more than {MAX_NODES} nodes")
    return [f"{i:0{width}d}" for i in range(first, last + 1)]


def fold_nodes(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Yield runs of equal nodes numbered one after the other, as one node with a hostlist name."""
    i = 0
    while i < len(nodes):
        match = re.fullmatch(r"(.*?)([0-9]{1,9})", nodes[i].name, re.DOTALL)
        last = i
        if match is not None:
            head, digits = match[1], match[2]
            template = replace(nodes[i], name="")
            while last + 1 < len(nodes):
                number = f"{int(digits) + last + 1 - i:0{len(digits)}d}"
                if (
                    len(number) > 9
                    or nodes[last + 1].name != head + number
                    or replace(nodes[last + 1], name="") != template
                ):
                    break
                last += 1
        if last > i and match is not None:
            end = nodes[last].name[len(match[1]) :]
            yield replace(nodes[i], name=f"{match[1]}[{match[2]}-{end}]")
        else:
            yield nodes[i]
        i = last + 1
