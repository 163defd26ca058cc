"""The queue by groups of demand, against one sorted list."""

import random

from optsched_solvers.policies.parts.demand_queue import DemandQueue


def test_a_job_may_come_back_in_another_group_with_the_same_key() -> None:
    """Groups have no order of their own; what is left of the first entry must not ask for one."""
    queue = DemandQueue()
    first, second = {"gpus": 1}.keys(), {"gpus": 2}.keys()  # hashable things that cannot be sorted
    groups = [frozenset(first), object(), frozenset(second)]
    for group in groups:
        queue.push((0.0, 0), "a", group)
        assert queue.best() == ((0.0, 0), "a")
        queue.remove("a", group)
    assert queue.best() is None


def test_it_is_one_queue() -> None:
    """Random arrivals, starts and groups set aside: the best of the others, as by sorting."""
    rng = random.Random(7)
    groups = [object() for _ in range(4)]
    for _ in range(200):
        queue, waiting, aside = DemandQueue(), {}, set()
        for number in range(60):
            match rng.randrange(4):
                case 0 | 1:
                    name, group = f"j{number:02}", rng.choice(groups)
                    key = (float(rng.randrange(5)), number)
                    waiting[name] = (key, group)
                    queue.push(key, name, group)
                case 2:
                    if queue.best() is not None:
                        aside.add(queue.group())
                        queue.block()
                case _ if rng.random() < 0.3:
                    aside.clear()
                    queue.unblock()
                case _:
                    if queue.best() is not None:
                        waiting.pop(queue.best()[1])
                        queue.pop()
            entries = [(key, name) for name, (key, group) in waiting.items() if group not in aside]
            assert queue.best() == min(entries, default=None)
