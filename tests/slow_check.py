"""A second opinion on plans: every rule again, on a grid of half seconds, without any code of the
verifier.

All times, set-ups and checkpoints must be multiples of half a second. It answers yes or no, for
small instances.
"""

import math

import numpy as np

from optsched import Instance, Job, Mode, Node, Plan, Running, Segment, Tenant

STEP_S = 0.5
EPS = 1e-6


class BrokenPlanError(Exception):
    """The plan breaks a rule."""


def need(holds: bool, why: str) -> None:
    if not holds:
        raise BrokenPlanError(why)


def is_valid(instance: Instance, plan: Plan) -> bool:
    return why_not(instance, plan) is None


def why_not(instance: Instance, plan: Plan) -> str | None:
    try:
        need(
            sorted(one.id for one in plan.jobs) == sorted(job.id for job in instance.jobs),
            "one entry a job",
        )
        rows = {
            one.id: cells(instance, job_named(instance, one.id), one.segments) for one in plan.jobs
        }
        for job in instance.jobs:
            for before in job.after:
                need(min(rows[job.id]) > max(rows[before]), "precedence")
        for i in sorted({i for row in rows.values() for i in row}):
            check_instant(instance, {name: row[i] for name, row in rows.items() if i in row})
        used: dict[str, float] = {}
        for row in rows.values():
            for name, amount in row[max(row)].mode.budgets.items():
                used[name] = used.get(name, 0) + amount
        for name, amount in used.items():
            need(amount <= instance.cluster.budgets[name] + EPS, "budget")
        fetched = fetching(instance, rows)
        for job in instance.jobs:
            slow = {i: slower(instance, job, rows, i) for i in rows[job.id]}
            check_work(instance, job, rows[job.id], slow, fetched[job.id])
    except BrokenPlanError as broken:
        return str(broken)
    return None


def fetching(instance: Instance, rows: dict[str, dict[int, Segment]]) -> dict[str, set[int]]:
    """The half seconds in which each job starts and fetches its model."""
    cache: dict[str, list[Job]] = {
        node.name: [] for node in instance.cluster.nodes
    }  # a job stands for its model
    found: dict[str, set[int]] = {name: set() for name in rows}

    def enter(job: Job, segment: Segment | Running) -> None:
        for slot in segment.placement if job.profile.fetch_s and job.profile.name else ():
            size = node_named(instance, slot.node).model_cache_gib
            if size is not None and job.profile.model_gib <= size:
                others = [one for one in cache[slot.node] if one.profile.name != job.profile.name]
                while sum(one.profile.model_gib for one in others) + job.profile.model_gib > size:
                    del others[0]
                cache[slot.node] = [*others, job]

    order = {job.id: n for n, job in enumerate(instance.jobs)}
    for run in sorted(instance.running, key=lambda one: (one.started_s, order[one.job])):
        enter(job_named(instance, run.job), run)
    goes_on = {
        run.job
        for run in instance.running
        for first in [rows[run.job].get(round(instance.now_s / STEP_S))]
        if first
        and key(first) == key(Segment(start_s=0, end_s=1, mode=run.mode, placement=run.placement))
    }
    for i in sorted({i for row in rows.values() for i in row}):
        starting = [
            job
            for job in instance.jobs
            for row in [rows[job.id]]
            if i in row
            and not (i - 1 in row and key(row[i - 1]) == key(row[i]))
            and not (i == min(row) and job.id in goes_on)
        ]
        for job in starting:
            slots = rows[job.id][i].placement
            if not slots or not all(
                job.profile.name in [one.profile.name for one in cache[s.node]] for s in slots
            ):
                found[job.id].add(i)
        for job in starting:
            enter(job, rows[job.id][i])
    return found


def job_named(instance: Instance, name: str) -> Job:
    return next(job for job in instance.jobs if job.id == name)


def quotas_over(instance: Instance, name: str | None) -> list[Tenant]:
    """The tenants whose quotas limit the jobs of a tenant."""
    if name is None:
        return []
    own = next(tenant for tenant in instance.tenants if tenant.name == name)
    return [own] * (own.gpu_quota is not None) + quotas_over(instance, own.parent)


