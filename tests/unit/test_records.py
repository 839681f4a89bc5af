"""Dataclasses and named tuples that are made quickly are like others."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, Generic, TypeVar

import pytest

from bgsoft.records import NamedTuple, dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    a: int
    b: str = "b"
    c: list[int] = dataclasses.field(default_factory=list)
    d: int
    e: float = dataclasses.field(default=0.5, repr=False, compare=False, metadata={"unit": "s"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    a: int
    b: str = "b"
    c: list[int] = dataclasses.field(default_factory=list)
    d: int
    e: float = dataclasses.field(default=0.5, repr=False, compare=False, metadata={"unit": "s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Further(Frozen):
    f: int = 6


@dataclass(slots=True)
class Open(Generic[T]):
    a: T
    b: int = 2


@dataclass(slots=True, eq=False)
class Same:
    a: int

    def __repr__(self) -> str:
        return "its own"


@dataclass(frozen=True)
class Checked:
    a: int
    more: Checked | None = None

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")

    @cached_property
    def twice(self) -> int:
        return 2 * self.a


@dataclass()
class Empty:
    pass


@dataclass(slots=True)
class Unmade(ABC):
    a: int

    @abstractmethod
    def method(self) -> None: ...


class Tuple(NamedTuple):
    """Its own words."""

    a: int
    b: list[int] | None = None

    @property
    def twice(self) -> int:
        return 2 * self.a

    def __str__(self) -> str:
        return f"<{self.a}>"


class LibrarysTuple(typing.NamedTuple):
    a: int
    b: list[int] | None = None


FROZEN = Frozen(a=1, d=4)


def test_what_is_made_is_the_librarys() -> None:
    ours, theirs = Frozen(a=1, d=4, b="x"), Library(a=1, d=4, b="x")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert repr(ours) == repr(theirs).replace("Library", "Frozen")
    assert str(inspect.signature(Frozen)) == str(inspect.signature(Library))
    assert Frozen.__match_args__ == Library.__match_args__
    assert Frozen.__slots__ == Library.__slots__
    params = Frozen.__dataclass_params__  # type: ignore[attr-defined]
    assert params.frozen == Library.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert [e.metadata for e in dataclasses.fields(Frozen)] == [
        e.metadata for e in dataclasses.fields(Library)
    ]


def test_signature_before_anything_is_made() -> None:
    @dataclass(kw_only=True)
    class New:
        a: int
        b: str = "b"

    assert str(inspect.signature(New)) == "(*, a: 'int', b: 'str' = 'b') -> None"


@pytest.mark.parametrize(("args", "given"), [((), {"a": 1}), ((1,), {"d": 4}), ((), {"z": 1})])
def test_wrong_arguments_are_reported_as_the_library_does(
    args: tuple[int, ...], given: dict[str, int]
) -> None:
    with pytest.raises(TypeError) as theirs:
        Library(*args, **given)  # type: ignore[arg-type]
    with pytest.raises(TypeError) as ours:
        Frozen(*args, **given)  # type: ignore[arg-type]
    assert str(ours.value) == str(theirs.value).replace("Library", "Frozen")


def test_equality_and_hash() -> None:
    assert Frozen(a=1, d=4, e=1.0) == FROZEN != Frozen(a=2, d=4)
    assert Library(a=1, d=4) != FROZEN
    assert Further(a=1, d=4) != FROZEN
    assert hash(Checked(1)) == hash(Checked(1)) != hash(Checked(2))
    assert Open("x") == Open("x", 2) != Open("y")
    assert Same(1) != Same(1)
    assert hash(Same(1))
    assert Empty() == Empty()
    with pytest.raises(TypeError, match="unhashable"):
        hash(Open("x"))


def test_factories_make_again() -> None:
    assert Frozen(a=1, d=4).c is not Frozen(a=1, d=4).c
    given = [1]
    assert Frozen(a=1, d=4, c=given).c is given


@pytest.mark.parametrize("made", [FROZEN, Further(a=1, d=4), Checked(3)])
def test_frozen(made: Any) -> None:
    for change in (lambda: setattr(made, "a", 2), lambda: delattr(made, "a")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        made.other = 1


def test_what_is_not_frozen_changes() -> None:
    changed = Open("x")
    changed.b = 3
    assert changed == Open("x", 3)
    with pytest.raises(AttributeError):
        changed.other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("made", [FROZEN, Further(a=1, d=4, f=7), Checked(3), Open([1])])
def test_copied_and_pickled(made: Any) -> None:
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == copy.deepcopy(made) == made


def test_replaced() -> None:
    assert dataclasses.replace(FROZEN, a=2) == Frozen(a=2, d=4)
    assert dataclasses.replace(Further(a=1, d=4), f=7).f == 7


def test_checked_once_made() -> None:
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)
    assert Checked(2).twice == 4


def test_printed_as_it_says_itself() -> None:
    assert repr(Same(1)) == "its own"
    around = Open[Any]("x")
    around.a = around
    assert repr(around) == "Open(a=..., b=2)"


def test_the_library_takes_it_as_a_base() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Users(Frozen):
        mine: int = 1

    assert Users(a=1, d=4).mine == 1


def test_a_subclass_that_is_none_has_its_own_attributes() -> None:
    class Plain(Checked):
        pass

    plain = Plain(1)
    plain.other = 2  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain.a = 2  # type: ignore[misc]


def test_an_abstract_class_is_not_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Unmade(1)  # type: ignore[abstract]


def test_named_tuple() -> None:
    made = Tuple(1)
    a, b = made
    assert (a, b) == made == (1, None) == Tuple(b=None, a=1)
    assert made._replace(a=3)._asdict() == {"a": 3, "b": None}
    assert (repr(made), str(made), made.twice) == ("Tuple(a=1, b=None)", "<1>", 2)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert (Tuple.__doc__, Tuple.__module__) == ("Its own words.", __name__)
    assert Tuple._fields == LibrarysTuple._fields
    assert Tuple._field_defaults == LibrarysTuple._field_defaults
    assert typing.get_type_hints(Tuple) == typing.get_type_hints(LibrarysTuple)
    with pytest.raises(AttributeError):
        made.a = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        made.other = 2  # type: ignore[attr-defined]
