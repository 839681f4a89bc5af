"""Networks on a GPU that stay loaded between renders, in a process with many of them.

Loading takes longer than rendering a short video: the default networks take 0.7 s on an H100,
mostly cuDNN's search for plans, although the kernels are loaded already.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from bgsoft.infer.base import Network, WrappedNetwork
from bgsoft.threads import DaemonThread, LanePool

if TYPE_CHECKING:
    from bgsoft.cuda.device import CudaDevice

_MAX_IDLE = 16
"""Number of idle networks to keep. A render has six; recurrent ones depend on the frame size."""


class _WarmNetwork(WrappedNetwork):
    """A network that is kept for the next render when it is closed, unless it has failed."""

    def __init__(self, network: Network, put_away: Callable[[Network], None]) -> None:
        super().__init__(network)
        self.inputs, self.outputs = network.inputs, network.outputs
        self._put_away = put_away
        self._failed = self._closed = False

    def run(self) -> None:
        try:
            self._network.run()
        except BaseException:
            self._failed = True
            raise

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._failed:
            self._network.close()
        else:
            self._put_away(self._network)


class _LastingPool(LanePool):
    """A pool that outlives the render that closes it."""

    def close(self) -> None:
        """Do nothing: the next render uses it."""


class WarmNetworks:
    """Loads networks, or reuses idle ones. Thread-safe.

    Args:
        max_idle: Number of idle networks to keep; the longest unused is freed.
    """

    def __init__(self, max_idle: int = _MAX_IDLE) -> None:
        self._max_idle = max_idle
        self._idle: OrderedDict[tuple[Hashable, int], Network] = OrderedDict()
        self.pool = _LastingPool()
        """A second thread for networks."""
        self.streams: dict[tuple[int, int], Any] = {}
        """CuPy streams of networks, by device and by number within a render."""

    def get(self, key: Hashable, load: Callable[[], Network]) -> Network:
        """Return a network for one user; ``key`` must include all that is loaded."""
        found = next((entry for entry in list(self._idle) if entry[0] == key), None)
        network = None if found is None else self._idle.pop(found, None)
        if network is None:
            network = load()
        network.set_states({})
        return _WarmNetwork(network, lambda closed: self._keep(key, closed))

    def _keep(self, key: Hashable, network: Network) -> None:
        self._idle[key, id(network)] = network
        while len(self._idle) > self._max_idle:
            _, oldest = self._idle.popitem(last=False)
            oldest.close()


class LastingThread:
    """Runs calls in the one thread that the networks of all renders share.

    ONNX Runtime keeps a CUDA graph and the memory of cuDNN and cuBLAS for each thread that runs a
    network, and does not free them with the thread. The methods are :class:`threading.Thread`'s.
    The thread has a call's name while it runs it, so that a stalled one can be found.
    """

    _IDLE = "idle networks"
    _calls: queue.SimpleQueue[LastingThread] = queue.SimpleQueue()
    _server: DaemonThread | None = None

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._target = target
        self._name = name
        self._done = threading.Event()
        self._done.set()

    @property
    def ident(self) -> int | None:
        return None if self._server is None else self._server.ident

    def start(self) -> None:
        self._done.clear()
        cls = LastingThread
        if cls._server is None:
            cls._server = DaemonThread(cls._serve, cls._IDLE)
            cls._server.start()
        cls._calls.put(self)

    @classmethod
    def _serve(cls) -> None:
        while True:
            call = cls._calls.get()
            thread = threading.current_thread()
            thread.name = call._name
            try:
                call._target()
            finally:
                thread.name = cls._IDLE
                done = call._done
                del call  # it references a whole render, and the next may come late
                done.set()

    def join(self, timeout: float | None = None) -> None:
        self._done.wait(timeout)

    def is_alive(self) -> bool:
        return not self._done.is_set()

    def hold(self, resources: object) -> None:
        if self._server is not None:
            self._server.hold(resources)


StageThread = DaemonThread | LastingThread

_warm: WarmNetworks | None = None
"""Networks that this process keeps; None: each render loads its own."""


def keep_warm() -> None:
    """Keep networks from now on, in a process whose renders follow one another."""
    global _warm
    _warm = _warm or WarmNetworks()


def loaded(key: Hashable, load: Callable[[], Network]) -> Network:
    """Return a loaded network, reusing one of an earlier render if they are kept."""
    return load() if _warm is None else _warm.get(key, load)


def network_thread(target: Callable[[], None], name: str) -> StageThread:
    """Return the thread for a render's networks, not started yet."""
    return DaemonThread(target, name) if _warm is None else LastingThread(target, name)


def network_pool() -> LanePool:
    """Return a second thread for networks, which lives as long as they do."""
    return LanePool() if _warm is None else _warm.pool


def network_stream(device: CudaDevice, number: int = 0) -> Any:
    """Return the CuPy stream of a number within one render; kept networks stay on theirs."""
    if _warm is None:
        return device.new_stream()
    key = device.number, number
    if key not in _warm.streams:
        _warm.streams[key] = device.new_stream()
    return _warm.streams[key]
