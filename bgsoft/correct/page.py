"""The page itself: its requests, and what they read and change."""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bgsoft.closing import Closing
from bgsoft.correct.frames import FrameRenderer
from bgsoft.correct.regions import RegionsFile
from bgsoft.correct.scan import Scan
from bgsoft.errors import ConfigError
from bgsoft.page_server import PageRequest, PageServer, parse_number
from bgsoft.pages import read_page
from bgsoft.review.evidence import read_report
from bgsoft.review.videos import ReviewVideo
from bgsoft.settings.config import RenderConfig
from bgsoft.settings.regions import Length, Outline, Region, RegionShape

_PAGE = Path(__file__).with_name("page.html")


class CorrectionPage(Closing):
    """A page on which regions of a video are drawn, tried on frames, and saved.

    Args:
        config: Settings of a render. Its regions are those of flags, which the page does not show.
        regions: The file to edit.
        report: Report of a render of the video, for the timeline; None: the video is scanned.
        at_seconds: Time of the frame that is shown first.
        port: 0: any free port.

    Raises:
        ConfigError: A file or setting cannot be used; or the time is past the end.
        MediaError: The video cannot be read.
        ModelError: The model cannot be used.
        OutputError: The port is in use.
    """

    def __init__(
        self,
        config: RenderConfig,
        regions: Path,
        *,
        report: Path | None = None,
        at_seconds: float = 0.0,
        port: int = 0,
    ) -> None:
        self._config = config
        remedy = "name one, or add OUT.png to preview a picture"
        self._video = ReviewVideo(config.input, "correct", remedy)
        self._file = RegionsFile(regions)
        self._times = [self._video.stamp(number) for number in range(len(self._video.pts))]
        if not 0 <= at_seconds <= self._times[-1]:
            raise ConfigError(
                f"--at must be between 0 and {self._times[-1]:g} s, the last frame of"
                f" {config.input.name}, not {at_seconds:g} s"
            )
        self._start = next(n for n, time in enumerate(self._times) if time >= at_seconds)
        evidence = None if report is None else read_report(report, self._video, None)
        self._working = threading.Lock()
        """Held by a request that reads frames or the file."""
        server = PageServer[CorrectionPage](port, self, _Request, "page")
        try:
            self._renderer = FrameRenderer(config, self._video)
        except BaseException:
            server.server_close()
            raise
        self._scan = Scan(config, self._video, evidence)
        self._server, self.url, self.token = server, server.url, server.token
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Frames of the video."""
        return len(self._times)

    def state(self) -> dict[str, Any]:
        """Read the regions file again, and return the page's first data."""
        info = self._video.info
        end = max(self._times[-1] + float(1 / info.nominal_rate), info.duration_seconds or 0.0)
        with self._working:
            self._file.read()
            return {
                "name": self._video.path.name,
                "width": info.format.width,
                "height": info.format.height,
                "times": self._times,
                "end": end,
                "start": self._start,
                "file": str(self._file.path),
                "version": self._file.version,
                "regions": [_shown(each) for each in self._file.regions],
            }

    def timeline(self) -> dict[str, Any]:
        """Return the timeline as SVG, and how many frames it shows."""
        scan = self._scan
        return {"svg": scan.draw(), "frames": scan.frames, "failure": scan.failure}

    def source(self, number: int) -> bytes:
        """Return a frame of the video as a JPEG; raises MediaError if it does not decode."""
        with self._working:
            return self._scan.give_way(lambda: self._renderer.source(number))

    def result(self, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Render a frame with the regions of the page.

        Raises:
            BgsoftError: That is impossible.
        """
        number = sent.get("number")
        if not isinstance(number, int) or not 0 <= number < self.count:
            raise ConfigError(f"cannot show frame {number!r}: there is no such frame")
        with self._working:
            _, regions = self._file.compose(sent.get("version"), sent.get("regions"))
            everything = (*self._config.all_regions, *regions)
            made = self._scan.give_way(lambda: self._renderer.result(number, everything))
        pictures = {"result": made.picture, "matte": made.matte}
        encoded = {name: base64.b64encode(data).decode() for name, data in pictures.items()}
        return {**encoded, "notices": made.notices}

    def save(self, sent: Mapping[str, Any]) -> None:
        """Save the regions of the page; raises BgsoftError if that is impossible."""
        with self._working:
            _, regions = self._file.compose(sent.get("version"), sent.get("regions"))
            self._renderer.check(regions)
            self._file.save(sent["version"], sent["regions"])

    def close(self) -> None:
        """End all requests and threads."""
        self._server.end()
        self._thread.join()
        self._scan.close()
        with self._working:
            self._renderer.close()


class _Request(PageRequest[CorrectionPage]):
    def get(self, path: str, query: Mapping[str, str]) -> bool:
        page = self.server.shown
        if path == "/":
            self.answer("text/html; charset=utf-8", read_page(_PAGE).encode())
        elif path == "/state":
            self.answer_json(page.state())
        elif path == "/timeline":
            self.answer_json(page.timeline())
        elif path == "/source" and (number := parse_number(query.get("number", ""))) is not None:
            if number >= page.count:
                return False
            self.answer("image/jpeg", page.source(number))
        else:
            return False
        return True

    def post(self, path: str, sent: dict[str, Any]) -> Mapping[str, Any] | None:
        page = self.server.shown
        if path == "/result":
            return page.result(sent)
        if path == "/save":
            page.save(sent)
            return page.state()
        return None


def _shown(region: Region) -> dict[str, Any]:
    """Return a region for the page: its key frames as text, its times as seconds."""
    keys = [{"at": float(key.seconds), "place": _place(region.shape, key)} for key in region.keys]
    return {
        "action": region.action,
        "shape": region.shape,
        "keys": keys,
        "from": float(region.begin),
        "to": None if region.end is None else float(region.end),
        "follow": region.follow,
    }


def _place(shape: RegionShape, outline: Outline) -> str:
    texts = [_length(length) for length in outline.lengths]
    if shape is not RegionShape.POLYGON:
        return ",".join(texts)
    return " ".join(",".join(pair) for pair in zip(texts[::2], texts[1::2], strict=True))


def _length(length: Length) -> str:
    text = f"{float(length.amount):.6f}".rstrip("0").rstrip(".")
    return text + "%" * length.is_percent
