"""Values: tables that never change, and nouns that hash as fast as they compare."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Table(dict[K, V]):
    """A dict that never changes, so that it has a hash. As with dicts, the order of the entries is
    kept but does not count when two are compared."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(frozenset(self.items()))
            return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (dict(self),)

    def __copy__(self) -> "Table[K, V]":
        return self

    def __deepcopy__(self, memo: object) -> "Table[K, V]":
        return self

    def _unchangeable(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("a table of a noun never changes: make a new noun with dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = _unchangeable
    clear = pop = popitem = setdefault = update = _unchangeable


EMPTY: Table[Any, Any] = Table()


def empty() -> Table[Any, Any]:
    """Return the table that a noun has where none is given."""
    return EMPTY


class Value:
    """A noun made of values: plain dicts given for its tables become tables and lists tuples, and
    its hash is computed once. A class whose hash is asked for often says
    `__hash__ = Value.__hash__`."""

    __slots__ = ("_hash",)
    _hash: int

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name in _collections(kind):
            given = getattr(self, name)
            if type(given) is list:
                object.__setattr__(self, name, tuple(given))
            elif type(given) not in (tuple, Table) and isinstance(given, Mapping):
                object.__setattr__(self, name, Table(given) if given else EMPTY)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            kind: Any = type(self)
            object.__setattr__(self, "_hash", hash(_contents(kind)(self)))
            return self._hash


@cache
def _collections(kind: type) -> tuple[str, ...]:
    """Return the fields of a noun that are tables or tuples: those that are empty unless given."""
    return tuple(
        field.name
        for field in fields(kind)
        if field.default_factory is empty or field.default == ()
    )


@cache
def _contents(kind: type) -> Callable[[object], object]:
    return attrgetter(*(field.name for field in fields(kind)))
