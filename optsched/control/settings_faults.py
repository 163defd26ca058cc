"""What is wrong with a cluster.toml beyond the shape of its fields: references, names, plug-ins."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import InputError, OptschedError, perhaps
from ..files.faults import Fault
from ..hostlist import MAX_NODES
from ..model import Cluster, not_lowered
from ..objectives import wanted
from ..plugins import registry

if TYPE_CHECKING:
    from .settings import Settings, WindowSettings


def faults_of(settings: "Settings") -> Iterator[Fault]:
    """Yield what is wrong with settings whose fields are all in range."""
    yield from settings.notices.faults()
    for i, window in enumerate(settings.windows):
        yield from _window_faults(f"windows[{i}]", window, settings)
    names = []
    for i, part in enumerate(settings.nodes):
        try:
            names += [node.name for node in part.nodes()]
        except ValueError as error:
            yield Fault(f"nodes[{i}].name", str(error), "write names as gpu-[0-3,7]")
    if len(names) > MAX_NODES:
        yield Fault("nodes", f"there are more than {MAX_NODES}", "correct the range")
    tenants = [tenant.name for tenant in settings.tenants]
    tiers = [tier.name for tier in settings.tiers]
    for what, every in (("nodes", names), ("tenants", tenants), ("tiers", tiers)):
        for name in (name for name, count in Counter(every).items() if count > 1):
            yield Fault(what, f"{name!r} appears more than once", "rename or remove one")
    yield from _label_faults(settings, tenants)
    yield from _tier_faults(settings, tenants)
    for what in ("every", "length", "budget", "runs"):
        if not getattr(settings, what) > 0:
            yield Fault(what, "must be longer than 0 s", "write a length as 90s, 5m or 2h")
    yield from _plugin_faults(settings)


def _window_faults(path: str, window: "WindowSettings", settings: "Settings") -> Iterator[Fault]:
    try:
        window.node_names()
    except ValueError as error:
        yield Fault(f"{path}.nodes", str(error), "write names as gpu-[0-3,7]")
    if (window.start is None) == (window.every is None):
        remedy = 'give start = 2026-08-01T18:00:00, or every = "sunday" and at = "18:00"'
        yield Fault(path, "it must say either when it is, or how often", remedy)
    elif window.start is not None and not abs(window.start.year - 1970) < 250:
        yield Fault(f"{path}.start", "is not a date of these centuries", "correct the year")
    if not 0 < window.length <= 366 * 86400:
        yield Fault(f"{path}.length", "must be longer than 0 s, a year at most", 'write "4h"')
    for name in window.resources:
        if name not in settings.resources:
            yield Fault(f"{path}.resources", f"{name!r} is not in resources", "add it there")
    every = [tenant.tenant() for tenant in settings.tenants]
    for name, problem, remedy in not_lowered(window.quotas, every):
        yield Fault(f"{path}.quotas.{name}", problem, remedy)
    for name in window.tenants:
        if name not in {tenant.name for tenant in settings.tenants}:
            yield Fault(f"{path}.tenants", f"{name!r} is not in tenants", "add it, or leave it out")


def _plugin_faults(settings: "Settings") -> Iterator[Fault]:
    try:
        objective = wanted(settings.objective, Cluster(**settings.rates(0.0)))
    except InputError as error:
        yield Fault("objective", str(error), "see `optsched list objectives`")
    else:
        if settings.policy is not None:
            try:
                registry.policy(settings.policy, objective, settings.policy_options)
            except OptschedError as error:
                yield Fault("policy", str(error), "see `optsched list policies`")
        elif settings.policy_options:
            yield Fault("policy_options", "there is no policy for them", "name a policy")
    groups: dict[str, registry.Group] = {"solver": "rounds", "executor": "executors"}
    for what, group in groups.items():
        name, known = getattr(settings, what), registry.names(group)
        if name not in known:
            remedy = f"choose from {', '.join(known)}"
            yield Fault(what, f"{name!r} is unknown{perhaps(name, known)}", remedy)


def _label_faults(settings: "Settings", tenants: list[str]) -> Iterator[Fault]:
    for label, limits in settings.limits.labels.items():
        for name in limits.tenants:
            if name not in tenants:
                says = f"there is no tenant {name!r}{perhaps(name, tenants)}"
                path = f"limits.labels.{label}.tenants"
                yield Fault(path, says, "name one of [[tenants]]")


def _tier_faults(settings: "Settings", tenants: list[str]) -> Iterator[Fault]:
    counts = Counter(tier.priority for tier in settings.tiers)
    for i, tier in enumerate(settings.tiers):
        if counts[tier.priority] > 1:
            says = f"{tier.priority} is the priority of more than one tier"
            yield Fault(f"tiers[{i}].priority", says, "give each its own")
        for name in tier.tenants:
            if name not in tenants:
                says = f"there is no tenant {name!r}{perhaps(name, tenants)}"
                yield Fault(f"tiers[{i}].tenants", says, "name one of [[tenants]]")
