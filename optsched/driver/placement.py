"""What is free on each node and of what all share, and best-fit gang placement in it."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf, nextafter

from ..frozen import entity
from ..model import Placement
from ..physics import TIME_TOLERANCE_S
from ..physics.modes import WIDEST_FIRST
from .layout import Layout, Need

MANY_FREED = 50
"""So many nodes are looked at one by one for what has come free there; beyond it all are."""


@entity
class Aside:
    """What `Room.set_aside` took of each node, of its memory and of what all share."""

    nodes: list[tuple[str, int, int]]
    memory_gib: list[tuple[int, float]]
    shared: list[tuple[int, float]]


class Room:
    """What is free: GPUs, cores and memory by node, and what is `left` of the shared rows of the
    table of capacity. `now_s` is the instant at which it is looked at, for windows, and `left_s`
    that of the amounts in `left`.

    Nodes of one GPU type are kept in a mask for each count of free GPUs, so that the fullest node
    that still fits is found without a scan, and the first of equals is always the one that comes
    first in the cluster.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        table = layout.table
        self.left = [row.capacity for row in table.rows[: table.shared]]
        self.domains = layout.domains.copy()
        self.now_s = self.left_s = -inf
        self._set_nodes(list(layout.gpus), list(layout.cpus), list(layout.memory))

    def _set_nodes(self, gpus: list[int], cpus: list[int], memory: list[float]) -> None:
        layout = self.layout
        self._gpus, self._cpus, self._memory = gpus, cpus, memory
        self._nodes = [[0] * (most + 1) for most in layout.most_gpus]
        self.pool_gpus = [0] * len(layout.most_gpus)
        self._rack_gpus = [
            [0] * (len(layout.racks) + 1) for _ in layout.most_gpus
        ]  # the last: nodes without a rack
        self._forget()
        for i, count in enumerate(gpus):
            self._nodes[layout.pool[i]][count] |= 1 << i
            self.pool_gpus[layout.pool[i]] += count
            self._rack_gpus[layout.pool[i]][layout.rack[i]] += count

    def copy(self) -> "Room":
        """Return the same room, to try things in."""
        new = self._bare()
        new.left = list(self.left)
        new.domains = self.domains.copy()
        new._gpus, new._cpus, new._memory = list(self._gpus), list(self._cpus), list(self._memory)
        new._nodes = [list(masks) for masks in self._nodes]
        new.pool_gpus = list(self.pool_gpus)
        new._rack_gpus = [list(counts) for counts in self._rack_gpus]
        new._forget()
        return new

    def _forget(self) -> None:
        """Forget what did not fit: `_freed` are nodes on which something came
        free, in the order in which it did, `_failed` says how many of these a need had seen when it
        last did not fit."""
        self.changes = 0
        self._freed: list[int] = []
        self._failed: dict[Need, int] = {}

    def overlap(self, other: "Room") -> "Room":
        """Return what is free in both: of everything the smaller amount. O(nodes)."""
        new = self._bare()
        new.left = list(map(min, self.left, other.left))
        new.domains = self.domains.overlap(other.domains)
        new._set_nodes(
            list(map(min, self._gpus, other._gpus)),
            list(map(min, self._cpus, other._cpus)),
            list(map(min, self._memory, other._memory)),
        )
        return new

    def meet(self, first: "Room", second: "Room", placement: Placement) -> None:
        """Fill this room with what is free in both, on the nodes of `placement` and of what all
        share; O(nodes of it)."""
        self.changes += 1
        self.left = list(map(min, first.left, second.left))
        self.domains = first.domains.overlap(second.domains)
        for slot in placement:
            i = self.layout.order[slot.node]
            self._freed.append(i)
            self._set_gpus(i, min(first._gpus[i], second._gpus[i]))
            self._cpus[i] = min(first._cpus[i], second._cpus[i])
            self._memory[i] = min(first._memory[i], second._memory[i])

    def _bare(self) -> "Room":
        """Return a room of the same layout, to be filled in."""
        new = object.__new__(Room)
        new.layout, new.now_s, new.left_s = self.layout, self.now_s, self.left_s
        return new

    # --------------------------------------------------------------------------------------------
    # bookkeeping

    def take(self, need: Need, placement: Placement, *, with_gpus: bool = True) -> None:
        """Hold what `need` takes on `placement`; `with_gpus` false where its sharing partner holds
        the GPUs."""
        self._change(need, placement, -1, with_gpus)
        for row, amount in need.budgets:
            self.left[row] -= amount

    def give(
        self, need: Need, placement: Placement, *, finished: bool, with_gpus: bool = True
    ) -> None:
        """Free it again. A job that has finished has used up its budgets; one that will come back
        may choose anew."""
        self._change(need, placement, 1, with_gpus)
        if not finished:
            for row, amount in need.budgets:
                self.left[row] += amount

    def _change(self, need: Need, placement: Placement, sign: int, with_gpus: bool) -> None:
        layout = self.layout
        order = layout.order
        holds_memory = need.memory_gib_per_gpu or need.memory_gib
        self.changes += 1
        for slot in placement:
            i, gpus, cpus = order[slot.node], slot.gpus, slot.cpus
            if sign > 0:
                self._freed.append(i)
            if gpus and with_gpus:
                self._set_gpus(i, self._gpus[i] + sign * gpus)
            if cpus:
                self._cpus[i] += sign * cpus
            if holds_memory:
                self._memory[i] += sign * _memory_gib(need, gpus)
        for row, amount in need.shared:
            self.left[row] += sign * amount
        if need.ties is not None:
            self.domains.take(need.ties, [order[slot.node] for slot in placement], -sign)

    def has_cores(self, held: Placement, wanted: Placement) -> bool:
        """Return whether what one placement takes of cores beyond another on its nodes is free."""
        order = self.layout.order
        return all(
            new.cpus - old.cpus <= max(0, self._cpus[order[new.node]])
            for old, new in zip(held, wanted, strict=True)
        )

    def change_cores(self, held: Placement, wanted: Placement) -> None:
        """Hold the cores of one placement in place of those of another on its nodes."""
        self.changes += 1
        for old, new in zip(held, wanted, strict=True):
            i = self.layout.order[new.node]
            self._cpus[i] += old.cpus - new.cpus
            self._freed.append(i)

    def _set_gpus(self, i: int, after: int) -> None:
        before = self._gpus[i]
        assert after >= 0, f"node {self.layout.names[i]} would hold more GPUs than it has"
        pool, rack, bit = self.layout.spot[i]
        masks = self._nodes[pool]
        masks[before] ^= bit
        masks[after] ^= bit
        self._gpus[i] = after
        more = after - before
        self.pool_gpus[pool] += more
        self._rack_gpus[pool][rack] += more

    def seize(self, node: str, gpus: int, cpus: int) -> tuple[int, int]:
        """Take GPUs and cores of a node as far as they are free; return how many there were."""
        i = self.layout.order[node]
        gpus, cpus = min(gpus, self._gpus[i]), max(0, min(cpus, self._cpus[i]))
        self.changes += 1
        if gpus:
            self._set_gpus(i, self._gpus[i] - gpus)
        self._cpus[i] -= cpus
        return gpus, cpus

    def let_go(self, node: str, gpus: int, cpus: int) -> None:
        """Free what was seized."""
        i = self.layout.order[node]
        self.changes += 1
        self._freed.append(i)
        if gpus:
            self._set_gpus(i, self._gpus[i] + gpus)
        self._cpus[i] += cpus

    def set_aside(self, need: Need, placement: Placement) -> Aside:
        """Take what `need` takes on `placement` as far as it is free; return what that was, for
        `take_back`."""
        order = self.layout.order
        aside = Aside(
            nodes=[(slot.node, *self.seize(slot.node, slot.gpus, slot.cpus)) for slot in placement],
            memory_gib=[],
            shared=[],
        )
        if need.memory_gib_per_gpu or need.memory_gib:
            for slot in placement:
                i = order[slot.node]
                gib = max(0.0, min(_memory_gib(need, slot.gpus), self._memory[i]))
                aside.memory_gib.append((i, gib))
                self._memory[i] -= gib
        for row, amount in need.shared:
            taken = max(0, min(amount, self.left[row]))
            aside.shared.append((row, taken))
            self.left[row] -= taken
        return aside

    def take_back(self, aside: Aside) -> None:
        """Free what was set aside."""
        for node, gpus, cpus in aside.nodes:
            self.let_go(node, gpus, cpus)
        for i, gib in aside.memory_gib:
            self._memory[i] += gib
        for row, amount in aside.shared:
            self.left[row] += amount

    def lose(self, node: str) -> None:
        """Take an empty node away."""
        i = self.layout.order[node]
        self.changes += 1
        self._set_gpus(i, 0)
        self._cpus[i], self._memory[i] = 0, -inf

    def regain(self, node: str) -> None:
        """Give a node that was lost back, empty."""
        i = self.layout.order[node]
        self.changes += 1
        self._freed.append(i)
        self._set_gpus(i, self.layout.gpus[i])
        self._cpus[i], self._memory[i] = self.layout.cpus[i], self.layout.memory[i]

    def gpus_on(self, node: str) -> int:
        """Return the free GPUs of a node."""
        return self._gpus[self.layout.order[node]]

    def cpus_on(self, node: str) -> int:
        """Return the free cores of a node; `UNLIMITED` or near it where they are not modelled."""
        return self._cpus[self.layout.order[node]]

    def memory_gib_on(self, node: str) -> float:
        """Return the free host memory of a node, with what is allowed for rounding; infinite where
        it is not modelled."""
        i = self.layout.order[node]
        return self._memory[i] + self.layout.memory_slack[i]

    def nodes_with_gpus(self) -> list[str]:
        """Return nodes with a free GPU, in the order of the cluster."""
        return [name for name, gpus in zip(self.layout.names, self._gpus, strict=True) if gpus]

    def usable_of_any_type(self, need: Need, node: str) -> int:
        """Return the free GPUs of a node, whatever their type, that have the cores and memory
        beside them that `need` takes; 0 where a window bars it."""
        i = self.layout.order[node]
        return 0 if need.windows and self._barred(need) >> i & 1 else self._usable(need, i)

    def usable(self, need: Need, node: str) -> int:
        """Return the GPUs of a node that a gang could take, with their cores and memory; 0 where
        the node cannot serve it."""
        i = self.layout.order[node]
        return self._usable(need, i) if self.able(need) >> i & 1 else 0

    def able(self, need: Need) -> int:
        """Return a mask of the nodes that can serve the need and on which it may start now, however
        much of them is free: it meets no window there that it cannot be done by."""
        return need.nodes & ~self._barred(need) if need.windows else need.nodes

    def _barred(self, need: Need) -> int:
        """Return the nodes with a window in the time for which the need must be able to stay."""
        until_s, nodes = self.now_s + need.stay_s - TIME_TOLERANCE_S, 0
        for from_s, to_s, where in need.windows:
            if from_s >= until_s and from_s > self.now_s + TIME_TOLERANCE_S:
                break
            if self.now_s < to_s:
                nodes |= where
        return nodes

    def holds(self, need: Need, placement: Placement) -> bool:
        """Return whether all that `need` takes on `placement` is free, and it may be split like
        that."""
        if need.counts is not None and (
            len(placement) not in need.counts or len({slot.gpus for slot in placement}) > 1
        ):
            return False
        barred = self._barred(need) if need.windows else 0
        for slot in placement:
            i = self.layout.order[slot.node]
            if barred >> i & 1:
                return False
            if slot.gpus > self._gpus[i] or slot.cpus > self._cpus[i]:
                return False
            if _memory_gib(need, slot.gpus) > self._memory[i] + self.layout.memory_slack[i]:
                return False
        if need.ties is not None and not self.domains.hold(
            need.ties, [self.layout.order[slot.node] for slot in placement]
        ):
            return False
        return self._shared(need)

    def within_budgets(self, need: Need) -> bool:
        """Return whether the budgets allow it and leave every other job the least it needs."""
        return self._enough(need.budgets)

    def _enough(self, demand: tuple[tuple[int, float], ...]) -> bool:
        left, slack = self.left, self.layout.slack
        return all(amount <= left[row] + slack[row] for row, amount in demand)

    def _shared(self, need: Need) -> bool:
        if self.layout.dips and not self._lasts(need):
            return False
        return self._enough(need.shared) and self._enough(need.budgets)

    def _lasts(self, need: Need) -> bool:
        """Return whether what all share suffices also in the windows that the need would meet, if
        nobody else leaves."""
        layout = self.layout
        until_s = self.now_s + max(need.stay_s, layout.notice_s) - TIME_TOLERANCE_S
        return all(
            amount
            <= self.left[row]
            + layout.slack[row]
            + layout.dip(row, self.left_s, nextafter(self.left_s, inf))
            - layout.dip(row, self.now_s, max(until_s, nextafter(self.now_s, inf)))
            for row, amount in need.shared
            if row in layout.dips
        )

    def set_time(self, now_s: float) -> None:
        """Look at it at an instant, with what there is of each row then."""
        layout, before_s = self.layout, self.left_s
        self.now_s = self.left_s = now_s
        for row in layout.dips:
            before = layout.dip(row, before_s, nextafter(before_s, inf)) if before_s > -inf else 0.0
            self.left[row] += before - layout.dip(row, now_s, nextafter(now_s, inf))

    # ----------------------------------------------------------------------------------------------
    # best fit

    def is_short(self, need: Need) -> bool:
        """Return whether no node, or no rack, has the free GPUs of a gang that must be on one,
        whatever else it needs."""
        pool, gpus = need.pool, need.gpus
        if need.spread == "node":
            return not any(self._nodes[pool][gpus:])
        return need.spread == "rack" and gpus > max(self._rack_gpus[pool])

    def place(self, need: Need) -> Placement | None:
        """Return the best fit: the one node with the fewest GPUs left over, else the fewest nodes
        that the spread allows.

        Of equal nodes or racks the first in the cluster. Where uplinks have a limit, a gang with
        traffic is spread over racks only if it fits into none. None where it does not fit.
        """
        if (need.shared or need.budgets) and not self._shared(need):
            return None
        if not need.needs_node:
            return ()
        if need.windows and (barred := self._barred(need) & need.nodes):
            narrow = replace(need, nodes=need.nodes & ~barred, windows=())
            placement = self.place(narrow)
            self._failed.pop(narrow, None)  # windows end as well as begin
            return placement
        if need.ties is not None:
            closed, widest = self.domains.closed(need.ties), self.domains.widest(need.ties)
            if closed or widest != "cluster":
                spread = max(widest, need.spread, key=WIDEST_FIRST.index)
                narrow = replace(need, nodes=need.nodes & ~closed, spread=spread)
                placement = self._place(narrow)
                self._failed.pop(narrow, None)  # others may come as well as go
                return placement
        return self._place(need)

    def _place(self, need: Need) -> Placement | None:
        gpus = need.gpus
        if gpus == 0:
            node = self._one_for_cpus(need)
            return None if node is None else self.layout.alone(node, 0, need.cpus)
        if self.pool_gpus[need.pool] < gpus:
            return None
        freed = self._freed_since_it_failed(need) if need in self._failed else None
        nodes = need.nodes
        if freed is not None:
            bit, mask = self.layout.bit, 0
            for i in freed:
                mask |= bit[i]
            nodes &= mask
        if need.counts is not None and 1 not in need.counts:
            nodes = 0
        node = self._one(need, gpus, nodes) if nodes else None
        if node is not None:
            return self.layout.alone(node, gpus, gpus * need.cpus_per_gpu)
        parts = None if need.spread == "node" else self._on_several(need, freed)
        if parts is None:
            self._failed[need] = len(self._freed)
            return None
        alone, cores = self.layout.alone, need.cpus_per_gpu
        return tuple([alone(i, count, count * cores)[0] for i, count in sorted(parts)])

    def _on_several(self, need: Need, freed: set[int] | None) -> list[tuple[int, int]] | None:
        """Return the nodes of a gang that fits on none alone."""
        if need.spread == "cluster" and need.ties is None:
            parts = self._several(need, need.nodes)
        else:
            parts = self._in_one_rack(need, freed)
            if parts is None and need.spread == "cluster":
                parts = self._several(
                    need, need.nodes & ~self.domains.behind_slow_uplinks(need.ties)
                )
        return parts

    def _freed_since_it_failed(self, need: Need) -> set[int] | None:
        """Return the only nodes on which a need that did not fit may now fit alone, and whose racks
        may hold it; None where there are too many of them."""
        seen = self._failed[need]
        return None if len(self._freed) - seen > MANY_FREED else {*self._freed[seen:]}

    def _in_one_rack(self, need: Need, freed: set[int] | None) -> list[tuple[int, int]] | None:
        """Return the fewest nodes of one rack, the first of equal racks."""
        best: list[tuple[int, int]] | None = None
        racks, rack, free = self.layout.racks, self.layout.rack, self._rack_gpus[need.pool]
        least = -(-need.gpus // max(1, self.layout.most_gpus[need.pool]))
        among = range(len(racks)) if freed is None else sorted({rack[i] for i in freed} - {-1})
        for r in among:
            if free[r] < need.gpus:
                continue
            parts = self._several(need, need.nodes & racks[r])
            if parts is not None and (best is None or len(parts) < len(best)):
                best = parts
                if len(parts) == least:
                    break
        return best

    def _one(self, need: Need, gpus: int, nodes: int) -> int | None:
        """Return the first of the nodes with the fewest free GPUs that still has `gpus`, with their
        cores and memory."""
        masks = self._nodes[need.pool]
        if not need.cpus_per_gpu and not need.memory_gib_per_gpu:
            for count in range(gpus, len(masks)):
                if here := masks[count] & nodes:
                    return (here & -here).bit_length() - 1
            return None
        cpus, memory = gpus * need.cpus_per_gpu, gpus * need.memory_gib_per_gpu
        for count in range(gpus, len(masks)):
            if here := masks[count] & nodes:
                i = self._first(here, cpus, memory)
                if i is not None:
                    return i
        return None

    def _one_for_cpus(self, need: Need) -> int | None:
        """Return the first node with cores and memory among those with the fewest free GPUs, to
        keep cores beside GPUs."""
        for count in range(max(self.layout.most_gpus, default=0) + 1):
            here = 0
            for masks in self._nodes:
                if count < len(masks):
                    here |= masks[count]
            i = self._first(here & need.nodes, need.cpus, need.memory_gib)
            if i is not None:
                return i
        return None

    def _first(self, nodes: int, cpus: int, memory_gib: float) -> int | None:
        """Return the first of `nodes` with so many free cores and so much memory."""
        while nodes:
            bit = nodes & -nodes
            i = bit.bit_length() - 1
            if (
                cpus <= self._cpus[i]
                and memory_gib <= self._memory[i] + self.layout.memory_slack[i]
            ):
                return i
            nodes ^= bit
        return None

    def _evenly(self, need: Need, nodes: int) -> list[tuple[int, int]] | None:
        """Return equal parts of the gang on the fewest of `nodes`, the fullest that hold one."""
        masks = self._nodes[need.pool]
        for count in need.counts or ():
            part, parts = need.gpus // count, list[tuple[int, int]]()
            for free in range(part, len(masks)):
                here = masks[free] & nodes
                while here and len(parts) < count:
                    bit = here & -here
                    here ^= bit
                    i = bit.bit_length() - 1
                    if self._usable(need, i) >= part:
                        parts.append((i, part))
            if len(parts) == count:
                return parts
        return None

    def _several(self, need: Need, nodes: int) -> list[tuple[int, int]] | None:
        """Return the fewest of `nodes` for the gang: the roomiest first, for the rest the fullest
        that holds it."""
        if need.counts is not None:
            return self._evenly(need, nodes)
        left = need.gpus
        parts: list[tuple[int, int]] = []
        for usable, i in self._roomiest(need, nodes):
            if usable >= left:
                last = self._one(need, left, nodes)
                parts.append((i if last is None else last, left))
                return parts
            parts.append((i, usable))
            nodes ^= 1 << i
            left -= usable
        return None

    def _roomiest(self, need: Need, nodes: int) -> Iterator[tuple[int, int]]:
        """Yield (GPUs usable with their cores and memory, node), most first, then in the order of
        the cluster."""
        masks = self._nodes[need.pool]
        bare = not need.cpus_per_gpu and not need.memory_gib_per_gpu
        short: list[list[int]] = [
            [] for _ in masks
        ]  # by usable GPUs, nodes that have more of them free
        for count in range(len(masks) - 1, 0, -1):
            here = masks[count] & nodes
            if not here and not short[count]:
                continue
            passed = iter(sorted(short[count]))
            other = next(passed, -1)
            while here:
                bit = here & -here
                i = bit.bit_length() - 1
                here ^= bit
                usable = count if bare else self._usable(need, i)
                if usable < count:
                    short[usable].append(i)
                    continue
                while 0 <= other < i:
                    yield count, other
                    other = next(passed, -1)
                yield count, i
            while other >= 0:
                yield count, other
                other = next(passed, -1)

    def _usable(self, need: Need, i: int) -> int:
        usable = self._gpus[i]
        if need.cpus_per_gpu and usable * need.cpus_per_gpu > self._cpus[i]:
            usable = self._cpus[i] // need.cpus_per_gpu
        if need.memory_gib_per_gpu:
            free = self._memory[i] + self.layout.memory_slack[i]
            while usable > 0 and usable * need.memory_gib_per_gpu > free:
                usable -= 1
        return usable if usable > 0 else 0


def _memory_gib(need: Need, gpus: int) -> float:
    return need.memory_gib if need.gpus == 0 else need.memory_gib_per_gpu * gpus
