"""Rows for running jobs that share their GPUs in pairs. What each holds besides GPUs is a row of
its own."""

from typing import TYPE_CHECKING, Any

from ..scheduling.problem import Activity

if TYPE_CHECKING:
    from .model import Model


def kept_literal(model: "Model", activity: Activity) -> Any:
    """Return the literal of a running job that continues: its first alternative, or of a pair one
    more, without its partner; none for one that makes way for a window."""
    literals = model.chosen[activity.index]
    if activity.makes_way:
        return model.cp.new_constant(0)
    if activity.index not in model.problem.partner:
        return literals[0]
    kept = model.cp.new_bool_var(f"kept_{activity.index}")
    ways = zip(literals, activity.alternatives, strict=True)
    model.cp.add(sum(literal for literal, alternative in ways if alternative.fixed) == kept)
    return kept


def add_pair(model: "Model", a: Activity, b: Activity) -> None:
    """Add two jobs that share GPUs: both continue, one does, or none; then the GPUs are held until
    both have left."""
    both, neither = model.chosen[a.index][0], model.cp.new_bool_var(f"neither_{a.index}_{b.index}")
    model.cp.add(model.chosen[b.index][0] == both)
    cases = [
        (both, max(model.ticks(a.alternatives[0]), model.ticks(b.alternatives[0]))),
        (neither, max(model.ticks(a.hold), model.ticks(b.hold))),
    ]
    for activity, partner in ((a, b), (b, a)):
        for literal, alternative in zip(
            model.chosen[activity.index], activity.alternatives, strict=True
        ):
            if alternative.alone:
                cases.append((literal, max(model.ticks(alternative), model.ticks(partner.hold))))
    model.cp.add_exactly_one([literal for literal, _ in cases])
    for literal, length in cases:
        interval = model.cp.new_optional_fixed_size_interval_var(0, length, literal, "")
        for n, gpus in a.alternatives[0].rooms:
            model.load["row", model.problem.gpu_row[n]].append((interval, gpus))
            model.load["type", model.problem.node_types[n]].append((interval, gpus))
