"""Models shared by the streams of one process: loaded once, and on a GPU run on several frames.

Every user has its own arrays. The network's own thread copies all pending requests into one batch.
So no frame waits for another's longer than :data:`_DEADLINE_SECONDS`, and a user that dies or hangs
is not awaited. Recurrent networks are not shared.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from bgsoft.errors import InferenceError
from bgsoft.frame import Array
from bgsoft.infer.base import Network
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.threads import DaemonThread, usable_cores

MAX_ITEMS = 8
"""Frames of one run, as in a render: the same TensorRT engine serves both."""
_DEADLINE_SECONDS = 0.002
"""How long a run waits for users that work on a frame and have not requested it yet."""
_CLOSE_SECONDS = 2.0
"""How long closing a network may take, unless it hangs."""
_TURN_SECONDS = 0.25
"""How long a frame waits for a free core; then it proceeds, as the core's user may hang."""


class Order(Protocol):
    """Order of work that the host launches without waiting for it."""

    def working(self) -> AbstractContextManager[None]:
        """Return a context for the network's own work, which is finished at its end."""
        ...

    def mark(self) -> Any:
        """Return a mark after everything that this thread has launched."""
        ...

    def after(self, mark: Any) -> None:
        """Order everything that this thread launches from now on after a mark."""
        ...


class SharedModels:
    """Models loaded for several users; thread-safe.

    Args:
        users: Number of users.
        cores: Number of users that may work on the CPU at a time; 0: one a core.
        turn_seconds: How long a user waits for a core at most.
    """

    def __init__(
        self, users: int = 1, cores: int = 0, *, turn_seconds: float = _TURN_SECONDS
    ) -> None:
        self.users, self._turn_seconds = users, turn_seconds
        self._cores = cores or usable_cores()
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._on_cpu: dict[Hashable, CpuNetwork] = {}
        self._shared: dict[Hashable, SharedNetwork] = {}
        self.at_work: set[ModelUser] = set()
        """Users inside :meth:`ModelUser.working`."""
        self._changed = threading.Condition()
        self._waiting: deque[ModelUser] = deque()

    def _loading(self, key: Hashable) -> threading.Lock:
        """Return the lock that is held while this model is loaded; others load in parallel."""
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())

    def on_cpu(self, key: Hashable, load: Callable[[], CpuNetwork]) -> CpuNetwork:
        """Return a network with its own arrays; ``key`` must include all that is loaded."""
        with self._loading(key):
            if key not in self._on_cpu:
                self._on_cpu[key] = load()
            return self._on_cpu[key].sharing()

    def join(self, key: Hashable, user: ModelUser, load: Callable[[], SharedNetwork]) -> Network:
        """Return a user's part of a network; ``key`` must include everything that is loaded."""
        with self._loading(key):
            part = self._shared[key].part(user) if key in self._shared else None
            while part is None:
                self._shared[key] = load()
                part = self._shared[key].part(user)
            return part

    def begin(self, user: ModelUser, *, limited: bool) -> None:
        """See :meth:`ModelUser.working`."""
        with self._changed:
            if limited:
                self._waiting.append(user)
                self._changed.wait_for(
                    lambda: self._waiting[0] is user and len(self.at_work) < self._cores,
                    self._turn_seconds,
                )
                self._waiting.remove(user)
            self.at_work.add(user)
            self._changed.notify_all()

    def end(self, user: ModelUser) -> None:
        """See :meth:`ModelUser.leave`."""
        with self._changed:
            self.at_work.discard(user)
            self._changed.notify_all()


class ModelUser:
    """One stream, as a user of shared models."""

    def __init__(self, models: SharedModels) -> None:
        self.models = models
        self.frames = 0
        """Number of frames begun so far."""

    @contextmanager
    def working(self, *, limited: bool) -> Iterator[None]:
        """Return a context for the work on a frame; if ``limited``, it waits for a free core."""
        self.models.begin(self, limited=limited)
        self.frames += 1
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Count the user as idle, whatever its thread does; safe to call twice."""
        self.models.end(self)


class _Part(Network):
    """One user's view of a network: its own arrays, which run together with others'."""

    def __init__(self, shared: SharedNetwork, network: Network, user: ModelUser) -> None:
        self.provider, self.mixed, self.user = network.provider, network.mixed, user
        self.inputs = {name: _own(array, shared.items) for name, array in network.inputs.items()}
        batch = shared.items * shared.max_users
        self.outputs = {
            name: _own(array, shared.items)
            for name, array in network.outputs.items()
            if array.shape[:1] == (batch,)
        }
        self.frame = 0
        """The user's frame of the last request."""
        self._shared = shared

    def run(self) -> None:
        self._shared.run(self)

    def close(self) -> None:
        self._shared.leave(self)


