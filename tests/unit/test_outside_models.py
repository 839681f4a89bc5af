"""Models of others: their properties, inputs and outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest

import bgsoft
from bgsoft.batch.check import check_settings
from bgsoft.cache import CACHE_VARIABLE
from bgsoft.errors import ConfigError, ModelError, ModelIntegrityError
from bgsoft.frame import Frame, FrameFormat
from bgsoft.infer.loading import NetworkLoader
from bgsoft.models import cache, catalog
from bgsoft.models.catalog import ResolvedModel, resolve
from bgsoft.models.onnx_file import read_signature
from bgsoft.ops.placement import HOST
from bgsoft.segment.families import wiring
from bgsoft.segment.masks import to_masks
from bgsoft.settings.backends import InferBackend
from bgsoft.settings.config import BackendConfig, RenderConfig, SegmentConfig
from tests.face_clips import SAMPLE
from tests.marks import slow
from tests.outside_models import (
    INPUT,
    SIDECAR,
    masks_of,
    write_fixed_inside,
    write_grey,
    write_mixed,
    write_short,
)
from tests.pictures import frame_of
from tests.recurrent_model import write_model
from tests.rendering import read_back

REMBG = [name for name, spec in catalog.catalog().items() if "rembg" in spec.source]
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    return folder


def grey_frame(*greys: int, size: tuple[int, int] = (320, 240)) -> Frame:
    bars = np.repeat(np.array(greys, np.uint8), size[0] // len(greys))
    image = np.broadcast_to(bars[None, :, None], (size[1], bars.size, 3))
    return frame_of(np.ascontiguousarray(image))


def bars_of(mask: np.ndarray, count: int) -> list[float]:
    columns = mask.shape[1] // count
    return [float(mask[:, columns * k + columns // 2].mean()) for k in range(count)]


def pulled(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ResolvedModel:
    """Replace a catalogue entry's file by one with the same inputs and outputs."""
    spec = catalog.find_spec(name)
    file = folder / spec.file
    write_grey(file, spec.width, sigmoid=spec.activation == "none")
    told = cache.Checksum(cache.hash_file(file, "md5"), "md5")
    monkeypatch.setattr(catalog, "catalog", lambda: {name: replace(spec, checksum=told)})
    return resolve(name)


