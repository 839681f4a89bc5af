"""Compiles the native library into the package, for wheels and editable installs."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeLibrary(BuildHookInterface[Any]):
    """Runs ``bgsoft/ops/build.py``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        path = Path(self.root, "bgsoft", "ops", "build.py")
        spec = importlib.util.spec_from_file_location("build_ops", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        machine = platform.machine()
        module.build(path.parent / "lib", machine)
        # Ignored by git, so hatchling is told of it; nothing in it is bound to a Python version.
        build_data["artifacts"].append("/bgsoft/ops/lib/*.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}"
