"""What faces do to mattes and renders: the GPU against the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft
from bgsoft.analysis.base import analysis_shape
from bgsoft.diagnose.stages import decode_clip, lowest_psnr_db
from bgsoft.face.base import Face
from bgsoft.face.geometry import Roi
from bgsoft.face.guard import MatteEditor
from bgsoft.frame import FrameFormat, Matte
from bgsoft.ops.placement import current_device
from tests.face_clips import HALF_FACE, write_late_face, write_two_people
from tests.gpu.tolerances import MIN_FACES_DB
from tests.pictures import SIZES, disc_mask, frame_format, matte_from
from tests.unit.face.shapes import make_face

pytestmark = pytest.mark.gpu


def some_faces(format: FrameFormat) -> list[Face]:
    """Faces in the middle, over an edge, overlapping that one, and out of sight."""
    width, height = format.width, format.height
    return [
        make_face(width * 0.4, height * 0.4, max(2.0, width * 0.2), id=1),
        make_face(width * 0.02, height * 0.9, max(2.0, width * 0.15), id=2, roll=0.5),
        make_face(width * 0.1, height * 0.8, max(2.0, width * 0.15), id=3, roll=-1.2),
        make_face(width * 3.0, height * 9.0, 5.0, id=4),
    ]


@pytest.mark.parametrize("size", [*SIZES, (1920, 1080)])
@pytest.mark.parametrize("limits", [False, True])
@pytest.mark.parametrize("extra", [None, 0, 30])
def test_mattes_are_changed_as_on_the_cpu(
    gpu: Any, size: tuple[int, int], limits: bool, extra: int | None
) -> None:
    import cupy

    rng = np.random.default_rng(6)
    format = frame_format(size)
    grid = analysis_shape(*size)
    ours, theirs = MatteEditor(format), MatteEditor(format, current_device(), gpu)
    told: list[list[float]] = []
    told_on_device: list[list[float]] = []
    for turn in range(60):  # more than may be under way
        before = matte_from(format, disc_mask(format, 0.1 + 0.01 * turn))
        limit = rng.integers(0, 256, grid, np.uint8) if limits else None
        faces = []
        if extra is not None:
            faces = [(face, 0.5 if face.id == 3 else 1.0) for face in some_faces(format)]
            for id in range(10, 10 + extra):  # more than one launch takes
                x, y = rng.uniform(0, 1, 2) * size
                faces.append((make_face(x, y, max(1.5, 0.05 * size[0]), id=id), 1.0))
        matte = Matte(before.alpha.copy(), before.reduced.copy())
        on_device = Matte(cupy.asarray(before.alpha), cupy.asarray(before.reduced))
        np.testing.assert_array_equal(theirs.read(on_device), before.reduced)
        ours.apply(matte, faces, limit, lambda _, shares: told.append([*shares]))
        theirs.apply(on_device, faces, limit, lambda _, shares: told_on_device.append([*shares]))
        for mine, other in (
            (on_device.alpha.get(), matte.alpha),
            (on_device.reduced.get(), matte.reduced),
        ):
            np.testing.assert_array_equal(mine, other)
    theirs.close()
    assert len(told) == (0 if extra is None else 60)
    assert told_on_device == told


@pytest.mark.parametrize("size", [*SIZES, (1920, 1080)])
def test_what_mattes_miss_of_faces_is_the_same(gpu: Any, size: tuple[int, int]) -> None:
    """Bit-equal for more faces than one launch takes, several mattes, and faces over edges."""
    import cupy

    rng = np.random.default_rng(8)
    format = frame_format(size)
    ours, theirs = MatteEditor(format), MatteEditor(format, current_device(), gpu)
    planes = rng.integers(0, 256, (3, *analysis_shape(*size)), np.uint8)
    squares = [
        Roi(*(rng.uniform(-0.2, 1.2, 2) * size), rng.uniform(0.02, 1) * size[1], rng.uniform(-1, 1))
        for _ in range(150)
    ]
    on_host = [Matte(plane, plane) for plane in planes] * 50
    on_device = [Matte(plane, plane) for plane in map(cupy.asarray, planes)] * 50
    cupy.cuda.get_current_stream().synchronize()
    found, expected = ([*zip(mattes, squares, strict=True)] for mattes in (on_device, on_host))
    assert theirs.missing(found) == ours.missing(expected)


@pytest.mark.parametrize("preset", ["soft", "obs"])
def test_parting_is_the_same_in_any_batch(gpu: Any, tmp_path: Path, preset: str) -> None:
    """With a cut inside a batch and held masks; batches of one frame need no second buffer."""
    clip = write_two_people(tmp_path / "two.mp4", 20, apart=False, cut=11)
    films = []
    for batch in (1, 8):
        target = tmp_path / f"{batch}.mp4"
        report = bgsoft.render(
            clip,
            target,
            face="main",
            face_every=1,
            preset=preset,
            similarity="off",  # it takes frames one by one
            mask_every=2,
            batch=batch,
            infer="cuda",
            composite="cuda",
            encode="cpu",
            quality=8,
            speed="ultrafast",
        )
        assert [e.frame for e in report.events if e.kind == "scene-cut"] == [11]
        assert report.faces is not None
        assert report.faces["shared_frames"] > 15
        films.append(decode_clip(target)[0])
    assert lowest_psnr_db(*films) > MIN_FACES_DB


@pytest.mark.parametrize("mode", ["guard", "main", "anonymize"])
def test_a_render_is_the_same_film(gpu: Any, tmp_path: Path, mode: str) -> None:
    clip = write_two_people(tmp_path / "two.mp4", 24)
    films = []
    for infer, composite in (("cpu", "cpu"), ("cuda", "cuda")):
        target = tmp_path / f"{composite}.mp4"
        report = bgsoft.render(
            clip,
            target,
            face=mode,
            face_every=1,
            infer=infer,
            composite=composite,
            encode="cpu",
            quality=8,
            speed="ultrafast",
        )
        assert report.stages["face"].backend == infer
        assert report.stages["face"].ms_per_frame > 0
        assert report.faces is not None
        assert report.faces["frames_with_faces"] == 24
        films.append(decode_clip(target)[0])
    assert lowest_psnr_db(*films) > MIN_FACES_DB


def test_frames_are_held_over_batches(gpu: Any, tmp_path: Path) -> None:
    """A face is hidden in the 8 frames before its detection, with the fewest slots possible."""
    clip = write_late_face(tmp_path / "in.mp4", frames=20, first=10)
    target, told, preset = (tmp_path / name for name in ("out.mp4", "faces.jsonl", "dim.toml"))
    preset.write_text('[effect]\nkind = "dim"\nstrength = 0.0\n[backends]\nring_slots = 4\n')
    report = bgsoft.render(
        clip,
        target,
        preset=str(preset),
        face="anonymize",
        subjects=0,
        face_data=told,
        batch=3,
        infer="cuda",
        composite="cuda",
        encode="cpu",
        quality=8,
        speed="ultrafast",
    )
    assert report.frames_encoded == 20
    found = [bool(json.loads(line)["faces"]) for line in told.read_text().splitlines()]
    assert 10 <= found.index(True) < 13
    detail = [
        np.abs(np.diff(result.luma[HALF_FACE].astype(int))).mean()
        / np.abs(np.diff(source.luma[HALF_FACE].astype(int))).mean()
        for source, result in zip(decode_clip(clip)[0], decode_clip(target)[0], strict=True)
    ]
    hidden = [each < 0.35 for each in detail]
    assert hidden == [at >= found.index(True) - 8 for at in range(20)]