def node_named(instance: Instance, name: str) -> Node:
    return next(node for node in instance.cluster.nodes if node.name == name)


def cells(instance: Instance, job: Job, segments: tuple[Segment, ...]) -> dict[int, Segment]:
    """What the job holds in each half second."""
    row: dict[int, Segment] = {}
    last = -math.inf
    need(bool(segments), "no segments")
    run = next((entry for entry in instance.running if entry.job == job.id), None)
    kept = run is not None  # and goes on as it was, up to its first stop
    held = run and key(Segment(start_s=0, end_s=1, mode=run.mode, placement=run.placement))
    for segment in segments:
        first, end = round(segment.start_s / STEP_S), round(segment.end_s / STEP_S)
        assert (
            abs(first * STEP_S - segment.start_s) < EPS and abs(end * STEP_S - segment.end_s) < EPS
        )
        need(last <= first < end, "order")
        need(segment.start_s >= instance.now_s and segment.start_s >= job.submit_s, "too early")
        kept = kept and first in (last, round(instance.now_s / STEP_S)) and key(segment) == held
        check_mode(instance, job, segment, kept)
        row.update({i: segment for i in range(first, end)})
        last = end
    return row


def check_mode(instance: Instance, job: Job, segment: Segment, kept: bool) -> None:
    mode = segment.mode
    need(
        mode.clock_mhz is None
        or (not job.modes and mode.gpus > 0 and mode.clock_mhz in job.profile.clocks),
        "clock",
    )
    for gib, known in (
        (mode.memory_gib_per_gpu, job.profile.memory_rates),
        (mode.gpu_memory_gib, job.profile.gpu_memory_rates),
    ):
        need(gib is None or (not job.modes and mode.gpus > 0 and gib in known), "memory to take")
    if job.modes:
        need(
            (mode.duration_s, mode.gpus, mode.cpus_per_gpu, mode.cpus)
            in [
                (m.duration_s, m.gpus, m.cpus_per_gpu, m.cpus)
                for m in job.modes
                if m.gpu_type in (None, mode.gpu_type)
                and m.budgets == mode.budgets
                and m.resources == mode.resources
            ],
            "listed mode",
        )
    else:
        sizes = (
            [job.gpus] if isinstance(job.gpus, int) else list(range(job.gpus.min, job.gpus.max + 1))
        )
        need(mode.gpus in sizes and mode.duration_s is None, "size")
        if not kept and mode.gpus:
            table, cores = job.profile.gpus, job.profile.cpus_per_gpu
            need(
                mode.gpus in (sizes[0], sizes[-1], 1, 2, 4, 8, 16) or mode.gpus in table,
                "count to start with",
            )
            need(mode.cpus_per_gpu in (cores or {0: 1.0}), "cores to start with")
        need(mode.resources == use(instance, job, segment) and mode.budgets == job.budgets, "use")
        need(mode.gpus > 0 or mode.cpus == job.cpus, "cpus")
    nodes = [node_named(instance, slot.node) for slot in segment.placement]
    need(len({node.name for node in nodes}) == len(nodes), "node twice")
    if mode.gpus == 0:
        need(len(nodes) == (1 if mode.cpus or job.memory_gib else 0), "nodes of a CPU-only job")
        need(all(slot.gpus == 0 and slot.cpus == mode.cpus for slot in segment.placement), "cores")
        return
    need(sum(slot.gpus for slot in segment.placement) == mode.gpus, "gang")
    if mode.gpus and job.max_nodes:
        need(job.min_nodes <= len(segment.placement) <= job.max_nodes, "nodes")
        need(
            all(slot.gpus * len(segment.placement) == mode.gpus for slot in segment.placement),
            "nodes",
        )
    need(len({node.gpu_type for node in nodes}) == 1, "one type")
    for slot, node in zip(segment.placement, nodes, strict=True):
        need(slot.gpus > 0 and slot.cpus == slot.gpus * mode.cpus_per_gpu, "slot")
        need(mode.gpu_type in (None, node.gpu_type), "type")
        need(
            node.gpu_memory_gib is None or takes_gib(job, mode)[0] <= node.gpu_memory_gib,
            "GPU memory",
        )


