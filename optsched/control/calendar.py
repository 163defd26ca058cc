"""Windows of the live cluster: those that administrators set, those that the cluster manager has
reserved, and those of cluster.toml."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, time, timedelta

from ..model import Tenant, Window, not_lowered
from .settings import WEEKDAYS, WindowSettings

AHEAD = 4
"""So many occurrences of a recurring window are known."""


def windows_ahead(
    known: Iterable[Window],
    recurring: Iterable[WindowSettings],
    nodes: Collection[str],
    tenants: Collection[Tenant],
    resources: Collection[str],
    now_s: float,
) -> tuple[Window, ...]:
    """Return the windows that are not over, of the `nodes`, `resources` and quotas that there are,
    in order of time."""
    windows, names = [*known], {tenant.name for tenant in tenants}
    for stated in recurring:
        windows += occurrences(stated, nodes, now_s)
    there = (
        replace(
            window,
            nodes=tuple(name for name in window.nodes if name in nodes),
            tenants=tuple(name for name in window.tenants if name in names),
            resources={name: most for name, most in window.resources.items() if name in resources},
            quotas=_lowered(window, tenants),
        )
        for window in windows
        if window.to_s > now_s
    )
    return tuple(
        sorted((w for w in there if w.nodes or w.lowers), key=lambda w: (w.from_s, w.name, w.nodes))
    )


def _lowered(window: Window, tenants: Iterable[Tenant]) -> dict[str, int]:
    """Return the quotas that a window lowers: settings may have changed since it was set."""
    others = {name for name, *_ in not_lowered(window.quotas, tenants)} if window.quotas else ()
    return {name: most for name, most in window.quotas.items() if name not in others}


def occurrences(stated: WindowSettings, nodes: Collection[str], now_s: float) -> list[Window]:
    """Return the next times of a window of cluster.toml, all of one that does not recur."""
    length_s = stated.length
    windows: list[Window] = []
    for from_s in _begins(stated, now_s - length_s):
        if from_s + length_s > now_s:
            lowers = stated.resources or stated.quotas
            own = Window(
                nodes=stated.node_names() or (() if lowers else tuple(nodes)),
                from_s=from_s,
                to_s=from_s + length_s,
                name=stated.name,
                tenants=stated.tenants,
                users=stated.users,
                resources=stated.resources,
                quotas=stated.quotas,
            )
            windows.append(own)
        if len(windows) == AHEAD:
            break
    return windows


def _begins(stated: WindowSettings, after_s: float) -> Iterator[float]:
    """Yield when a window begins, by the clock of this host: a day that has two such times has the
    first."""
    if stated.start is not None:
        yield stated.start.timestamp()
        return
    first = datetime.fromtimestamp(after_s).date()
    at = time.fromisoformat(stated.at)
    for days in range(7 * (AHEAD + 1) + 2):
        day = first + timedelta(days=days)
        if stated.every in ("day", WEEKDAYS[day.weekday()]):
            yield datetime.combine(day, at).timestamp()
