"""The picture stages of a stream: each frame is returned at once, equal to the render's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import bgsoft
from bgsoft.errors import DecodeError, InferenceError
from bgsoft.face.base import hiding_ellipse
from bgsoft.frame import Frame, FrameFormat, PixelLayout
from bgsoft.infer.shared import ModelUser, SharedModels
from bgsoft.live.policy import Quality
from bgsoft.live.settings import picture_config
from bgsoft.live.source import LIVE_TICKS
from bgsoft.live.stages import LiveStages, dimmed
from bgsoft.live.switch import StageSwitch
from bgsoft.media.info import Crop, Orientation, VideoInfo
from bgsoft.media.planes import plane_views
from bgsoft.media.probe import probe
from bgsoft.pipeline.metrics import Metrics
from bgsoft.rendering.build import StageBuilder
from bgsoft.report import Event
from bgsoft.settings.config import FaceMode
from bgsoft.settings.hide import HideStyle
from bgsoft.settings.presets import Layer
from tests.face_clips import FACE, HALF_FACE, SAMPLE, write_guest_first
from tests.live_frames import SMALL, live_frame
from tests.marks import slow
from tests.rendering import video_info

FRAMES = 4


@pytest.fixture(scope="module")
def info() -> VideoInfo:
    return replace(probe(SAMPLE), time_base=Fraction(1, LIVE_TICKS), start_pts=0)


@pytest.fixture(scope="module")
def builder() -> Iterator[StageBuilder]:
    made = StageBuilder(
        picture_config("soft", {}).backends, lambda _event: None, user=ModelUser(SharedModels())
    )
    yield made
    made.close()


def pictures() -> list[av.VideoFrame]:
    with av.open(str(SAMPLE)) as container:
        frames = container.decode(video=0)
        return [next(frames) for _ in range(FRAMES)]


def made(builder: StageBuilder, info: VideoInfo, flags: Layer, **wanted: bool) -> LiveStages:
    config = picture_config("soft", flags)
    stages = LiveStages(builder, config, info, Metrics(), **wanted)
    stages.start()
    return stages


@pytest.mark.parametrize("mode", ["off", *map(slow, ("guard", "main")), "anonymize"])
def test_no_frame_is_kept_back(builder: StageBuilder, info: VideoInfo, mode: str) -> None:
    everybody = {"subjects": 0} if mode == "anonymize" else {}
    flags = {"face": {"mode": FaceMode(mode), **everybody}}
    with made(builder, info, flags, keeps_source=True, takes_faces=True) as stages:
        for number, picture in enumerate(pictures()):
            frame = stages.process(picture, 3000 * number)
            assert (frame.pts, frame.index) == (3000 * number, number)
            source = stages.source
            assert source is not None
            assert np.array_equal(source.luma, plane_views(picture.planes, np.uint8)[0])
            assert len(stages.faces) == (mode != "off")
            if mode == "anonymize":
                # It is hidden from the frame on in which it is found.
                hidden = frame.luma[FACE].astype(int) - source.luma[FACE]
                assert abs(hidden).mean() > 3
            for face in stages.faces:
                assert hiding_ellipse(face).across > 20


def test_a_streams_frames_are_the_renders(builder: StageBuilder, info: VideoInfo) -> None:
    """A render inspects frames in batches, a stream one by one; the frames are equal."""
    flags = {"face": {"mode": FaceMode.OFF}}
    mattes = [
        frame.alpha
        for frame, _ in zip(
            bgsoft.frames(str(SAMPLE), preset="soft", face="off", alpha=True),
            range(FRAMES),
            strict=False,
        )
    ]
    with made(builder, info, flags) as stages:
        for picture, matte in zip(pictures(), mattes, strict=True):
            assert np.array_equal(stages.process(picture, 0).planes.alpha, matte)


@pytest.mark.parametrize("change", ["settings", "size", "hang", "failure"])
def test_whoever_is_hidden_stays_so_in_other_stages(
    builder: StageBuilder,
    info: VideoInfo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    """The guest is shown; the larger person comes later, and is hidden."""
    config = picture_config("soft", {"face": {"mode": FaceMode.ANONYMIZE}})
    switch = StageSwitch(builder, config, Metrics(), lambda: True, lambda _what: None)
    hidden: list[bool] = []

    def fail(*_: object) -> None:
        raise InferenceError("out of memory")

    with av.open(str(write_guest_first(tmp_path / "guest.mp4", 15, 9))) as container:
        for number, picture in enumerate(container.decode(video=0)):
            if number == 12:
                if change == "settings":
                    switch.apply(replace(config, effect=replace(config.effect, strength=3.0)))
                elif change == "hang":
                    switch.restart(builder)
                elif change == "failure":
                    running = switch.stages_for(info)
                    with monkeypatch.context() as patch, pytest.raises(InferenceError):
                        patch.setattr(running._stages.segmenter, "masks", fail)
                        running.process(picture, 3000 * number - 1)
                else:
                    small = replace(info.format, width=640, height=360)
                    info = replace(info, coded_width=640, coded_height=360, format=small)
            sized = picture.reformat(info.format.width, info.format.height)
            stages = switch.stages_for(info)
            frame, source = stages.process(sized, 3000 * number), stages.source
            assert source is not None
            face = FACE if frame.format.width == 1280 else HALF_FACE
            hidden.append(abs(frame.luma[face].astype(int) - source.luma[face]).mean() > 3)
    switch.close()
    assert hidden[9:] == [True] * 6


@pytest.mark.parametrize(
    "changes",
    [
        {"orientation": Orientation(rotation=180)},
        {"coded_width": 1296, "crop": Crop(right=16)},
        {"sample_aspect_ratio": Fraction(2)},
    ],
)
def test_stages_are_of_one_view(
    builder: StageBuilder, info: VideoInfo, changes: dict[str, Any]
) -> None:
    with made(builder, info, {"face": {"mode": FaceMode.OFF}}) as stages:
        assert stages.fits(replace(info, notices=("others",)))
        assert not stages.fits(replace(info, **changes))


def test_pixels_of_regions_are_those_of_the_first_pictures(
    builder: StageBuilder, info: VideoInfo
) -> None:
    hide = {"regions": ("320,180,640,88",), "style": HideStyle.SOLID}
    config = picture_config("soft", {"face": {"mode": FaceMode.OFF}, "hide": hide})
    lines: list[str] = []
    switch = StageSwitch(builder, config, Metrics(), lambda: False, lambda _: None, lines.append)
    picture = av.VideoFrame.from_ndarray(np.full((720, 1280), 200, np.uint8), format="gray")
    switch.stages_for(replace(info, notices=("alpha channel dropped",))).process(picture, 0)
    half = replace(info.format, width=640, height=360)
    small = replace(info, coded_width=640, coded_height=360, format=half)
    for seen in (replace(small, notices=("alpha channel dropped",)), info, small):
        frame = switch.stages_for(seen).process(picture.reformat(*frame_size(seen)), 1)
    switch.close()
    rows, columns = np.nonzero(frame.luma == 16)
    box = np.s_[90:134, 160:480]
    assert (frame.luma[box] == 16).all()
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (90, 133, 160, 479)
    assert lines == [
        "notice: alpha channel dropped",
        "notice: the picture size changed from 1280x720 to 640x360",
        "notice: the picture size changed from 640x360 to 1280x720",
    ]


@pytest.mark.parametrize("change", ["settings", "regions", "failure", "hang"])
def test_a_followed_region_goes_on_in_other_stages(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InferenceError("out of memory")

    file = tmp_path / "r.toml"
    region = 'action = "hide"\nbox = "40,60,40,40"\nfollow = true'
    file.write_text(f"[[region]]\n{region}\n")
    flags = {
        "face": {"mode": FaceMode.OFF},
        "regions": {"file": str(file)},
        "hide": {"style": HideStyle.SOLID},
    }
    info = video_info(FrameFormat(width=320, height=180))
    config, events = picture_config("soft", flags), list[Event]()
    builder = StageBuilder(config.backends, events.append)
    switch = StageSwitch(builder, config, Metrics(), lambda: False, lambda _: None)
    detail = np.random.default_rng(1).integers(60, 220, (10, 10)).astype(np.uint8)
    left: list[int] = []
    for number in range(12):
        gray = np.full((180, 320), 128, np.uint8)
        gray[60:100, 40 + 4 * number : 80 + 4 * number] = np.kron(detail, np.ones((4, 4), np.uint8))
        if number == 6 and change == "settings":
            switch.apply(replace(config, effect=replace(config.effect, strength=3.0)))
        elif number == 6 and change == "regions":
            added = 'action = "hide"\nbox = "200,140,20,20"'
            file.write_text(f"[[region]]\n{added}\n[[region]]\n{region}\n")
            switch.apply(picture_config("soft", flags))
        elif number in (6, 9) and change == "hang":
            switch.restart(builder)
        picture = av.VideoFrame.from_ndarray(gray, format="gray")
        if number == 6 and change == "failure":
            stages = switch.stages_for(info)
            with monkeypatch.context() as patch, pytest.raises(InferenceError):
                patch.setattr(stages._stages.segmenter, "masks", fail)
                stages.process(picture, 3600 * number - 1)
        frame = switch.stages_for(info).process(picture, 3600 * number)
        left.append(int(np.nonzero(frame.luma == 16)[1].min()))
    switch.close()
    kept = 6 if change == "hang" else 12
    assert np.abs(np.subtract(left, range(40, 88, 4))[:kept]).max() <= 2
    lost = "region 1 of r.toml was lost; it begins again where it was drawn"
    assert [each.message for each in events] == ([] if kept == 12 else [lost])


def frame_size(info: VideoInfo) -> tuple[int, int]:
    return info.format.width, info.format.height


def test_less_quality_looks_for_people_and_faces_more_seldom(
    builder: StageBuilder, info: VideoInfo
) -> None:
    with made(builder, info, {}) as stages:
        stages.set_quality(Quality(2, 3))
        assert stages._stages.schedule.every == 3
        assert stages._stages.faces is not None
        assert stages._stages.faces.every == 2
        for number, picture in enumerate(pictures()):
            stages.process(picture, number)


def test_a_picture_that_cannot_be_converted_leaves_the_next_alone(
    builder: StageBuilder, info: VideoInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = pictures()

    def refuse(*_: object) -> None:
        raise DecodeError("no conversion")

    with made(builder, info, {}) as stages:
        stages.process(first, 0)
        with monkeypatch.context() as patch, pytest.raises(DecodeError):
            patch.setattr(stages._pictures._given._writer, "write", refuse)
            stages.process(second, 1)
        assert stages.process(second, 2).pts == 2


@pytest.mark.parametrize("layout", list(PixelLayout))
def test_a_dimmed_frame_is_a_darker_copy(layout: PixelLayout) -> None:
    frame: Frame = live_frame(200, replace(SMALL, layout=layout)).frame
    dark = dimmed(frame)
    shift = 0 if layout is PixelLayout.NV12 else 8
    assert int(dark.luma[0, 0]) >> shift == 16 + (200 - 16) * 4 // 10
    assert int(dark.chroma[0, 0, 0]) >> shift == 128 + (200 - 128) * 4 // 10
    assert np.array_equal(dark.planes.alpha, frame.planes.alpha)
    assert not np.shares_memory(dark.luma, frame.luma)