def takes_gib(job: Job, mode: Mode) -> tuple[float, float]:
    """The memory of each GPU, and that of the host beside it, that a job takes."""
    of_each, beside = mode.gpu_memory_gib, mode.memory_gib_per_gpu
    return (
        job.profile.gpu_memory_gib if of_each is None else of_each,
        job.profile.memory_gib_per_gpu if beside is None else beside,
    )


def use(instance: Instance, job: Job, segment: Segment) -> dict[str, float]:
    """What a job that lists no modes uses of the cluster's resources, its GPUs' power included
    where it counts."""
    found = dict(job.resources)
    if "power_w" in instance.cluster.resources and segment.placement:
        gpu_type = node_named(instance, segment.placement[0].node).gpu_type
        watts = segment.mode.gpus * job.profile.power_w.get(gpu_type or "", 0.0)
        if segment.mode.clock_mhz is not None:
            watts *= job.profile.clocks[segment.mode.clock_mhz].power
        if watts:
            found["power_w"] = found.get("power_w", 0.0) + watts
    return found


def check_instant(instance: Instance, held: dict[str, Segment]) -> None:
    """Nobody holds more than there is; who shares, shares with somebody who says so too."""
    for name, segment in held.items():
        partner = segment.mode.share_with
        if partner is not None:
            need(
                partner != name and partner in held and held[partner].mode.share_with == name,
                "partner",
            )
            need(
                {(s.node, s.gpus) for s in held[partner].placement}
                == {(s.node, s.gpus) for s in segment.placement},
                "same GPUs",
            )
            need(held[partner].mode.clock_mhz == segment.mode.clock_mhz, "same clock")
    for node in instance.cluster.nodes:
        gpus = cores = 0
        memory = 0.0
        for name, segment in held.items():
            job = job_named(instance, name)
            for slot in segment.placement:
                if slot.node != node.name:
                    continue
                partner = segment.mode.share_with
                gpus += slot.gpus if partner is None or name < partner else 0
                cores += slot.cpus
                memory += (
                    slot.gpus * takes_gib(job, segment.mode)[1] if slot.gpus else job.memory_gib
                )
                if partner is not None and node.gpu_memory_gib is not None:
                    other = takes_gib(job_named(instance, partner), held[partner].mode)
                    both = takes_gib(job, segment.mode)[0] + other[0]
                    need(both <= node.gpu_memory_gib + EPS, "GPU memory of a pair")
        need(gpus <= node.gpus, "GPUs")
        need(node.cpus is None or cores <= node.cpus, "cores of a node")
        need(node.memory_gib is None or memory <= node.memory_gib + EPS, "memory")
    for name, capacity in instance.cluster.resources.items():
        need(
            sum(s.mode.resources.get(name, 0) for s in held.values()) <= capacity + EPS, "resource"
        )
    top = [own for own in instance.tenants if quotas_over(instance, own.name) == [own]]
    of_all = 0
    for tenant in instance.tenants:
        if tenant.gpu_quota is not None:
            mine = [
                s.mode.gpus
                for name, s in held.items()
                if tenant in quotas_over(instance, job_named(instance, name).tenant)
            ]
            need(sum(mine) <= tenant.gpu_quota + tenant.borrow_gpus, "quota")
            of_all += sum(mine) if tenant in top else 0
    if any(own.borrow_gpus for own in top):
        need(of_all <= sum(own.gpu_quota or 0 for own in top), "all quotas")
    for rack, gbps in instance.cluster.rack_uplink_gbps.items():
        traffic = widest = 0.0
        for name, segment in held.items():
            touched = [node_named(instance, slot.node).rack for slot in segment.placement]
            leaves = len(touched) > 1 and (len(set(touched)) > 1 or touched[0] is None)
            mine = (
                job_named(instance, name).profile.network_gbps
                if leaves and rack in touched
                else 0.0
            )
            traffic, widest = traffic + mine, max(widest, mine)
        need(
            (traffic if instance.cluster.uplinks == "reserved" else widest) <= gbps + EPS, "uplink"
        )


