"""A bounded queue between two stages that ends cleanly, whichever side stops first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ChannelClosedError(Exception):
    """The channel was aborted: the pipeline is stopping."""


class Channel(Generic[T]):
    """Hands items from one thread to another, in order.

    Args:
        capacity: Items it holds before :meth:`put` waits, 1 or more.
    """

    def __init__(self, capacity: int) -> None:
        self._items: deque[T] = deque()
        self._capacity = capacity
        self._condition = threading.Condition()
        self._finished = False
        self._aborted = False

    def put(self, item: T) -> None:
        """Append an item, waiting while the channel is full; ChannelClosedError once aborted."""
        with self._condition:
            while len(self._items) >= self._capacity and not self._aborted:
                self._condition.wait()
            if self._aborted:
                raise ChannelClosedError
            self._items.append(item)
            self._condition.notify_all()

    def finish(self) -> None:
        """Say that no item will follow; readers end once the channel is empty."""
        with self._condition:
            self._finished = True
            self._condition.notify_all()

    def abort(self) -> None:
        """Wake both sides with ChannelClosedError; items still inside are not delivered."""
        with self._condition:
            self._aborted = True
            self._condition.notify_all()

    def take(self, most: int) -> list[T]:
        """Take the next items, waiting until there are ``most`` of them or no more will come.

        Args:
            most: 1 to the channel's capacity.

        Returns:
            Fewer items than asked for only at the end; none after it.

        Raises:
            ChannelClosedError: The channel was aborted.
        """
        with self._condition:
            while len(self._items) < most and not self._finished and not self._aborted:
                self._condition.wait()
            if self._aborted:
                raise ChannelClosedError
            count = min(most, len(self._items))
            items = [self._items.popleft() for _ in range(count)]
            self._condition.notify_all()
            return items

    def __iter__(self) -> Iterator[T]:
        """Take items one by one until the channel is finished and empty."""
        while items := self.take(1):
            yield items[0]

    def __len__(self) -> int:
        return len(self._items)