@pytest.mark.parametrize("name", REMBG)
def test_a_model_known_from_rembg_is_run_as_there(
    name: str, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pulled(name, cache_folder, monkeypatch)
    assert (model.spec.input, model.spec.output, model.spec.batch) == (INPUT, "d0", 1)
    mean, std = ([0.5] * 3, [1.0] * 3) if name.startswith("isnet") else IMAGENET
    greys = np.array([30, 60, 120, 180])
    values = (greys[:, None] / greys.max() - mean) / std
    raw = 1 / (1 + np.exp(-values.mean(axis=1)))
    low, high = min(raw.min(), 0.25), max(raw.max(), 0.5)
    frames = [grey_frame(*greys), grey_frame(*greys[::-1])]
    first, second = masks_of(model, frames)
    size = 320 if name.startswith(("u2net", "silueta")) else 1024
    assert first.shape == second.shape == (size, size)
    np.testing.assert_allclose(bars_of(first, 4), (raw - low) / (high - low), atol=0.006)
    np.testing.assert_allclose(bars_of(second, 4), bars_of(first, 4)[::-1], atol=1e-5)


def test_all_that_were_named_are_there() -> None:
    assert [
        *("u2net", "u2netp", "u2net_human_seg", "silueta", "isnet-general-use"),
        *("birefnet-general", "birefnet-general-lite", "birefnet-portrait"),
    ] == REMBG
    for name in REMBG:
        spec = catalog.find_spec(name)
        assert spec.checksum is not None
        assert (spec.checksum.label, len(spec.checksum.value)) == ("MD5", 32)


def test_a_sum_of_md5_is_checked(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = pulled("u2netp", cache_folder, monkeypatch)
    assert model.sha256 == cache.hash_file(model.path)
    model.path.write_bytes(model.path.read_bytes() + b"\0")
    with pytest.raises(ModelIntegrityError, match=r"u2netp\.onnx: it is damaged \(MD5"):
        resolve("u2netp")


def own(folder: Path, lines: str = "", *, size: int = 32, batch: int | str = 1) -> ResolvedModel:
    """Write a grey model and its sidecar; ``lines`` follow the lines of its input."""
    path = folder / "own.onnx"
    write_grey(path, size, sigmoid=False, batch=batch)
    path.with_suffix(".toml").write_text(SIDECAR.format(size=size) + lines)
    return resolve(str(path))


def test_a_model_may_take_half_precision(tmp_path: Path) -> None:
    """Also on the CPU; the input is not written beyond its end."""
    whole = own(tmp_path)
    frames = [grey_frame(30, 60, 120, 180), grey_frame(200, 10)]
    singles = masks_of(whole, frames)
    write_grey(whole.path, 32, sigmoid=False, half=True)
    for mask, single in zip(masks_of(resolve(str(whole.path)), frames), singles, strict=True):
        assert mask.dtype == np.float32
        np.testing.assert_allclose(mask, single, atol=1e-3)


STRETCH = '[[outputs]]\nchannel = 0\nstretch = "min-max"'


@pytest.mark.parametrize(
    ("greys", "stretched"),
    [
        ((51, 102, 204), (0, 0.333, 1)),  # people somewhere: all from 0 to 1
        ((0, 5, 25), (0, 0.04, 0.2)),  # nobody: noise stays noise
        ((230, 240, 255), (0.869, 0.922, 1)),  # nothing but a person
        ((0, 0, 0), (0, 0, 0)),
    ],
)
def test_min_max_is_guarded(
    tmp_path: Path, greys: tuple[int, ...], stretched: tuple[float, ...]
) -> None:
    (mask,) = masks_of(own(tmp_path, STRETCH), [grey_frame(*greys, size=(240, 240))])
    np.testing.assert_allclose(bars_of(mask, 3), stretched, atol=0.005)


def test_min_max_does_not_pump() -> None:
    """When a person appears, the mask grows no faster than its sources."""
    spec = replace(catalog.find_spec("u2net"), output="y")
    raw = np.zeros((1, 8, 8), np.float32)
    made = []
    for top in np.linspace(0, 1, 101, dtype=np.float32):
        raw[0, 4, 4] = top
        mask = np.empty((8, 8), np.float32)
        to_masks(HOST, raw[None], spec, mask[None])
        made.append(float(mask.max()))
    assert np.abs(np.diff(made)).max() < 0.021
    assert made[10] < 0.25
    assert made[60] == 1


def test_a_picture_is_divided_by_its_maximum(tmp_path: Path) -> None:
    frames = [grey_frame(25, 50, 100, size=(240, 240)), grey_frame(0, 0, 0, size=(240, 240))]
    dark, black = masks_of(own(tmp_path, 'divide_by = "maximum"'), frames)
    np.testing.assert_allclose(bars_of(dark, 3), (0.25, 0.5, 1), atol=0.01)
    assert black.max() == 0
    (plain, _) = masks_of(own(tmp_path), frames)
    np.testing.assert_allclose(bars_of(plain, 3), np.array([25, 50, 100]) / 255, atol=0.01)


@pytest.mark.parametrize("batch", [1, 3, "any"])
def test_a_files_batch_is_its_own(tmp_path: Path, batch: int | str) -> None:
    model = own(tmp_path, batch=batch)
    assert model.spec.batch == (0 if batch == "any" else batch)
    levels = (10, 60, 110, 160, 210)
    masks = masks_of(model, [grey_frame(level, size=(64, 64)) for level in levels])
    found = [float(mask.mean()) for mask in masks]
    np.testing.assert_allclose(found, np.array(levels) / 255, atol=0.006)


@pytest.mark.parametrize(
    ("batch", "axis", "end", "problem"),
    [
        (1, 0, 0, r"\(0, 1, 64, 64\) is not a mask"),
        (1, 2, 0, r"\(1, 1, 0, 64\) is not a mask"),
        (2, 0, 1, r"\(1, 1, 64, 64\) lacks a mask for each of 2 pictures"),
    ],
)
def test_an_output_that_is_short_is_refused(
    tmp_path: Path, batch: int, axis: int, end: int, problem: str
) -> None:
    """Frames without an output would keep an old mask."""
    path = tmp_path / "short.onnx"
    write_short(path, 64, batch=batch, axis=axis, end=end)
    path.with_suffix(".toml").write_text(SIDECAR.format(size=64))
    with pytest.raises(ModelError, match=problem):
        masks_of(resolve(str(path)), [grey_frame(100, size=(64, 64))])


def test_what_is_no_number_is_nobody() -> None:
    """NumPy warns about nothing; warnings are errors here."""
    raw = np.zeros((2, 8, 8), np.float32)
    raw[1] = 9
    raw[:, 0], raw[:, 1], raw[1, 2] = np.nan, np.inf, np.inf
    for activation in ("softmax", "sigmoid", "none"):
        spec = replace(catalog.find_spec("u2net"), output_channel=1, activation=activation)
        masks = np.empty((1, 8, 8), np.float32)
        to_masks(HOST, raw[None], spec, masks)
        mask = masks[0]
        assert (mask[0] == 0).all()
        assert np.isfinite(mask).all()
        assert (mask[3:] > 0.99).all()


def test_a_large_model_runs_one_frame_after_another(tmp_path: Path) -> None:
    model = own(tmp_path, size=512, batch="any")
    assert model.spec.large
    masks = masks_of(model, [grey_frame(level, size=(64, 64)) for level in (10, 110, 210)])
    assert [round(float(mask.mean()) * 255) for mask in masks] == [10, 110, 210]


def test_a_large_model_is_shown_the_frame_itself(tmp_path: Path) -> None:
    """A grid of this size would blur stripes two pixels wide into grey."""
    stripes = np.tile(np.repeat(np.array([0, 255], np.uint8), 2), 512)
    image = np.broadcast_to(stripes[None, :, None], (1024, 2048, 3))
    frame = frame_of(np.ascontiguousarray(image))
    (small,) = masks_of(own(tmp_path, size=256), [frame])
    (large,) = masks_of(own(tmp_path, size=1024), [frame])
    assert small.std() < 0.05
    assert large.std() > 0.3


def test_weights_that_are_listed_as_inputs_are_none(tmp_path: Path) -> None:
    path = write_mixed(tmp_path / "old.onnx")
    model = onnx.load(str(path))
    weights = [
        onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims)
        for each in model.graph.initializer
    ]
    inputs = [*weights, *model.graph.input]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    onnx.save(model, str(path))
    found = read_signature(path)
    assert (dict(found.inputs), found.outputs) == ({INPUT: (0, 3, 32, 32)}, ("mask",))


@pytest.mark.parametrize("content", [b"", b"GIF89a;", b"\x3a\x02\x5a\x00", bytes(100)])
def test_another_file_is_reported_before_it_is_loaded(tmp_path: Path, content: bytes) -> None:
    own(tmp_path)
    (tmp_path / "own.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"own\.onnx: it is not a valid ONNX model"):
        resolve(str(tmp_path / "own.onnx"))


def test_a_sidecar_of_another_size_is_reported_before_it_is_loaded(tmp_path: Path) -> None:
    own(tmp_path)
    (tmp_path / "own.toml").write_text(SIDECAR.format(size=48))
    with pytest.raises(ModelError, match="input is 1x3x32x32, not batches of 3x48x48"):
        resolve(str(tmp_path / "own.onnx"))


def test_a_picture_that_does_not_fit_is_reported_when_the_model_is_loaded(tmp_path: Path) -> None:
    """The file declares a free size, but requires one inside."""
    path = tmp_path / "fixed.onnx"
    write_fixed_inside(path, 32)
    for size in (32, 48):
        path.with_suffix(".toml").write_text(SIDECAR.format(size=size))
        model = resolve(str(path))
        used = wiring(model.spec, FrameFormat(width=64, height=64), 1)
        if size == 32:
            NetworkLoader(model).on_cpu(used)
        else:
            with pytest.raises(ModelError, match=r"cannot run fixed\.onnx on pictures of 1x3x48"):
                NetworkLoader(model).on_cpu(used)


def test_a_batch_ends_before_a_model_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    write_fixed_inside(path, 32)
    path.with_suffix(".toml").write_text(SIDECAR.format(size=48))
    with pytest.raises(ModelError, match=r"cannot run fixed\.onnx"):
        check_settings(
            RenderConfig(
                input=SAMPLE,
                output=tmp_path / "out.mp4",
                segment=SegmentConfig(model=str(path)),
                backends=BackendConfig(infer=InferBackend.CPU),
            ),
            here=True,
        )


def test_a_recurrent_model_of_fixed_size(tmp_path: Path) -> None:
    path = write_model(tmp_path)
    model = onnx.load(str(path))
    for axis, size in ((2, 36), (3, 64)):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    onnx.save(model, str(path))
    found = resolve(str(path))
    assert found.spec.frame_size == (64, 36)
    assert wiring(found.spec, FrameFormat(width=64, height=36), 1)
    with pytest.raises(ModelError, match="takes only frames of 64x36, not 1280x720"):
        wiring(found.spec, FrameFormat(width=1280, height=720), 1)


def test_an_output_that_the_file_lacks(tmp_path: Path) -> None:
    model = own(tmp_path, '[[outputs]]\nname = "alpha"')
    with pytest.raises(ModelError, match="has no output 'alpha', only d0, d1, d2"):
        masks_of(model, [grey_frame(9)])


@pytest.mark.parametrize(
    "flags",
    [{"mask_every": 3, "temporal": 0.8}, slow({}), slow({"face": "main", "similarity": 40})],
)
def test_a_model_of_others_renders(tmp_path: Path, flags: dict[str, Any]) -> None:
    """With the schedule, the temporal filter and faces, as with embedded models."""
    path = write_mixed(tmp_path / "own.onnx", batch=1)
    report = bgsoft.render(
        *(SAMPLE, tmp_path / "out.mkv"),
        codec="ffv1",
        model=str(path),
        duration="0.2",
        infer="cpu",
        **flags,
    )
    assert report.model is not None
    assert report.model.name == "own"
    assert len(read_back(tmp_path / "out.mkv")) == report.frames_encoded > 0
    assert all(event.kind != "retry" for event in report.events)


def test_a_model_of_others_has_a_single_pass(tmp_path: Path) -> None:
    path = write_mixed(tmp_path / "own.onnx")
    with pytest.raises(ConfigError, match="matte with model"):
        bgsoft.render(SAMPLE, tmp_path / "out.mkv", model=str(path), matte="best")


def test_the_quantised_model_tells_grey(tmp_path: Path) -> None:
    model = resolve(str(write_mixed(tmp_path / "own.onnx")))
    (mask,) = masks_of(model, [grey_frame(0, 60, 255, size=(240, 240))])
    np.testing.assert_allclose(bars_of(mask, 3), (0, 60 / 255, 1), atol=0.01)
    assert cv2.countNonZero((mask > 1).astype(np.uint8)) == 0