def slower(instance: Instance, job: Job, rows: dict[str, dict[int, Segment]], i: int) -> float:
    """By how much contention slows the job down in one half second."""
    uplinks: dict[str, float] = {}
    memory: dict[str, float] = {}
    for name, row in rows.items():
        if i not in row:
            continue
        profile = job_named(instance, name).profile
        nodes = [node_named(instance, slot.node) for slot in row[i].placement]
        racks = {node.rack for node in nodes}
        spread = len(nodes) > 1 and (len(racks) > 1 or None in racks)
        for rack in racks if spread and instance.cluster.uplinks == "shared" else ():
            if rack in instance.cluster.rack_uplink_gbps:
                uplinks[rack] = uplinks.get(rack, 0.0) + profile.network_gbps
                if name == job.id and profile.network_gbps:
                    uplinks[f"own {rack}"] = 1.0
        for node, slot in zip(nodes, row[i].placement, strict=True):
            amount = profile.memory_gbps * (slot.gpus if row[i].mode.gpus else 1)
            memory[node.name] = memory.get(node.name, 0.0) + amount
            if name == job.id and amount:
                memory[f"own {node.name}"] = 1.0
    worst_uplink = max(
        [
            1.0,
            *(
                uplinks[rack] / gbps
                for rack, gbps in instance.cluster.rack_uplink_gbps.items()
                if f"own {rack}" in uplinks
            ),
        ]
    )
    worst_memory = max(
        [
            1.0,
            *(
                memory[node.name] / node.memory_gbps
                for node in instance.cluster.nodes
                if f"own {node.name}" in memory and node.memory_gbps is not None
            ),
        ]
    )
    return (
        1
        + job.profile.network_duty * (worst_uplink - 1)
        + job.profile.memory_duty * (worst_memory - 1)
    )


def curve(table: dict[int, float], at: int) -> float:
    if not table:
        return 1.0
    known = sorted({0: 0.0, **table}.items())
    return float(np.interp(at, [x for x, _ in known], [y for _, y in known]))


def speed(instance: Instance, job: Job, mode: Mode, nodes: list[str]) -> float:
    """DESIGN 5: the product of the tables."""
    profile = job.profile
    found = 1.0
    if mode.duration_s is not None:
        found = (job.duration_s or job.modes[0].duration_s or math.nan) / mode.duration_s
    elif mode.gpus:
        gpu_type = node_named(instance, nodes[0]).gpu_type
        if profile.rate and gpu_type is not None:
            found *= profile.rate.get(gpu_type, 0.0)
        if not isinstance(job.gpus, int) and not profile.gpus:
            found *= mode.gpus / job.gpus.max
        else:
            found *= curve(profile.gpus, mode.gpus)
        by_cores = curve(profile.cpus_per_gpu, mode.cpus_per_gpu)
        if mode.memory_gib_per_gpu is not None:
            by_cores = min(by_cores, profile.memory_rates[mode.memory_gib_per_gpu])
        found *= by_cores
        if mode.gpu_memory_gib is not None:
            found *= profile.gpu_memory_rates[mode.gpu_memory_gib]
        if mode.clock_mhz is not None:
            found *= profile.clocks[mode.clock_mhz].rate
    if profile.locality is not None and (mode.gpus or mode.duration_s is not None):
        racks = [node_named(instance, name).rack for name in nodes]
        by_distance = [profile.locality.node, profile.locality.rack, profile.locality.cluster]
        distance = (
            0 if len(nodes) < 2 else 1 if racks[0] is not None and len(set(racks)) == 1 else 2
        )
        found *= [rate for rate in by_distance[: distance + 1] if rate is not None][-1]
    if mode.share_with is not None:
        mine, other = profile.sharing, job_named(instance, mode.share_with).profile
        if mine is None:
            found = 0.0
        elif other.name in mine.partners:
            found *= mine.partners[other.name]
        elif mine.duty is None or other.sharing is None or other.sharing.duty is None:
            found = 0.0
        else:
            found *= min(1.0, 1.0 / (mine.duty + other.sharing.duty))
    return found


