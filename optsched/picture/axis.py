"""Axes of a picture: the unit of time, and the rows of each node with their label."""

from collections.abc import Callable

from ..frozen import record
from ..model import Instance
from .lanes import Row


@record
class TimeUnit:
    """Unit of the time axis: its plural, and its length in seconds."""

    name: str
    seconds: float


def time_unit(horizon_s: float) -> TimeUnit:
    """Return the unit in which a horizon is a number people grasp: 3 to 180 of them or so."""
    for name, seconds, most_s in (
        ("seconds", 1.0, 240.0),
        ("minutes", 60.0, 4 * 3600.0),
        ("hours", 3600.0, 96 * 3600.0),
    ):
        if horizon_s < most_s:
            return TimeUnit(name, seconds)
    return TimeUnit("days", 86400.0)


@record
class NodeGroup:
    """Adjacent rows of one node: its GPUs, or its lanes without GPUs; `position` counts the
    groups."""

    name: str
    what: str
    first: int
    rows: int
    position: int

    def labelled(self, row_px: float) -> bool:
        """Return whether there is room for this group's label; where there is not, every k-th group
        has one."""
        every = max(1, round(12.5 / max(0.1, self.rows * row_px) + 0.49))
        return self.position % every == 0

    def text(self, row_px: float, escape: Callable[[str], str]) -> str:
        """Return the name, and what the node has where there is room for a second line."""
        name = escape(self.name if len(self.name) <= 16 else self.name[:7] + "…" + self.name[-8:])
        two_lines = self.rows * row_px >= 30 and self.what
        return f"<b>{name}</b><br>{escape(self.what)}" if two_lines else name


def node_groups(instance: Instance, rows: tuple[Row, ...]) -> list[NodeGroup]:
    """Return rows of the same node and kind, in order."""
    groups: list[NodeGroup] = []
    start = 0
    for i, row in enumerate(rows):
        following = rows[i + 1] if i + 1 < len(rows) else None
        if following is not None and (following.node, following.gpu is None) == (
            row.node,
            row.gpu is None,
        ):
            continue
        count = i + 1 - start
        if row.node is None:
            name, what = "no node", "cluster-wide"
        elif row.gpu is None:
            name, what = (
                (f"{row.node} CPU", "")
                if instance.cluster.node[row.node].gpus
                else (row.node, "CPU only")
            )
        else:
            gpu_type = instance.cluster.node[row.node].gpu_type or "GPU"
            name, what = row.node, f"{count} x {gpu_type}"
        groups.append(NodeGroup(name, what, start, count, len(groups)))
        start = i + 1
    return groups
