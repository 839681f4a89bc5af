"""Loads a model on the CPU or a GPU, in the requested precision."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from bgsoft.errors import (
    BackendUnavailableError,
    InferenceError,
    MixedModelError,
    ModelError,
    translated,
)
from bgsoft.infer.base import GpuModel, GpuRun, Network, Shapes, States, Wiring, WrappedNetwork
from bgsoft.infer.cpu import CpuNetwork
from bgsoft.infer.shared import MAX_ITEMS, ModelUser, SharedNetwork
from bgsoft.infer.warm import loaded
from bgsoft.models.catalog import ResolvedModel
from bgsoft.models.onnx_file import bake
from bgsoft.settings.config import Precision
from bgsoft.threads import usable_cores

_moved_models: dict[Hashable, str] = {}
"""Models that another backend runs, with the reason; found once a process."""

_failed_files: dict[tuple[Path, int], str] = {}
"""Files with a provider's own operators that do not run on the device of that number, with the
reason; found once a process."""

_FRESH_STATE = (1, 1, 1, 1)
"""Shape of a recurrent network's state on the first frame; it stands for zeros."""


class NetworkLoader:
    """Loads networks of one model.

    Args:
        model: The model.
        precision: Precision on a GPU.
        on_notice: Receives notices: an engine is built; a GPU leaves a part of the model to the
            CPU; a file for it does not run.
        cores: Cores for one run on the CPU, where nothing else runs at the same time.
        instead: Backends that may replace one that several providers would share.
        user: User of shared or reused models; None: they are not shared.
    """

    def __init__(
        self,
        model: ResolvedModel,
        precision: Precision = Precision.FP32,
        on_notice: Callable[[str], None] = lambda _text: None,
        cores: int | None = None,
        instead: tuple[str, ...] = (),
        user: ModelUser | None = None,
    ) -> None:
        self.model = model
        self._user = user
        self.cores = cores or usable_cores()
        self._precision = precision
        self._on_notice = on_notice
        self._instead = instead
        self._mixed: set[str] = set()
        """Backends that share this model with other providers."""
        self._reported: set[str] = set()
        """Notices of files that do not run, so that each is reported once."""

    def sibling(self, model: ResolvedModel, precision: Precision | None = None) -> NetworkLoader:
        """Return a loader of another model that runs with this one; None: in this precision."""
        more = self._on_notice, self.cores, self._instead, self._user
        return NetworkLoader(model, precision or self._precision, *more)

    def check(self, backend: str) -> None:
        """Raise BackendUnavailableError if a backend lacks this precision of the model."""
        self.model.for_provider(backend, self._precision)

    def on_cpu(self, wiring: Wiring, lanes: int = 1, threads: int = 1) -> list[Network]:
        """Load the model on the CPU, always in fp32: it also takes over from GPUs.

        Args:
            wiring: Use of its inputs and outputs.
            lanes: Number of networks that run in parallel; they share memory where possible.
            threads: Threads of one run.

        Raises:
            ModelError: ONNX Runtime cannot load the file, or it lacks an input or output.
        """
        shapes, _ = self._shapes(wiring)

        def load() -> CpuNetwork:
            network = CpuNetwork(
                self.model.path, shapes, wiring.constants, outputs=wiring.asked, threads=threads
            )
            if self.model.spec.checksum is None:  # a user's model that has never run
                self._prove(network)
            return network

        if self._user is None or wiring.loops:
            first = load()
        else:
            first = self._user.models.on_cpu((self.model.path, str(wiring), threads), load)
        networks: list[Network] = [first, *(first.sharing() for _ in range(1, lanes))]
        if wiring.loops:
            return [LoopingNetwork(network, wiring) for network in networks]
        return networks

    def _prove(self, network: Network) -> None:
        """Raise ModelError if a run fails: only a run shows whether free axes fit."""
        spec, path = self.model.spec, self.model.path
        shape = "x".join(map(str, network.inputs[spec.input].shape))
        text = f"cannot run {path.name} on pictures of {shape}"
        with translated(
            InferenceError,
            to=lambda exc: ModelError(f"{text}: {exc}; see {path.stem}.toml", path=path),
        ):
            network.run()

    def on_gpu(self, wiring: Wiring, run: GpuRun, *, alone: bool = False) -> Network:
        """Load the model on a GPU; see :class:`GpuModel` and :class:`bgsoft.infer.cuda.GpuNetwork`.

        Streams share one network, except for one that is ``alone`` and for recurrent models. A
        shared network is not replayed as a CUDA graph: the capture would need the device for
        itself.

        Raises:
            BackendUnavailableError: The provider does not run here, lacks this precision, or would
                share the model with others while one of ``instead`` can run it.
            ModelError: ONNX Runtime cannot load the file, or it lacks an input or output.
        """
        user = self._user
        if user is None or user.models.users == 1:
            return self._alone_on_gpu(wiring, run)
        if alone or wiring.loops:
            return self._alone_on_gpu(wiring, replace(run, replays=False))

        def load() -> SharedNetwork:
            from bgsoft.infer.cuda import StreamOrder, for_device

            run.device.make_current()
            spec, place = self.model.spec, (run.device, run.device.new_stream())
            items = next(iter(wiring.inputs.values()))[0]
            at_once, largest = min(MAX_ITEMS, user.models.users), MAX_ITEMS
            if spec.large or spec.batch:
                at_once, largest = 1, items
            inputs = {n: (at_once * shape[0], *shape[1:]) for n, shape in wiring.inputs.items()}
            wired = replace(wiring, inputs=inputs)
            own = GpuRun(run.backend, *place, replays=False, largest_batch=largest)
            network = self._alone_on_gpu(wired, own)
            return SharedNetwork(for_device(network, *place), items, StreamOrder(*place))

        key = (self.model.path, str(wiring), run.backend, run.device.number, self._precision)
        return user.models.join(key, user, load)

    def _alone_on_gpu(self, wiring: Wiring, run: GpuRun) -> Network:
        """Load the model for one user.

        Where the file with a provider's own operators does not run, but the plain one does, the
        plain one is used, with a notice.
        """
        find = partial(self.model.for_provider, run.backend, self._precision)
        load = partial(self._file_on_gpu, wiring, run)
        own, chosen = self.model.spec.cuda, find(replays=run.graphs and run.replays)
        if own is None or chosen.path.name != own.name:
            return load(chosen)
        plain, key = find(replays=False), (chosen.path, run.device.number)
        reason = _failed_files.get(key)
        if reason is None:
            try:
                return load(chosen, must_run=True)
            except (BackendUnavailableError, InferenceError) as exc:
                reason = exc.message  # the exception would keep the session alive
            try:
                network = load(plain, must_run=True)
            except (BackendUnavailableError, InferenceError):
                return load(plain)  # the file is not at fault
            _failed_files[key] = reason
        else:
            network = load(plain)
        notice = f"{plain.path.name} in place of {chosen.path.name}: {reason}"
        if notice not in self._reported:
            self._reported.add(notice)
            self._on_notice(notice)
        return network

    def _file_on_gpu(
        self, wiring: Wiring, run: GpuRun, chosen: ResolvedModel, *, must_run: bool = False
    ) -> Network:
        """Load one of the model's files."""
        shapes, measured = self._shapes(wiring)
        sha256, source = chosen.sha256, None
        if wiring.constants:
            source = bake(chosen.path, shapes, wiring.constants)
            sha256 += f" {dict(wiring.constants)}"
        place = run.backend, run.device.number, run.stream.ptr, run.graphs, run.largest_batch
        key = (sha256, str(shapes), str(wiring), *place, self._precision, self._instead)
        model = GpuModel(
            path=chosen.path,
            shapes=shapes,
            backend=run.backend,
            device=run.device,
            outputs=wiring.asked,
            precision=self._precision,
            sha256=sha256,
            on_notice=self._on_notice,
            largest_batch=run.largest_batch,
            source=source,
            must_run=must_run,
        )

        if key in _moved_models:
            raise BackendUnavailableError(_moved_models[key], stage="infer")
        load = partial(self._load_on_gpu, model, run, wiring, measured, key)
        network = loaded(key, load)
        if network.mixed and run.backend not in self._mixed:
            self._mixed.add(run.backend)
            self._on_notice(network.mixed)
        return network

    def _load_on_gpu(
        self, model: GpuModel, run: GpuRun, wiring: Wiring, measured: Shapes, key: Hashable
    ) -> Network:
        """Load a model for one provider, or else for several, unless another backend can run it."""
        from bgsoft.infer.cuda import GpuNetwork, MixedNetwork

        def output_shapes() -> Shapes:
            batch = next(iter(wiring.inputs.values()))[0]
            known = {name: (batch, *shape) for name, shape in wiring.free_outputs.items()}
            return known or measured or self._measured(wiring)

        network: Network | None = None
        if model.backend not in self._mixed:
            with nullcontext() if model.must_run else suppress(MixedModelError):
                network = GpuNetwork(model, run, output_shapes=output_shapes)
        if network is None:
            network = MixedNetwork(model)
            if model.backend not in self._mixed:
                self._move_to_other_backend(network, model.backend, wiring, key)
        return LoopingNetwork(network, wiring) if wiring.loops else network

    def _move_to_other_backend(
        self, network: Network, backend: str, wiring: Wiring, key: Hashable
    ) -> None:
        """Reject a model that several providers would share, if another backend can run it.

        CUDA replaces TensorRT. The CPU replaces a GPU if one run of each shows that it is as fast.
        """
        if backend == "tensorrt" and "cuda" in self._instead:
            reason = network.mixed
        elif "cpu" in self._instead:
            reason = self._slower_than_cpu(network, wiring)
        else:
            return
        if reason:
            network.close()
            _moved_models[key] = reason
            raise BackendUnavailableError(reason, stage="infer")

    def _slower_than_cpu(self, network: Network, wiring: Wiring) -> str:
        """Return why the CPU is the better choice, by one run of each; empty if it is not."""
        try:
            seconds = _seconds_a_frame(network)
        except InferenceError as exc:
            return f"{network.mixed}; {exc.message}"
        (twin,) = self.on_cpu(wiring, threads=self.cores)
        on_cpu = _seconds_a_frame(twin)
        twin.close()
        if on_cpu > seconds:
            return ""
        times = f"{on_cpu * 1000:.0f} ms a frame, {seconds * 1000:.0f} ms there"
        return f"{network.mixed}; the CPU alone takes {times}"

    def _shapes(self, wiring: Wiring) -> tuple[Shapes, Shapes]:
        """Return shapes of the inputs and, for recurrent models, of the outputs, found by a run."""
        if not wiring.loops:
            return wiring.inputs, {}
        outputs = self._measured(wiring)
        missing = wiring.loops.keys() - outputs.keys()
        if missing:
            raise ModelError(
                f"cannot use model {self.model.spec.name}: it has no output {min(missing)!r}, only "
                f"{', '.join(outputs)}",
                path=self.model.path,
            )
        states = {into: outputs[made] for made, into in wiring.loops.items()}
        return {**wiring.inputs, **states}, outputs

    def _measured(self, wiring: Wiring) -> Shapes:
        """Return the shapes of all outputs, by a run on the CPU with zeros and fresh states."""
        fresh = dict.fromkeys(wiring.loops.values(), _FRESH_STATE)
        shapes = {**wiring.inputs, **fresh}
        network = CpuNetwork(self.model.path, shapes, wiring.constants, threads=self.cores)
        outputs = {name: array.shape for name, array in network.outputs.items()}
        network.close()
        return outputs