def _own(array: Array, items: int) -> Array:
    """Allocate an array for ``items`` items, on the other array's device."""
    own = array[:items].copy()
    own.fill(0)
    return own


class _Request:
    """A requested run, and its user's wait for it."""

    def __init__(self, part: _Part, mark: Any) -> None:
        self.part = part
        self.mark = mark
        """Mark after the inputs were written; in the end, after the outputs."""
        self.since = time.monotonic()
        self.error: Exception | None = None
        self.done = threading.Event()


class SharedNetwork:
    """A network and the thread that runs it for all users.

    Args:
        network: Loaded for a whole batch; closed with its last part.
        items: Number of items of each user in the batch.
        order: Order of the users' work and the network's.
        deadline_seconds: How long a request waits for others at most.
    """

    def __init__(
        self,
        network: Network,
        items: int,
        order: Order,
        *,
        deadline_seconds: float = _DEADLINE_SECONDS,
    ) -> None:
        self.items, self._deadline_seconds = items, deadline_seconds
        self.max_users = next(iter(network.inputs.values())).shape[0] // items
        """Number of users in one run."""
        self._network, self._order = network, order
        self._parts: set[_Part] = set()
        self._requests: list[_Request] = []
        self._is_over = False
        self._changed = threading.Condition()
        self._thread = DaemonThread(self._serve, "bgsoft-network")
        self._thread.start()

    def part(self, user: ModelUser) -> Network | None:
        """Return a user's part; None: the network has just been closed."""
        with self._changed:
            if self._is_over:
                return None
            with self._order.working():
                part = _Part(self, self._network, user)
            self._parts.add(part)
            return part

    def leave(self, part: _Part) -> None:
        """Give a part back; the last one closes the network, and waits for that."""
        with self._changed:
            self._parts.discard(part)
            self._is_over = not self._parts
            self._changed.notify_all()
        if self._is_over:
            self._thread.join(_CLOSE_SECONDS)

    def run(self, part: _Part) -> None:
        """Run a part's inputs into its outputs, and wait for that.

        Raises:
            InferenceError: The network failed; all users in the run get the error.
        """
        request = _Request(part, self._order.mark())
        with self._changed:
            part.frame = part.user.frames
            self._requests.append(request)
            self._changed.notify_all()
        request.done.wait()
        if isinstance(request.error, (InferenceError, MemoryError)):
            raise InferenceError(str(request.error), stage="segment") from request.error
        if request.error is not None:
            raise request.error
        self._order.after(request.mark)

    def _serve(self) -> None:
        with self._order.working():
            while requests := self._next():
                try:
                    self._run(requests)
                except Exception as exc:
                    for each in requests:
                        each.error = exc
                for each in requests:
                    each.done.set()
                del requests
            self._network.close()

    def _next(self) -> list[_Request]:
        """Return the requests of the next run; empty: the network is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._requests or self._is_over)
            if not self._requests:
                return []
            until = self._requests[0].since + self._deadline_seconds
            while len(self._requests) < self.max_users and self._is_awaited():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            requests, self._requests = (
                self._requests[: self.max_users],
                self._requests[self.max_users :],
            )
            return requests

    def _is_awaited(self) -> bool:
        """Return whether a user works on a frame that it has not requested yet."""
        requesting = {part.user for part in self._parts if part.frame == part.user.frames}
        users = {part.user for part in self._parts} - requesting
        return any(user in user.models.at_work for user in users)

    def _run(self, requests: list[_Request]) -> None:
        network, items = self._network, self.items
        places = [slice(at * items, (at + 1) * items) for at in range(len(requests))]
        for place, each in zip(places, requests, strict=True):
            self._order.after(each.mark)
            for name, array in each.part.inputs.items():
                network.inputs[name][place] = array
        network.run()
        for place, each in zip(places, requests, strict=True):
            for name, array in each.part.outputs.items():
                array[...] = network.outputs[name][place]
        mark = self._order.mark()
        for each in requests:
            each.mark = mark
