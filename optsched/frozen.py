"""Values: classes whose objects never change."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[Kind]) -> type[Kind]:
    """Make a class a dataclass that is frozen and has slots."""
    return dataclass(frozen=True, slots=True)(kind)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(kind: type[Kind]) -> type[Kind]:
    """Make a class a record that takes its fields by name alone."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def entity(kind: type[Kind]) -> type[Kind]:
    """Make a class a record whose objects are equal to themselves alone, as those with arrays must
    be."""
    return dataclass(frozen=True, slots=True, eq=False)(kind)
