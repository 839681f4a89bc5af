"""Rendered frames as arrays, compared with ffmpeg's of a lossless render; nothing stays open."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import bgsoft
from bgsoft.encode.base import PictureKind
from bgsoft.errors import ConfigError, OpenError, RenderCancelledError, StallError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.rendering.frames import HandOver, _end_all
from bgsoft.report import Event
from bgsoft.settings.config import EffectKind
from tests.assets import CLIPS
from tests.face_clips import SAMPLE, write_small
from tests.fakes import host_planes
from tests.marks import slow
from tests.outside import ffmpeg, shown_by_ffmpeg
from tests.processes import run_python
from tests.rendering import video_info

QUICK: Any = {"face": "off", "matte": "fast", "mask_every": 25}


@pytest.fixture
def small(clip_folder: Path) -> Path:
    return CLIPS["bframes.mp4"].build(clip_folder)


def decoded_by_ffmpeg(path: Path, pixel_format: str, *filters: str) -> bytes:
    raw = path.with_suffix(".raw")
    ffmpeg("-i", path, *filters, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt",
           pixel_format, raw)  # fmt: skip
    return raw.read_bytes()


def rendered_by_ffmpeg(source: Path, folder: Path, like: NDArray[Any], **settings: Any) -> Any:
    """All pictures of a lossless render, as ffmpeg decodes them: (N, H, W, 3)."""
    target = folder / "lossless.mkv"
    bgsoft.render(source, target, codec="ffv1", **settings)
    raw = decoded_by_ffmpeg(target, "rgb24" if like.dtype == np.uint8 else "rgb48le")
    return np.frombuffer(raw, like.dtype).reshape(-1, *like.shape)


@pytest.mark.parametrize(
    "name",
    [
        *("vfr.mp4", "full.mp4", "odd.mkv", "tiny.mkv", "ten.mkv", "gray10.mkv"),
        *map(slow, ("hdr10.mp4", "rgb.mkv", "422.mkv", "interlaced.mp4", "editlist.mp4")),
    ],
)
def test_pictures_are_those_of_a_lossless_render(
    name: str, clip_folder: Path, tmp_path: Path
) -> None:
    source = CLIPS[name].build(clip_folder)
    frames = list(bgsoft.frames(source, **QUICK))
    depth = 16 if CLIPS[name].layout == "p010" else 8
    assert all(frame.picture.dtype == f"uint{depth}" for frame in frames)
    expected = rendered_by_ffmpeg(source, tmp_path, frames[0].picture, chroma="420", **QUICK)
    assert len(frames) == len(expected) == len(CLIPS[name].indices)
    step = 1 << (depth - 8)
    for frame, picture in zip(frames, expected, strict=True):
        assert np.abs(frame.picture.astype(int) - picture).max() <= step
    assert [frame.index for frame in frames] == list(range(len(frames)))
    assert [frame.time_seconds for frame in frames] == shown_by_ffmpeg(source)


@pytest.mark.parametrize("effect", ["alpha", *map(slow, ("blur", "matte"))])
def test_effects_and_mattes_are_those_of_a_lossless_render(effect: Any, tmp_path: Path) -> None:
    settings: Any = {**QUICK, "effect": effect, "duration": 0.05}
    clip = write_small(tmp_path / "in.mp4", 2)
    frames = list(bgsoft.frames(clip, alpha=effect != "alpha", **settings))
    pictures = rendered_by_ffmpeg(clip, tmp_path, frames[0].picture, **settings)
    for frame, picture in zip(frames, pictures, strict=True):
        assert np.abs(frame.picture.astype(int) - picture).max() <= 1
    cut = tmp_path / "cut.mkv"
    bgsoft.render(clip, cut, codec="ffv1", **{**settings, "effect": "alpha"})
    raw = decoded_by_ffmpeg(cut, "gray", "-vf", "alphaextract")
    mattes = np.frombuffer(raw, np.uint8).reshape(len(frames), 180, 320)
    for frame, matte in zip(frames, mattes, strict=True):
        assert frame.alpha is not None
        # The edge of a blur is fitted on fewer lines.
        limit, error = (24, 2.0) if effect == "blur" else (0, 0.0)
        difference = np.abs(frame.alpha.astype(int) - matte)
        assert (difference > limit).mean() <= error / 100


def test_a_frame_has_a_matte_only_where_asked_and_keeps_its_arrays(small: Path) -> None:
    frames = bgsoft.frames(small, **QUICK)
    first = next(frames)
    kept = first.picture.copy()
    assert first.alpha is None
    first.picture[:] += 1
    rest = list(frames)
    assert np.array_equal(first.picture, kept + 1)
    assert not any(np.shares_memory(first.picture, frame.picture) for frame in rest)


def test_the_report_says_what_ran_and_nothing_is_written(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frames = bgsoft.frames(small, **QUICK)
    assert frames.report is None
    count = len(list(frames))
    assert frames.report is not None
    assert frames.report.frames_decoded == count == 30
    assert set(frames.report.stages) == {"decode", "segment", "matte", "composite", "face"}
    assert not list(tmp_path.iterdir())
    assert list(frames) == []


def leave_loop(source: Path) -> None:
    for _ in bgsoft.frames(source, **QUICK):
        break


def leave_block(source: Path) -> None:
    with bgsoft.frames(source, **QUICK) as frames:
        next(frames)
        next(frames)


def raise_inside(source: Path) -> None:
    with pytest.raises(KeyError):
        for frame in bgsoft.frames(source, **QUICK):
            raise KeyError(frame.index)


def never_start(source: Path) -> None:
    bgsoft.frames(source, **QUICK)
    frames = bgsoft.frames(source, **QUICK)
    frames.close()
    frames.close()
    assert list(frames) == []


def leave_circle(source: Path) -> None:
    frames = bgsoft.frames(source, **QUICK)
    circle: list[object] = [frames]
    circle.append(circle)
    next(frames)
    del frames, circle
    gc.collect()


@pytest.mark.parametrize("times", [10, slow(50)])
def test_leaving_early_leaves_nothing_behind(times: int, small: Path) -> None:
    ways: list[Callable[[Path], None]] = [
        *(leave_loop, leave_block, raise_inside, never_start, leave_circle)
    ]
    counts = []
    for way in itertools.islice(itertools.cycle(ways), times):
        way(small)
        counts.append((threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))))
    assert len(set(counts[len(ways) :])) == 1, counts


IN_THE_MIDDLE = """
import sys, bgsoft
frames = bgsoft.frames(sys.argv[1], face="off", matte="fast")
print(next(frames).picture.shape)
"""
LEFT_IN_A_THREAD = r"""
import sys, threading, bgsoft
def look():
    for frame in bgsoft.frames(sys.argv[1], face="off", matte="fast"):
        print(f"{frame.picture.shape}\n", end="")
        return