def key(segment: Segment) -> tuple[object, ...]:
    """What must stay the same for a job to go on."""
    mode = segment.mode
    return (
        frozenset(segment.placement),
        mode.gpus,
        mode.cpus_per_gpu,
        mode.cpus,
        mode.duration_s,
        mode.clock_mhz,
        mode.memory_gib_per_gpu,
        mode.gpu_memory_gib,
        tuple(sorted(mode.resources.items())),
        tuple(sorted(mode.budgets.items())),
    )


def check_work(
    instance: Instance, job: Job, row: dict[int, Segment], slow: dict[int, float], fetched: set[int]
) -> None:
    """Walk through time: set-up first, then work, saving before a stop; at the very end nothing is
    left to do. `slow` says by how much the job is slowed down in each half second."""
    profile, now = job.profile, round(instance.now_s / STEP_S)
    whole = job.duration_s if job.duration_s is not None else job.modes[0].duration_s
    assert whole is not None
    run = next((entry for entry in instance.running if entry.job == job.id), None)
    old = next((entry for entry in instance.suspended if entry.job == job.id), None)
    left = run.remaining_s if run else old.remaining_s if old else whole
    past = stops = run.preemptions if run else old.preemptions if old else 0
    on_demand = profile.checkpoint_every_s is None
    save = round(profile.checkpoint_s / STEP_S) if on_demand else 0

    def length(start: int) -> int:
        n = 0
        while start + n in row and key(row[start + n]) == key(row[start]):
            n += 1
        return n

    log: list[float] = []  # reference work of each productive step since the last checkpoint

    def lose() -> float:
        """Work lost by a stop now."""
        if on_demand or profile.checkpoint_every_s == 0:
            return 0.0
        assert profile.checkpoint_every_s is not None
        kept = int(len(log) * STEP_S / profile.checkpoint_every_s + EPS) * round(
            profile.checkpoint_every_s / STEP_S
        )
        return sum(log[kept:])

    started, setup, at = 0.0, 0, min(row)
    going_on = False
    if run is not None:
        rate_now = speed(instance, job, run.mode, [slot.node for slot in run.placement])
        since = (
            run.started_s
            if run.last_checkpoint_s is None
            else max(run.last_checkpoint_s, run.started_s)
        )
        log = [] if run.setup_s else [rate_now * STEP_S] * round((instance.now_s - since) / STEP_S)
        held = Segment(start_s=0, end_s=1, mode=run.mode, placement=run.placement)
        stays = at == now and key(row[now]) == key(held)
        only_saves = stays and length(now) <= save and now + length(now) <= max(row)
        if stays and not only_saves:
            going_on, started, setup = True, run.started_s, round(run.setup_s / STEP_S)
        else:
            need(job.preemptible, "not preemptible")
            need(instance.now_s - run.started_s >= job.min_run_s, "minimum run")
            need((length(now) if stays else 0) >= save, "checkpoint")
            left = min(whole, left + lose())
            stops += 1
            if stays:
                at = min(i for i in row if i >= now + length(now))
    while True:
        steps = length(at)
        if not going_on:
            log, started = [], at * STEP_S
            restarts = run is not None or old is not None or at > min(row)
            setup = round((profile.startup_s + (profile.restore_s if restarts else 0.0)) / STEP_S)
            setup += round(profile.fetch_s / STEP_S) if at in fetched else 0
        going_on = False
        final = at + steps > max(row)
        saving = 0 if final else save
        need(setup + saving <= steps, "too short")
        for i in range(at, at + steps):
            rate = speed(instance, job, row[i].mode, [slot.node for slot in row[i].placement])
            need(rate > 0, "no progress")
            if at + setup <= i < at + steps - saving:
                left -= rate * STEP_S / slow[i]
                log.append(rate * STEP_S / slow[i])
            need(left > EPS or i == max(row), "already done")
        if final:
            break
        need(job.preemptible, "not preemptible")
        need((at + steps - save) * STEP_S - started >= job.min_run_s, "minimum run")
        left = min(whole, left + lose())
        stops += 1
        at = min(i for i in row if i >= at + steps)
    need(abs(left) < EPS, "work")
    need(job.max_preemptions is None or stops <= max(job.max_preemptions, past), "preemptions")
