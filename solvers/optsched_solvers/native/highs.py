"""HiGHS through MathOpt, with the whole program handed over as arrays."""

import datetime
import math

import numpy as np
from numpy.typing import NDArray

from optsched.frozen import record
from optsched.round.exact import Program

Floats = NDArray[np.float64]

LARGEST = 1e4
"""What the largest value is scaled to."""
NOTHING = 1e-300
"""No scale makes anything of values below this."""


@record
class Outcome:
    """`x` is the best solution found or None, `bound` the proven limit on the value (offset
    included)."""

    x: Floats | None
    value: float
    bound: float
    proved: bool
    infeasible: bool


def maximise(
    program: Program, time_limit_s: float, *, relative_gap: float = 0.0, absolute_gap: float = 0.0
) -> Outcome:
    """Solve a program."""
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    columns, rows = len(program.value), len(program.low)
    scale = _scale(program)
    proto = model_pb2.ModelProto()
    proto.variables.ids.extend(range(columns))
    proto.variables.lower_bounds.extend(np.zeros(columns))
    proto.variables.upper_bounds.extend(program.upper)
    proto.variables.integers.extend(np.ones(columns, dtype=bool))
    proto.objective.maximize = True
    worth = np.flatnonzero(program.value)
    proto.objective.linear_coefficients.ids.extend(worth)
    proto.objective.linear_coefficients.values.extend(program.value[worth] * scale)
    proto.linear_constraints.ids.extend(range(rows))
    proto.linear_constraints.lower_bounds.extend(program.low)
    proto.linear_constraints.upper_bounds.extend(program.high)
    matrix = proto.linear_constraint_matrix
    matrix.row_ids.extend(program.row)
    matrix.column_ids.extend(program.column)
    matrix.coefficients.extend(program.amount)
    model = mathopt.Model.from_model_proto(proto)
    variables = list(model.variables())
    parameters = mathopt.SolveParameters(
        time_limit=datetime.timedelta(seconds=max(0.001, time_limit_s)),
        relative_gap_tolerance=relative_gap,
        absolute_gap_tolerance=absolute_gap * scale,
        random_seed=0,
    )
    result = mathopt.solve(model, mathopt.SolverType.HIGHS, params=parameters)
    reason = result.termination.reason
    infeasible = reason == mathopt.TerminationReason.INFEASIBLE
    bounds = result.termination.objective_bounds
    x, value = None, -math.inf
    if result.has_primal_feasible_solution():
        x = np.array(result.variable_values(variables))
        value = program.offset + float(np.sum(program.value * np.rint(x)))
    bound = program.offset + bounds.dual_bound / scale
    return Outcome(x, value, bound, reason == mathopt.TerminationReason.OPTIMAL, infeasible)


def _scale(program: Program) -> float:
    """Return the scale of the values. HiGHS takes what is better by less than 1e-6 for no better,
    whatever the size of the values. A power of two loses no digit."""
    largest = float(np.abs(program.value).max(initial=0.0))
    return 2.0 ** round(math.log2(LARGEST / max(largest, NOTHING))) if largest > 0 else 1.0
