"""R || sum C as an assignment: Horn, Operations Research 21, 1973; Bruno, Coffman and Sethi,
1974."""

import networkx as nx


def total_completion(processing: list[list[int]]) -> int:
    """Least sum of completion times; `processing[j][i]` is the time of job j on machine i.

    The k-th job from the end of a machine counts k times: a matching of jobs to (machine, k).
    Integers only, as network simplex needs them.
    """
    jobs = len(processing)
    graph = nx.DiGraph()
    graph.add_node("source", demand=-jobs)
    graph.add_node("sink", demand=jobs)
    for j, row in enumerate(processing):
        graph.add_edge("source", ("job", j), capacity=1, weight=0)
        for i, length in enumerate(row):
            for k in range(1, jobs + 1):
                graph.add_edge(("job", j), ("slot", i, k), capacity=1, weight=k * length)
                graph.add_edge(("slot", i, k), "sink", capacity=1, weight=0)
    return int(nx.min_cost_flow_cost(graph)) if jobs else 0
