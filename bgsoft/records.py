"""``dataclass`` and ``NamedTuple``, made in a fraction of the time: each process makes a hundred.

The standard library compiles up to seven methods of a dataclass, most of which are never called.
Here ``__init__`` is compiled when it is first looked up, and the others are closures. The result is
a regular dataclass, also for ``fields``, ``replace`` and ``asdict``. Unused features are left out:
``order``, ``unsafe_hash``, ``InitVar``, and fields without ``init``. Annotations of named tuples
are not compiled.

A frozen dataclass of five fields takes 0.07 ms of processor time on Python 3.11, 0.08 on 3.12 and
0.12 on 3.13; the standard library's takes 0.73, 0.87 and 0.73 ms (least of seven runs of 100).
"""

from __future__ import annotations

import dataclasses
import sys
from collections import namedtuple
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple
else:

    class _NamedTupleType(type):
        def __new__(cls, name, bases, members):
            if not bases:
                return super().__new__(cls, name, bases, members)
            types = members.pop("__annotations__")
            defaults = [members.pop(field) for field in types if field in members]
            made = namedtuple(name, types, defaults=defaults, module=members["__module__"])
            made.__annotations__ = types
            for key, value in members.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_NamedTupleType):
        """Base of a named tuple."""

    def dataclass(*, frozen=False, eq=True, **options):
        """Return a decorator that makes a class a dataclass."""

        def decorate(cls):
            written = set(vars(cls))
            cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise the library writes a signature
            # The library requires a subclass of a frozen dataclass to be frozen from its start.
            late = not any(dataclasses.is_dataclass(base) for base in cls.__bases__)
            options.update(init=False, repr=False, eq=False, frozen=frozen and not late)
            cls = dataclasses.dataclass(**options)(cls)
            cls.__dataclass_params__.frozen = frozen
            methods = {"__init__": _Init(cls), "__repr__": _repr}
            if eq:
                methods["__eq__"], hashed = _comparison(cls)
                methods["__hash__"] = hashed if frozen else None
            if frozen and late:
                methods |= _protection(cls)
            for name in methods.keys() - written:
                setattr(cls, name, methods[name])
            return cls

        return decorate


class _Factory:
    """Default of a parameter whose field has a factory."""

    def __repr__(self) -> str:
        return "<factory>"


class _Init:
    """Replaces a class's ``__init__`` until that is looked up."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: Any, owner: type) -> Any:
        self._cls.__init__ = init = _init(self._cls)
        return init.__get__(instance, owner)


def _init(cls: Any) -> Any:
    entries, frozen = dataclasses.fields(cls), cls.__dataclass_params__.frozen
    known: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _Factory()}
    positional, keywords, body = ["self"], ["*"], []
    for entry in entries:
        name, default, value = entry.name, "", entry.name
        if entry.default is not dataclasses.MISSING:
            default, known[f"_of_{name}"] = f"=_of_{name}", entry.default
        elif entry.default_factory is not dataclasses.MISSING:
            default, known[f"_of_{name}"] = "=_FACTORY", entry.default_factory
            value = f"_of_{name}() if {name} is _FACTORY else {name}"
        (keywords if entry.kw_only else positional).append(name + default)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(positional + (keywords if len(keywords) > 1 else []))
    lines = [f"def make({', '.join(known)}):", f" def __init__({parameters}):"]
    lines += [f"  {line}" for line in body or ["pass"]]
    made: dict[str, Any] = {}
    exec("\n".join([*lines, " return __init__"]), vars(sys.modules[cls.__module__]), made)
    init = made["make"](**known)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {entry.name: entry.type for entry in entries} | {"return": None}
    return init


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [entry.name for entry in dataclasses.fields(self) if entry.repr]
    values = [f"{name}={getattr(self, name)!r}" for name in shown]
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _comparison(cls: Any) -> tuple[Any, Any]:
    """Return ``__eq__`` and ``__hash__``."""
    names = [entry.name for entry in dataclasses.fields(cls) if entry.compare]
    compared = attrgetter("__class__", *names)

    def equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    return equal, lambda self: hash(compared(self))


def _protection(cls: Any) -> dict[str, Any]:
    """Return methods that make instances immutable, but allow pickle."""
    names = [entry.name for entry in dataclasses.fields(cls)]

    def refused(verb: str, allowed: Any) -> Any:
        def method(self: Any, name: str, *value: Any) -> None:
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")
            allowed(self, name, *value)

        return method

    def set_state(self: Any, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            object.__setattr__(self, name, value)

    return {
        "__setattr__": refused("assign to", object.__setattr__),
        "__delattr__": refused("delete", object.__delattr__),
    } | ({"__setstate__": set_state} if "__slots__" in vars(cls) else {})
