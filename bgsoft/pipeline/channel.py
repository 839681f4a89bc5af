"""A bounded queue between two stages that ends cleanly, whichever stage stops first."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_END: Any = object()
"""Follows the last item, or any item if the channel is aborted."""


class ChannelClosedError(Exception):
    """The channel was aborted: the pipeline is stopping."""


class Channel(Generic[T]):
    """Passes items from one thread to another, in order.

    Two of the interpreter's queues need a quarter of the calls of a lock with a condition. Every
    frame passes several channels, and threads wait for the interpreter's lock during calls.

    Args:
        capacity: Number of items before :meth:`put` waits, 1 or more.
    """

    def __init__(self, capacity: int) -> None:
        self._items: SimpleQueue[T] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        """One entry for each free place."""
        for _ in range(capacity):
            self._room.put(None)
        self._ended = False
        self._aborted = False

    def put(self, item: T) -> None:
        """Append an item, waiting while the channel is full.

        Raises:
            ChannelClosedError: The channel was aborted.
        """
        self._room.get()
        if self._aborted:
            self._room.put(None)
            raise ChannelClosedError
        self._items.put(item)

    def finish(self) -> None:
        """Declare that no item will follow; readers end once the channel is empty."""
        self._items.put(_END)

    def abort(self) -> None:
        """Wake both threads with ChannelClosedError; remaining items are not delivered."""
        self._aborted = True
        self._room.put(None)
        self._items.put(_END)

    def take(self, max_items: int) -> list[T]:
        """Take the next items, waiting until there are ``max_items`` of them or the channel ends.

        Args:
            max_items: 1 or more.

        Returns:
            Fewer items than requested only at the end, and none after it.

        Raises:
            ChannelClosedError: The channel was aborted.
        """
        taken: list[T] = []
        for _ in range(max_items):
            item = _END if self._ended else self._items.get()
            if self._aborted:
                break
            if item is _END:
                self._ended = True
                break
            taken.append(item)
            self._room.put(None)
        if self._aborted:
            self._items.put(_END)
            raise ChannelClosedError
        return taken

    def __iter__(self) -> Iterator[T]:
        """Take items one by one until the channel is finished and empty."""
        while items := self.take(1):
            yield items[0]

    def __len__(self) -> int:
        return self._items.qsize()
