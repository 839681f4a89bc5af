"""The exceptions that bgsoft raises.

Tree::

    BgsoftError
    ├── ConfigError(ValueError)        a value the user gave is wrong
    │   └── PresetError                a preset is unknown or malformed
    ├── BackendUnavailableError        a stage's backend cannot run here
    │   └── MixedModelError            a GPU would leave a part of the model to another provider
    ├── MediaError
    │   ├── OpenError                  the input cannot be opened or has no video
    │   ├── UnsupportedFormatError     the input, or what is asked of the output, has no path
    │   ├── DecodeError                decoding failed part-way
    │   ├── EncodeError                encoding failed part-way
    │   └── OutputError                the output cannot be written
    │       └── DiskFullError          there is no room for it
    ├── ModelError
    │   ├── ModelDownloadError         a catalogue model could not be fetched
    │   └── ModelIntegrityError        a model file is not what the catalogue says
    ├── InferenceError                 a model failed on a frame
    ├── VerificationError              frames or timestamps were lost during the render
    ├── StallError                     no frame passed any stage for too long
    ├── WorkerDiedError                a worker process ended before its task did
    │   └── WorkerCrashedError         a library crashed in it, as on some damaged files
    └── RenderCancelledError           the caller asked the render to stop

The errors of vendors (PyAV, ONNX Runtime, CuPy, PyNvVideoCodec) and of the system are translated by
:func:`translated`, through one function each. Every error may carry where it happened: ``stage``,
``path``, ``pts``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from os import PathLike
from typing import Any


class BgsoftError(Exception):
    """Base of all bgsoft errors.

    Args:
        message: One line for the user, without a trailing full stop.
        stage: Pipeline stage, e.g. ``"decode"``, where known.
        path: File concerned, where there is one.
        pts: Presentation timestamp of the frame concerned, in its stream's time base.
    """

    def __init__(
        self,
        message: str,
        *,
        stage: str | None = None,
        path: str | PathLike[str] | None = None,
        pts: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage
        self.path = path
        self.pts = pts
        self.is_reported = False
        """Whether a line of ``bgsoft live`` has told the user, while other work went on."""

    def __str__(self) -> str:
        return self.message


class ConfigError(BgsoftError, ValueError):
    """A setting is out of range, contradictory or of the wrong type."""


class PresetError(ConfigError):
    """A preset is unknown, unreadable or holds unknown keys."""


class BackendUnavailableError(BgsoftError):
    """A stage's backend cannot run here; the message is the reason."""


class MixedModelError(BackendUnavailableError):
    """A GPU would have to leave a part of the model to another provider."""


class MediaError(BgsoftError):
    """Reading or writing media failed."""


class OpenError(MediaError):
    """The input is missing, unreadable, not media, or has no video frames."""


class UnsupportedFormatError(MediaError):
    """No path exists for this codec, pixel format or container."""


class DecodeError(MediaError):
    """Decoding failed part-way through the input."""


class EncodeError(MediaError):
    """Encoding failed, or the encoder refused its settings."""


class OutputError(MediaError):
    """The output cannot be written: folder, permission, space, or it exists already."""


class DiskFullError(OutputError):
    """The disk, or the quota, has no room left."""


class ModelError(BgsoftError):
    """A model is unknown or unusable."""


class ModelDownloadError(ModelError):
    """A catalogue model could not be fetched; the message says where to put it by hand."""


class ModelIntegrityError(ModelError):
    """A model file's size or SHA-256 differs from the catalogue's."""


class InferenceError(BgsoftError):
    """A model failed on a frame."""


class VerificationError(BgsoftError):
    """Decoded and encoded frames differ in number or timestamps."""


class StallError(BgsoftError):
    """No frame has passed any stage for too long; the one that did not return is ``stage``."""


class WorkerDiedError(BgsoftError):
    """A worker process ended, or was ended, before its task did."""


class WorkerCrashedError(WorkerDiedError):
    """A library crashed in a process that worked on a task."""


class RenderCancelledError(BgsoftError):
    """The render was stopped by its caller; nothing was written."""


class translated:  # noqa: N801 - a context manager, entered several times a frame
    """Context manager that turns exceptions of libraries into ours, which they become the cause of.

    Args:
        theirs: Types of exceptions to catch.
        to: Makes the error to raise, from what was caught.
    """

    __slots__ = ("_theirs", "_to")

    def __init__(self, *theirs: type[Exception], to: Callable[[Any], Exception]) -> None:
        self._theirs, self._to = theirs, to

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, exc: BaseException | None, _traceback: object) -> None:
        if exc is not None and isinstance(exc, self._theirs):
            raise self._to(exc) from exc


def errors_as(
    theirs: tuple[type[Exception], ...],
    error: Callable[..., BgsoftError],
    text: str,
    *,
    reason: Callable[[Any], object] = lambda exc: getattr(exc, "strerror", None) or exc,
    **where: Any,
) -> AbstractContextManager[None]:
    """Turn exceptions of libraries into ``error``: ``text``, a colon, and their ``reason``.

    ``where`` are keywords of :class:`BgsoftError`.
    """
    return translated(*theirs, to=lambda exc: error(f"{text}: {reason(exc)}", **where))


os_errors_as = partial(errors_as, (OSError,))
"""Turn the system's errors of files and folders into ``error``."""
