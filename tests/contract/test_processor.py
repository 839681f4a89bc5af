"""Single pictures as arrays: the people untouched, each picture by itself, bad arrays refused."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import av
import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

import bgsoft
from bgsoft.errors import ConfigError, InferenceError
from bgsoft.pipeline.picture import PictureStages
from tests.face_clips import SAMPLE
from tests.marks import crossed, slow
from tests.outside import ffmpeg
from tests.processes import run_python

Image = NDArray[np.uint8]
LOOKS: list[dict[str, Any]] = [
    {"effect": "blur"},
    {"effect": "dim"},
    {"background": "#204060"},
    {"effect": "alpha"},
]


@pytest.fixture(scope="module")
def person() -> Image:
    """A picture of a person, with an odd width and height."""
    with av.open(str(SAMPLE)) as source:
        picture: Image = next(source.decode(video=0)).to_ndarray(format="rgb24")
    return picture[1::2, :-1:2][:359]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: str(*look.values()))
def test_people_are_untouched_bit_for_bit(look: dict[str, Any], person: Image) -> None:
    with bgsoft.Processor(**look) as processor:
        made, alpha = processor.process(person), processor.matte(person)
    inside, outside = alpha == 255, alpha == 0
    assert inside.mean() > 0.1
    assert outside.mean() > 0.3
    assert np.array_equal(made[inside][:, :3], person[inside])
    assert not np.array_equal(made[outside][:, :3], person[outside])
    if look.get("effect") == "alpha":
        assert np.array_equal(made[..., 3], alpha)
    if "background" in look:
        # Beside the edge, a sample of chroma is shared with the person.
        beyond = np.abs(made[outside].astype(int) - (0x20, 0x40, 0x60)).max(axis=1) > 2
        assert beyond.mean() < 0.01


def test_the_matte_and_the_picture_are_a_renders(person: Image, tmp_path: Path) -> None:
    even = np.ascontiguousarray(person[:358, :638])
    (tmp_path / "raw").write_bytes(even.tobytes())
    source = tmp_path / "one.mkv"
    size = f"{even.shape[1]}x{even.shape[0]}"
    ffmpeg(
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-i", tmp_path / "raw"),
        *("-vf", "scale=out_color_matrix=bt709:out_range=tv:flags=accurate_rnd+bicubic"),
        *("-pix_fmt", "yuv420p", "-colorspace", "bt709", "-color_range", "tv", "-c:v", "ffv1"),
        source,
    )
    (frame,) = bgsoft.frames(source, background="green", alpha=True)
    with bgsoft.Processor(background="green") as processor:
        made, alpha = processor.process(even), processor.matte(even)
    assert frame.alpha is not None
    assert np.abs(frame.alpha.astype(int) - alpha).mean() < 0.3
    # The frame has the chroma of 4:2:0, and is decoded as ffmpeg does, which rounds down.
    assert np.abs(frame.picture.astype(int) - made).mean() < 2.5


def test_edges_lie_between_person_and_background(person: Image) -> None:
    with bgsoft.Processor(background="black") as processor:
        made, alpha = processor.process(person), processor.matte(person)
    partly = (alpha > 64) & (alpha < 192)
    light = made[partly].mean(axis=1) / np.maximum(alpha[partly], 1) * 255
    # Over black, what is left of a person's light is its share.
    assert 20 < np.median(light) < 220
    assert made[partly].mean() < person[partly].mean()


@pytest.mark.parametrize(
    "look", [{"effect": "blur"}, slow({"background": str(SAMPLE)}), slow({"face": "anonymize"})]
)
def test_each_picture_stands_alone(look: dict[str, Any], person: Image) -> None:
    noise = np.random.default_rng(1).integers(0, 256, person.shape, np.uint8)
    with bgsoft.Processor(**look) as processor:
        first = processor.process(person)
        for other in (noise, person[::-1], person):
            last = processor.process(other)
    assert np.array_equal(first, last)
    assert np.array_equal(first, bgsoft.process(person, **look))


def test_memory_order_does_not_matter_and_nothing_is_written_to(person: Image) -> None:
    spread = np.zeros((person.shape[0], 2 * person.shape[1], 3), np.uint8)
    spread[:, ::2] = person
    fixed = person.copy()
    fixed.flags.writeable = False
    with bgsoft.Processor(matte="fast", face="off") as processor:
        expected = processor.process(np.ascontiguousarray(person))
        for image in (np.asfortranarray(person), spread[:, ::2], person[..., ::-1][..., ::-1]):
            assert np.array_equal(processor.process(image), expected)
        assert np.array_equal(processor.process(fixed), expected)
    assert np.array_equal(fixed, person)
    assert expected.flags.c_contiguous
    assert expected.flags.writeable


@crossed(size=[(1, 1), (1, 9), (9, 1), (2, 2), (3, 5), (64, 2)], effect=["blur", "alpha"])
def test_small_and_odd_sizes(size: tuple[int, int], effect: Any, person: Image) -> None:
    made = bgsoft.process(person[: size[0], : size[1]], effect=effect)
    assert made.shape == (*size, 4 if effect == "alpha" else 3)


def test_models_are_loaded_once(person: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    make, loaded = ort.InferenceSession, []

    def count(*args: Any, **more: Any) -> Any:
        loaded.append(args)
        return make(*args, **more)

    monkeypatch.setattr(ort, "InferenceSession", count)
    with bgsoft.Processor(face="off") as processor:
        processor.process(person)
        before = len(loaded)
        assert before > 0
        for rows in (359, 200, 101, 200, 359):
            processor.process(person[:rows])
        assert len(loaded) == before


def test_a_processor_that_nobody_closes_leaves_no_thread(person: Image) -> None:
    before = threading.active_count()
    for _ in range(3):
        bgsoft.Processor(matte="fast").process(person[:32, :32])
    gc.collect()
    assert threading.active_count() == before


def test_after_a_failure_the_next_picture_is_as_ever(
    person: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BrokenError(Exception):
        pass

    def fail(*_: object) -> None:
        raise BrokenError

    with bgsoft.Processor() as processor:
        expected = processor.process(person)
        for place in (
            "bgsoft.composite.compositor.PictureCompositor.apply",
            "bgsoft.decode.convert.PlaneWriter.write",
        ):
            with monkeypatch.context() as patch:
                patch.setattr(place, fail)
                for _ in range(20):  # more than there are slots
                    with pytest.raises(BrokenError):
                        processor.process(person[::-1])
            assert np.array_equal(processor.process(person), expected)


def test_hidden_places_stay_hidden(person: Image) -> None:
    alpha = bgsoft.process(person, effect="matte")[..., 0]
    rows, columns = np.nonzero(alpha == 255)
    y, x = int(np.median(rows)), int(np.median(columns))
    place = f"{x - 10},{y - 10},20,20"
    made = bgsoft.process(person, hide=place, anonymize_style="solid", face="off")
    assert made[y - 8 : y + 8, x - 8 : x + 8].max() <= 2


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (None, "not a NoneType"),
        ([[0]], "not a list"),
        (np.zeros((4, 4), np.uint8), r"not an array \(4, 4\) of uint8"),
        (np.zeros((4, 4, 4), np.uint8), r"not an array \(4, 4, 4\) of uint8"),
        (np.zeros((4, 4, 3)), r"not an array \(4, 4, 3\) of float64"),
        (np.zeros((4, 4, 3), np.uint16), r"not an array \(4, 4, 3\) of uint16"),
        (np.zeros((0, 4, 3), np.uint8), r"not an empty array \(0, 4, 3\)"),
    ],
)
def test_what_is_no_picture_is_refused(image: Any, found: str) -> None:
    with (
        bgsoft.Processor(face="off", matte="fast") as processor,
        pytest.raises(ConfigError, match=rf"\(H, W, 3\) of uint8, red first, {found}"),
    ):
        processor.process(image)


def test_errors_of_settings(person: Image) -> None:
    with pytest.raises(TypeError, match="'temporal': it is a setting of bgsoft"):
        bgsoft.process(person, temporal=0.5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="cannot use main 5,5@0:01: a picture has no time"):
        bgsoft.Processor(face="main", main="5,5@0:01")
    with pytest.raises(ConfigError, match="cannot use hide 0,0,4,4@0-1: a picture has no time"):
        bgsoft.Processor(hide="0,0,4,4@0-1")
    with pytest.raises(ConfigError, match="strength must be"):
        bgsoft.Processor(strength=-1)
    with pytest.raises(ConfigError, match="unknown model 'nobody'"):
        bgsoft.Processor(model="nobody")
    processor = bgsoft.Processor()
    processor.close()
    processor.close()
    with pytest.raises(ConfigError, match="closed"):
        processor.process(person)


def test_stages_that_do_not_start_are_freed(person: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, closed, close = list[PictureStages](), list[PictureStages](), PictureStages.close

    def failing(self: PictureStages) -> None:
        failed.append(self)
        raise InferenceError("out of memory")

    def watched(self: PictureStages) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(PictureStages, "close", watched)
    with bgsoft.Processor(face="off", matte="fast") as processor:
        with monkeypatch.context() as patch:
            patch.setattr(PictureStages, "start", failing)
            with pytest.raises(InferenceError, match="out of memory"):
                processor.process(person)
        assert closed == failed != []
        assert processor.process(person).shape == person.shape


FORKED = """
import os, sys
import numpy as np
import bgsoft

made = bgsoft.Processor(face="off", matte="fast")
image = np.zeros((32, 32, 3), np.uint8)
made.process(image)
frames = bgsoft.frames(sys.argv[1], face="off", matte="fast")
next(frames)
child = os.fork()
if child == 0:
    for use in (lambda: made.process(image), lambda: next(frames)):
        try:
            use()
        except bgsoft.errors.ConfigError as exc:
            print(exc)
    made.close()
    frames.close()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(made.process(image).shape, next(frames).index)
"""


def test_a_fork_ends_and_uses_nothing_of_its_parent() -> None:
    run = run_python("-W", "ignore", "-c", FORKED, SAMPLE)
    assert run.stdout.splitlines() == [
        "cannot use a Processor in a forked process; make one in it",
        "cannot use frames in a forked process; call bgsoft.frames in it",
        "7",
        "(32, 32, 3) 1",
    ]
