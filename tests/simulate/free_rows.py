"""What is left of the shared rows of the table of capacity, for people to read."""

from optsched import Instance
from optsched.driver.placement import Room
from optsched.physics.capacity import Kind


def left_of(room: Room, kind: Kind) -> dict[str, float]:
    """By tenant, resource or rack; the quotas of all tenants together are left out."""
    rows = room.layout.table.rows[: len(room.left)]
    return {
        row.of: left
        for row, left in zip(rows, room.left, strict=True)
        if row.kind == kind and row.of is not None
    }


def own_quotas(instance: Instance) -> dict[str, float]:
    """What each quota allows on an empty cluster; that of all tenants together is left out."""
    return {name: most for name, most in instance.quotas.limits.items() if name is not None}
