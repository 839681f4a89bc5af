"""A file of a batch on another machine: what that one does not see is brought, and taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bgsoft.chunks.tasks import PlanRender, RenderWhole
from bgsoft.config import RenderConfig
from bgsoft.errors import BgsoftError, DiskFullError, WorkerDiedError
from bgsoft.jobs.link import Link, private_folder
from bgsoft.jobs.task import TaskContext
from bgsoft.models.catalog import is_model_file
from bgsoft.rendering import inputs_of, plain_settings
from bgsoft.report import Event, RenderReport


def render_elsewhere(config: RenderConfig, link: Link, context: TaskContext) -> object:
    """Render a file where some of what is read or written may be missing.

    Returns:
        The RenderReport; or what leads to it, where all is seen and it is to be in parts.

    Raises:
        BgsoftError: As :func:`bgsoft.rendering.render_config`.
        WorkerDiedError: This machine has no room for copies; another one may have.
    """
    places: dict[Path, Path] = {}
    fetched: list[Path] = []
    for group in _read(config):
        seen = {path: link.seen(path) for path in group}
        places.update({path: place for path, place in seen.items() if place is not None})
        if len(places.keys() & set(group)) < len(group):
            fetched += group
    delivered = []
    for path in filter(None, (*config.videos, config.face_data, config.trace)):
        place = link.seen_output(path)
        if place is None:
            delivered.append(path)
        else:
            places[path] = place
    copied = [*fetched, *delivered]
    if not copied:
        moved = _moved(config, places)
        in_parts = (config.chunks or 1) > 1
        task = PlanRender(moved) if in_parts else RenderWhole(moved)
        return _named(task.run(context), config, {})
    with private_folder() as folder:
        parents = list(dict.fromkeys(path.parent for path in copied))
        for path in copied:
            places[path] = folder / str(parents.index(path.parent)) / path.name
            places[path].parent.mkdir(exist_ok=True)
        copies = {str(places[path]): str(path) for path in copied}

        def tell(message: object) -> None:
            context.tell(_named(message, config, copies))

        try:
            for path in fetched:
                link.fetch(path, places[path])
            report = RenderWhole(_moved(config, places)).run(replace(context, tell=tell))
            for path in delivered:
                if places[path].exists():  # without a frame there is no face data
                    link.deliver(places[path], path, overwrite=config.overwrite)
        except BgsoftError as exc:
            if isinstance(exc, DiskFullError) and Path(exc.path or "").is_relative_to(folder):
                raise WorkerDiedError(f"no room for copies of files: {exc}") from exc
            exc.message = _original(exc.message, copies)
            exc.args = (exc.message,)
            exc.path = None if exc.path is None else _original(str(exc.path), copies)
            exc.__notes__ = []  # of files that were kept: these are not
            raise
    return _named(report, config, copies)


def _read(config: RenderConfig) -> list[list[Path]]:
    """The files that are read; those of a group have to lie side by side."""
    groups = [[path] for path in inputs_of(config)]
    if is_model_file(config.segment.model):
        model = Path(config.segment.model)
        groups.append([model, model.with_suffix(".toml")])
    return groups


def _moved(config: RenderConfig, places: Mapping[Path, Path]) -> RenderConfig:
    """The settings with the places where files are."""

    def place(path: Path | None) -> Path | None:
        return None if path is None else places[path]

    def named(name: str) -> str:
        return str(places.get(Path(name), name))

    background = config.effect.background

    return replace(
        config,
        input=places[config.input],
        output=places[config.output],
        matte_out=place(config.matte_out),
        face_data=place(config.face_data),
        trace=place(config.trace),
        receipt=None,
        effect=replace(config.effect, background=background and named(background)),
        segment=replace(config.segment, model=named(config.segment.model)),
    )


def _named(message: object, config: RenderConfig, copies: Mapping[str, str]) -> object:
    """A message or report with the names that the files have at home."""
    if isinstance(message, Event):
        return _event(message, copies)
    if isinstance(message, RenderReport):
        own = plain_settings(config)
        paths = {key: own[key] for key in ("matte_out", "face_data", "effect", "segment")}
        return replace(
            message,
            input=str(config.input),
            output=str(config.output),
            settings={**message.settings, **paths},
            events=[_event(event, copies) for event in message.events],
        )
    return message


def _event(event: Event, copies: Mapping[str, str]) -> Event:
    return replace(event, message=_original(event.message, copies))


def _original(text: str, copies: Mapping[str, str]) -> str:
    for copy, path in copies.items():
        text = text.replace(copy, path)
    return text
