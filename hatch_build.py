"""Compiles the native library into the package, for wheels and editable installs.

A wheel has every variant of the library, and runs on any processor. An installation from source
has one, this machine's: where it is editable, or where pip or uv builds it, as the variables
``PIP_BUILD_TRACKER`` and ``UV`` say. ``BGSOFT_VARIANTS`` overrides that: ``all`` or ``own``.
``BGSOFT_MACHINE`` is another architecture to compile for.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeLibrary(BuildHookInterface[Any]):
    """Runs ``bgsoft/ops/build.py``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = Path(self.root, "bgsoft", "ops", "build.py")
        spec = importlib.util.spec_from_file_location("build_ops", path)
        assert spec is not None
        assert spec.loader is not None
        self._build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._build)
        self._folder = path.parent / "lib"
        self._machine = os.environ.get("BGSOFT_MACHINE") or platform.machine()

    def dependencies(self) -> list[str]:
        """The compiler, if there is something to compile and it cannot be fetched in part.

        Under uv, initialize() fetches it, while uv fetches the packages that bgsoft needs.
        """
        if "UV" in os.environ or not self._lacks_compiler(self._variants("standard")):
            return []
        return [] if self._build.fetch_compiler(self._folder) else [self._build.COMPILER]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        variants = self._variants(version)
        try:
            lacks_compiler = "UV" in os.environ and self._lacks_compiler(variants)
            if lacks_compiler and not self._build.fetch_compiler(self._folder):
                raise RuntimeError(f"cannot build bgsoft: no index has {self._build.COMPILER}")
            self._build.build(self._folder, self._machine, variants)
        finally:
            shutil.rmtree(self._folder / "ziglang", ignore_errors=True)
        # Ignored by git, so hatchling must be given it; nothing in it is bound to a Python version.
        libraries = self._build.library_name(self._machine, "*")
        build_data["artifacts"].append(f"/bgsoft/ops/lib/{libraries}")
        build_data["pure_python"] = False
        # No index takes a wheel for "linux", as one for a single processor is.
        is_portable = variants == self._build.VARIANTS[self._machine]
        system = f"manylinux_{self._build.GLIBC.replace('.', '_')}" if is_portable else "linux"
        build_data["tag"] = f"py3-none-{system}_{self._machine}"

    def _lacks_compiler(self, variants: tuple[Any, ...]) -> bool:
        current = self._build.are_current(self._folder, self._machine, variants)
        return not current and importlib.util.find_spec("ziglang") is None

    def _variants(self, version: str) -> tuple[Any, ...]:
        known = self._build.VARIANTS
        if self._machine not in known:
            raise RuntimeError(
                f"cannot build bgsoft for {self._machine}: only {' and '.join(known)} are supported"
            )
        is_local = version == "editable" or bool(os.environ.keys() & {"PIP_BUILD_TRACKER", "UV"})
        choice = os.environ.get("BGSOFT_VARIANTS") or ("own" if is_local else "all")
        if choice not in ("all", "own"):
            raise RuntimeError(f"cannot build bgsoft: BGSOFT_VARIANTS is {choice}; set all or own")
        if choice == "all" or self._machine != platform.machine():
            return tuple(known[self._machine])
        if not self._build.runnable(self._machine):
            raise RuntimeError("cannot build bgsoft: this processor lacks SSE4.2")
        return tuple(self._build.runnable(self._machine)[:1])