threads = [threading.Thread(target=look) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize(("code", "times"), [slow(IN_THE_MIDDLE, 1), (LEFT_IN_A_THREAD, 3)])
def test_an_exit_in_the_middle_is_a_clean_one(small: Path, code: str, times: int) -> None:
    done = run_python("-c", code, small)
    assert (done.returncode, done.stdout, done.stderr) == (0, times * "(72, 96, 3)\n", "")


def test_an_open_render_ends_with_the_process() -> None:
    """Also where exit functions run before finalizers: that depends on what was loaded first."""
    frames = bgsoft.frames(SAMPLE, **QUICK)
    next(frames)
    _end_all()
    assert "bgsoft-frames" not in {thread.name for thread in threading.enumerate()}
    assert list(frames) == []


OUTLIVES_THE_MAIN_THREAD = """
import sys, threading
def work():
    threading.main_thread().join()
    import bgsoft
    quick = {"face": "off", "matte": "fast"}
    print(bgsoft.render(sys.argv[1], sys.argv[2], **quick).frames_encoded)
    print(sum(1 for _ in bgsoft.frames(sys.argv[1], **quick)))
threading.Thread(target=work).start()
"""


def test_a_thread_may_render_longer_than_the_main_one_lives(small: Path, tmp_path: Path) -> None:
    done = run_python("-c", OUTLIVES_THE_MAIN_THREAD, small, tmp_path / "out.mkv")
    count = len(shown_by_ffmpeg(small))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{count}\n{count}\n", "")


def test_two_at_a_time(small: Path) -> None:
    alone = [frame.picture for frame in bgsoft.frames(small, effect="dim", **QUICK)]
    pairs = zip(
        bgsoft.frames(small, effect="dim", **QUICK),
        bgsoft.frames(small, effect="pixelate", **QUICK),
        strict=True,
    )
    for count, (one, other) in enumerate(pairs):
        assert one.pts == other.pts
        assert np.array_equal(one.picture, alone[count])
    assert count == len(alone) - 1


def test_who_takes_frames_slowly_holds_the_render_up(small: Path) -> None:
    with bgsoft.frames(small, stall=2, **QUICK) as frames:
        next(frames)
        time.sleep(3.5)  # longer than what would be a standstill
        assert len(list(frames)) == 29


def test_the_end_in_on_event_does_not_wait_for_itself(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The render's own threads call ``on_event``."""
    encode, closed = HandOver.encode, threading.Event()

    def tell_at_five(self: HandOver, frame: Frame) -> None:
        if frame.index == 5:
            frames._rendering._take_event(Event(kind="notice", message="the fifth"))
        encode(self, frame)

    def on_event(event: Event) -> None:
        if event.message == "the fifth":
            with pytest.raises(ConfigError, match="its render waits for on_event"):
                next(frames)
            frames.close()
            closed.set()

    monkeypatch.setattr(HandOver, "encode", tell_at_five)
    frames = bgsoft.frames(small, on_event=on_event, **QUICK)
    assert len(list(frames)) <= 5
    assert closed.wait(30)


def test_frames_may_be_collected_in_the_renders_own_thread(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector frees cyclic references in any thread that creates objects."""
    frames = bgsoft.frames(small, **QUICK)
    rendering = frames._rendering
    render = rendering._render
    monkeypatch.setattr(rendering, "_render", lambda: (rendering.drop(), render()))
    assert list(frames) == []
    assert rendering._thread is not None
    rendering._thread.join(30)
    assert not rendering._thread.is_alive()


def test_a_standstill_of_the_render_is_one(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()
    encode = HandOver.encode

    def stop_at_five(self: HandOver, frame: Frame) -> None:
        if frame.index == 5:
            stuck.wait(30)
        encode(self, frame)

    monkeypatch.setattr(HandOver, "encode", stop_at_five)
    taken = []
    with pytest.raises(StallError, match="see stall"):
        taken.extend(frame.index for frame in bgsoft.frames(small, stall=1, **QUICK))
    stuck.set()
    assert taken == [0, 1, 2, 3, 4]


def test_no_more_than_two_pictures_wait() -> None:
    format = FrameFormat(width=6, height=4)
    taker = HandOver(EffectKind.BLUR, alpha=True)
    assert taker.kind is PictureKind.COLOR_ALPHA
    taker.open(video_info(format))
    tick = video_info(format).time_base
    frames = [Frame(host_planes(format), format, n, 3600 * n, tick) for n in range(4)]
    taker.encode(frames[0])
    taker.encode(frames[1])
    thread = threading.Thread(target=taker.encode, args=(frames[2],), daemon=True)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    assert taker.waits
    first = taker.take()
    assert first is not None
    assert first.index == 0
    thread.join(10)
    assert not thread.is_alive()
    assert not taker.waits
    taker.abandon()
    with pytest.raises(RenderCancelledError):
        taker.encode(frames[3])


def test_errors(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="strength must be between"):
        bgsoft.frames(small, strength=99)
    with pytest.raises(TypeError, match=r"'codec': it is a setting of bgsoft"):
        bgsoft.frames(small, codec="h264")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'strenght'; did you mean strength"):
        bgsoft.frames(small, strenght=2)  # type: ignore[call-arg]
    frames = bgsoft.frames(tmp_path / "none.mp4")
    with pytest.raises(OpenError, match=r"none\.mp4"):
        next(frames)
    assert list(frames) == []
    with pytest.raises(ConfigError, match=r"^cannot read background sea\.png: it does not exist"):
        next(bgsoft.frames(small, background="sea.png"))
