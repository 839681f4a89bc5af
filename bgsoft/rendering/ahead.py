"""Preparation of a process for a render that is not known yet."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib import import_module

from bgsoft.cuda.driver import cuda_number, driver_problem, open_context
from bgsoft.rendering.backends import REGISTRY, may_use_gpu
from bgsoft.settings.config import BackendConfig
from bgsoft.startup import StartupPool
from bgsoft.threads import DaemonThread


def make_ready(config: BackendConfig, gpu: int | None) -> None:
    """Import the modules of renders with these settings, and open the GPU if one is used.

    Nothing is reported. A module that does not load is reported by the render.

    Args:
        config: The settings.
        gpu: The GPU assigned to this process; None: that of the settings.
    """
    number = cuda_number((config.gpu if gpu is None else gpu) or 0)
    on_gpu = may_use_gpu(config) and driver_problem(number) is None
    with StartupPool() as pool:
        if on_gpu:
            pool.submit("CUDA context", partial(open_context, number))
            if config.infer != "cpu":
                from bgsoft.infer.sessions import open_provider

                # A task may begin before the provider is open.
                DaemonThread(partial(open_provider, number), "bgsoft-provider").start()
        from bgsoft.rendering import build, session  # noqa: F401

        for stage in REGISTRY.values():
            backend = next(iter(stage.values())) if on_gpu else stage["cpu"]
            module = backend.maker.partition(":")[0]
            with suppress(ImportError):
                import_module(module or "onnxruntime")
