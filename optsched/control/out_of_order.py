"""GPUs that cannot be used any more, on nodes that go on with the others."""

from .journal.state import Attempt, State


def idle_out(state: State, node: str, room: int) -> int:
    """Return how many of the `room` GPUs that no attempt holds there are not to be given away:
    those that are out and that no attempt is known to hold."""
    seen = state.nodes.get(node)
    if seen is None or not seen.out:
        return 0
    held = {gpu for attempt in state.live_attempts() for gpu in attempt.gpu_ids.get(node, ())}
    return max(0, min(room, len(set(seen.out) - held)))


def out_of(state: State, attempt: Attempt) -> tuple[str, ...]:
    """Return the GPUs that an attempt holds and that are out, each with its node."""
    return tuple(
        f"{gpu} on {node}"
        for node, ids in attempt.gpu_ids.items()
        for gpu in ids
        if node in state.nodes and gpu in state.nodes[node].out
    )
