"""From what the user names to sinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bgsoft.errors import BgsoftError, ConfigError
from bgsoft.live.base import Sink
from bgsoft.live.encoded import EncodedSink
from bgsoft.live.settings import LiveSettings
from bgsoft.live.stream import LiveStream

CAMERAS = "/dev/video"


def open_sinks(
    stream: LiveStream,
    targets: Sequence[str],
    *,
    settings: LiveSettings,
    share: str | None = None,
    preview: int | None = None,
    overwrite: bool = False,
    report: Callable[[str], None],
) -> None:
    """Open the sinks of a stream, and give them to it; after an error it has none.

    Args:
        stream: Gets them.
        targets: Files, addresses, and virtual cameras.
        settings: What a preview page may change.
        share: Name to share frames under.
        preview: Port of a page to look at; 0: any that is free.
        overwrite: Files may be replaced.
        report: Told where the page is.

    Raises:
        ConfigError: There is nothing to send frames to.
        OutputError, UnsupportedFormatError, BackendUnavailableError: One cannot be opened.
    """
    if not targets and share is None and preview is None:
        raise ConfigError(f"{stream.name}: say where frames go: --to, --share or --preview")
    try:
        for target in targets:
            stream.sinks.append(_open(target, stream, overwrite=overwrite))
        if share is not None:
            from bgsoft.live.shared import SharedWriter

            stream.sinks.append(SharedWriter(share))
            stream.takes_faces = True
        if preview is not None:
            from bgsoft.live.preview import PreviewServer

            server = PreviewServer(preview, settings)
            stream.sinks.append(server)
            report(f"{stream.name}: look at {server.url}")
    except BgsoftError:
        stream.close_sinks()
        raise


def _open(target: str, stream: LiveStream, *, overwrite: bool) -> Sink:
    config = stream.config
    if target.startswith(CAMERAS):
        from bgsoft.live.virtual_camera import VirtualCamera

        return VirtualCamera(target, config, lambda: stream.info)
    inputs = (*config.inputs, *stream.capture.spec.files)
    return EncodedSink(target, config, lambda: stream.info, overwrite=overwrite, inputs=inputs)
