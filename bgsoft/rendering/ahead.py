"""A process made ready for a render before it knows which."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib import import_module

from bgsoft.cuda.driver import cuda_number, driver_problem, open_context
from bgsoft.rendering.backends import REGISTRY, may_use_gpu
from bgsoft.settings.config import BackendConfig
from bgsoft.startup import StartupPool
from bgsoft.workers import DaemonThread


def make_ready(config: BackendConfig, gpu: int | None) -> None:
    """Import what renders by these settings use; on a GPU begin with the driver and ONNX Runtime.

    Nothing is reported: what does not load will fail, or be passed over, when it is wanted.

    Args:
        config: The settings.
        gpu: The GPU that is dealt to this process; None: the settings name it.
    """
    number = cuda_number((config.gpu if gpu is None else gpu) or 0)
    on_gpu = may_use_gpu(config) and driver_problem(number) is None
    with StartupPool() as pool:
        if on_gpu:
            pool.submit("CUDA context", partial(open_context, number))
            if config.infer != "cpu":
                from bgsoft.infer.sessions import open_provider

                # A task may begin before it is there.
                DaemonThread(partial(open_provider, number), "bgsoft-provider").start()
        from bgsoft.rendering import build, session  # noqa: F401

        for stage in REGISTRY.values():
            backend = next(iter(stage.values())) if on_gpu else stage["cpu"]
            module = backend.maker.partition(":")[0]
            with suppress(ImportError):
                import_module(module or "onnxruntime")
