"""``bgsoft models``: list, locate and pull models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from bgsoft.cli import flags
from bgsoft.cli.console import Console

_FREE_LICENCES = frozenset({"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC"})
"""Licences without conditions for those who render with the model."""


def _names() -> Iterable[str]:
    from bgsoft.models.catalog import catalog

    return catalog()


_Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name from bgsoft models list.",
        autocompletion=flags.completion(_names),
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    flags.add_group(
        app,
        "models",
        "List, download and locate the models that find people.",
        {"models list": list_, "models pull NAME --yes": pull, "models path selfie-general": path},
    )


def list_() -> int:
    """List the models with state, size and licence."""
    from bgsoft.models.catalog import catalog, is_present

    for spec in catalog().values():
        state = "embedded" if spec.embedded else "pulled" if is_present(spec) else "-"
        size = f"{spec.bytes / 1e6:.1f} MB" if spec.bytes else "-"
        described = f"{size:>8}  {spec.licence:<11} {spec.description}"
        Console().out(f"{spec.name:<21} {state:<9} {described}")
    return 0


def path(name: _Name) -> int:
    """Print the path of a model's file."""
    from bgsoft.errors import ModelError
    from bgsoft.models.catalog import find_spec, is_present, spec_path

    spec = find_spec(name)
    if not is_present(spec):
        raise ModelError(
            f"cannot use model {name}: it is not downloaded; run bgsoft models pull {name}"
        )
    Console().out(str(spec_path(spec)))
    return 0


def pull(
    name: _Name, yes: Annotated[bool, flags.option("Accept the model's licence.", "--yes")] = False
) -> int:
    """Download a model and check it."""
    from bgsoft.errors import ConfigError
    from bgsoft.models import cache
    from bgsoft.models.catalog import find_spec, spec_path

    console = Console()
    spec = find_spec(name)
    if spec.url is None or spec.checksum is None:
        console.err(f"{name} comes with bgsoft; there is nothing to pull")
        return 0
    size = f"{spec.bytes / 1e6:.1f} MB from " if spec.bytes else ""
    console.err(f"{name}: {size}{spec.source}, licence {spec.licence}")
    if spec.licence not in _FREE_LICENCES and not yes:
        raise ConfigError(
            f"cannot pull {name}: its licence, {spec.licence}, binds those who pass it on; "
            f"accept it with: bgsoft models pull {name} --yes"
        )
    file = spec_path(spec)
    shown = 0

    def show_quarters(done: int, total: int) -> None:
        nonlocal shown
        quarter = 4 * done // total if total else 0
        if quarter > shown:
            shown = quarter
            console.err(f"  {quarter * 25} %")

    fetched = cache.pull(
        spec.url, file, size_bytes=spec.bytes, checksum=spec.checksum, on_progress=show_quarters
    )
    console.err(f"{'pulled' if fetched else 'already here'}, {spec.checksum.label} ok: {file}")
    return 0
