"""Needs narrowed to some nodes."""

from dataclasses import replace

from optsched.driver.layout import Need

MOST_KEPT = 5000


class Within:
    """The same needs on some nodes only; one object for equal ones, by which a room remembers."""

    def __init__(self) -> None:
        self._known: dict[tuple[Need, int], Need] = {}

    def __call__(self, need: Need, nodes: int) -> Need:
        """Return the need on these nodes, a mask."""
        if len(self._known) > MOST_KEPT:
            self._known.clear()
        if (need, nodes) not in self._known:
            self._known[need, nodes] = replace(need, nodes=need.nodes & nodes)
        return self._known[need, nodes]

    def __reduce__(self) -> tuple[type["Within"], tuple[()]]:
        """Known objects are those of one room: a copy begins anew."""
        return Within, ()