def _seconds_a_frame(network: Network) -> float:
    """Return the time of a second run per frame; the first one includes the set-up."""
    network.run()
    started = time.perf_counter()
    network.run()
    frames = next(iter(network.inputs.values())).shape[0]
    return (time.perf_counter() - started) / int(frames)


class LoopingNetwork(WrappedNetwork):
    """Carries states from run to run; a failed run leaves them unchanged.

    They are copied, not swapped: fixed addresses allow one CUDA graph. At 1080p that is 4 MB a
    frame.

    Raises:
        ModelError: An output is missing.
    """

    def __init__(self, network: Network, wiring: Wiring) -> None:
        super().__init__(network)
        missing = [name for name in wiring.outputs if name not in network.outputs]
        if missing:
            raise ModelError(
                f"cannot use the model: it has no output {missing[0]!r}, only "
                f"{', '.join(network.outputs)}"
            )
        self.inputs = {name: network.inputs[name] for name in wiring.inputs}
        self.outputs = {name: network.outputs[name] for name in wiring.outputs}
        self._loops = wiring.loops
        self._states = {into: network.inputs[into] for into in wiring.loops.values()}

    def run(self) -> None:
        self._network.run()
        for made, into in self._loops.items():
            self._states[into][...] = self._network.outputs[made]

    def states(self) -> States:
        return {
            name: state.copy() if isinstance(state, np.ndarray) else state.get()
            for name, state in self._states.items()
        }

    def set_states(self, states: States) -> None:
        for name, state in self._states.items():
            if name not in states:
                state.fill(0)
            elif isinstance(state, np.ndarray):
                state[...] = states[name]
            else:
                state.set(states[name].astype(state.dtype))
