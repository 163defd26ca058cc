"""Which of the ways a gang takes: RLTune's program, with a fragmentation term that counts.

The published program minimises alpha sum f_n + beta (free_max - free_min) - gamma sum y_n over
binary x (one for each way), f and y (one for each node), with free_n the GPUs that the chosen way
leaves free on node n, free_n >= G_next y_n, and f_n meant to say that node n is fragmented (0 <
free_n < G). Its rows, free_n >= 1 - M (1 - f_n) and free_n <= G - 1 + M (1 - f_n), only keep f_n at
0 on a node that is not fragmented; f is minimised, so that 0 is always allowed and always taken:
the term is inert. Here f_n is 1 exactly where the node is fragmented, for which the other direction
is missing: free_n <= M f_n + G b_n and free_n >= G b_n with a binary b_n ("all free").

What a way leaves free is known beforehand, and then so are the best f and y: y_n is 1 exactly where
free_n >= G_next. The minimum over the ways of the cost below is therefore the optimum of the
program.
"""

from collections.abc import Mapping, Sequence

from .ways import Assignment

ALPHA, BETA, GAMMA = 1.0, 0.3, 0.5
"""Weights of fragmented nodes, imbalance, and nodes on which the next job fits."""


def cost(free: Mapping[int, int], assignment: Assignment, per_node: int, next_gpus: int) -> float:
    """Return what the program makes of a way; `free` are the nodes with free GPUs before it."""
    after = dict(free)
    for node, taken in assignment:
        after[node] -= taken
    fragmented = sum(0 < left < per_node for left in after.values())
    fits_next = sum(left >= next_gpus for left in after.values())
    return (
        ALPHA * fragmented + BETA * (max(after.values()) - min(after.values())) - GAMMA * fits_next
    )


def choose(
    free: Mapping[int, int], ways: Sequence[Assignment], per_node: int, next_gpus: int
) -> list[int]:
    """The ways by cost, the best first; of equal ones the first."""
    return sorted(range(len(ways)), key=lambda w: (cost(free, ways[w], per_node, next_gpus), w))
