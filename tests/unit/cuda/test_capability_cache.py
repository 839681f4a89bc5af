"""Cached capabilities of the machine, with those of NVDEC and NVENC."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bgsoft.cache import CACHE_VARIABLE
from bgsoft.cuda import video_codec
from bgsoft.cuda.capability_cache import CapabilityCache
from bgsoft.errors import BackendUnavailableError

DRIVER = {"driver": "580.95"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache; not made yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


def test_an_answer_is_kept_while_its_circumstances_hold() -> None:
    CapabilityCache("GPU", DRIVER).put("answer", {"width_max": 4096})
    CapabilityCache("other GPU", DRIVER).put("answer", 7)
    assert CapabilityCache("GPU", DRIVER).get("answer") == {"width_max": 4096}
    assert CapabilityCache("other GPU", DRIVER).get("answer") == 7
    newer = CapabilityCache("GPU", {"driver": "590.1"})
    assert newer.get("answer") is None
    newer.put("answer", 8)
    assert CapabilityCache("GPU", DRIVER).get("answer") is None
    assert CapabilityCache("other GPU", DRIVER).get("answer") == 7


def test_what_may_change_is_kept_for_the_process() -> None:
    kept = CapabilityCache("GPU", DRIVER)
    kept.put("answer", "busy", lasting=False)
    kept.put("other", 1)
    assert kept.get("answer") == "busy"
    assert CapabilityCache("GPU", DRIVER).get("answer") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"GPU": 3}', '{"GPU": {"facts": 1}}', "\0", "[" * 10**5]
)
def test_a_damaged_file_is_as_good_as_none(cache: Path, text: str) -> None:
    cache.mkdir()
    (cache / "facts.json").write_text(text)
    kept = CapabilityCache("GPU", DRIVER)
    assert kept.get("answer") is None
    kept.put("answer", 1)
    assert CapabilityCache("GPU", DRIVER).get("answer") == 1
    assert sorted(path.name for path in cache.iterdir()) == ["facts.json", "facts.lock"]


def test_a_cache_that_cannot_be_written_is_done_without(cache: Path) -> None:
    cache.write_text("a file, where the folder should be")
    kept = CapabilityCache("GPU", DRIVER)
    kept.put("answer", 1)
    assert kept.get("answer") == 1


class VendorError(Exception):
    """An error like PyNvVideoCodec's."""


class Engines:
    """PyNvVideoCodec's two queries, counted; each answer is a dict or an error."""

    cudaVideoCodec = SimpleNamespace(H264="H264")  # noqa: N815 - as the vendor spells it

    def __init__(self, answer: dict[str, int] | Exception) -> None:
        self.answer = answer
        self.asked = 0

    def _ask(self, **_: Any) -> dict[str, int]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    GetEncoderCaps = GetDecoderCaps = _ask


Install = Callable[[dict[str, int] | Exception], Engines]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install engines; each call simulates a new process."""

    def install(answer: dict[str, int] | Exception) -> Engines:
        made = Engines(answer)
        kept = CapabilityCache("video engines of GPU", DRIVER)
        monkeypatch.setattr(video_codec, "video_codec", lambda: made)
        monkeypatch.setattr(video_codec, "codec_errors", lambda: (VendorError,))
        monkeypatch.setattr(video_codec, "engine_capabilities", lambda _gpu: kept)
        runtime = SimpleNamespace(setDevice=lambda _gpu: None)
        cupy: Any = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        return made

    return install


def test_capabilities_are_asked_for_once(engines: Install) -> None:
    first = engines({"width_max": 4096, "height_max": 4096})
    for _ in range(2):
        assert video_codec.encoder_caps(0, "h264")["width_max"] == 4096
        assert video_codec.decoder_caps(0, "H264", 8)["height_max"] == 4096
    assert first.asked == 2
    later = engines(VendorError("not asked"))
    assert video_codec.encoder_caps(0, "h264") == first.answer
    assert video_codec.decoder_caps(0, "H264", 8) == first.answer
    assert later.asked == 0


def refuse(status: int) -> VendorError:
    return VendorError(f"OpenEncodeSession\nError code : {status}\nError Type : no")


@pytest.mark.parametrize(
    ("status", "asked_here", "asked_later"),
    [(2, 1, 0), (8, 2, 2), (21, 4, 2)],
    ids=["no engine", "refused", "busy"],
)
def test_refusals_are_kept_for_as_long_as_they_hold(
    engines: Install, status: int, asked_here: int, asked_later: int
) -> None:
    """Two codecs are asked for twice, and again in another process."""
    for expected, rounds in ((asked_here, 2), (asked_later, 1)):
        made = engines(refuse(status))
        for codec in ("h264", "hevc") * rounds:
            with pytest.raises(BackendUnavailableError, match=f"NVENC: .*status {status}"):
                video_codec.encoder_caps(0, codec)
        assert made.asked == expected


def test_an_nvdec_that_does_not_answer_is_asked_once_a_process(engines: Install) -> None:
    made = engines(VendorError("no library"))
    for _ in range(2):
        with pytest.raises(BackendUnavailableError, match="cannot query NVDEC: no library"):
            video_codec.decoder_caps(0, "H264", 8)
    assert made.asked == 1
    engines({"width_max": 1})
    assert video_codec.decoder_caps(0, "H264", 8) == {"width_max": 1}


def test_no_question_goes_to_a_gpu_that_was_not_chosen(engines: Install) -> None:
    """PyNvVideoCodec 2.2 always creates its context on the first GPU."""
    made = engines({"width_max": 4096})
    assert video_codec.decoder_caps(1, "H264", 8) is None
    with pytest.raises(BackendUnavailableError, match="CUDA_VISIBLE_DEVICES"):
        video_codec.encoder_caps(1, "h264")
    assert made.asked == 0


def test_capabilities_depend_on_driver_and_library(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(getDeviceProperties=lambda _gpu: {"name": b"GPU"})
    cupy: Any = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(video_codec, "driver_version", lambda: "580.95")
    for version, known in (("2.2.4", None), ("2.2.4", 1), ("2.2.5", None)):
        module: Any = SimpleNamespace(__version__=version)
        monkeypatch.setattr(video_codec, "video_codec", lambda module=module: module)
        video_codec.engine_capabilities.cache_clear()
        try:
            kept = video_codec.engine_capabilities(0)
        finally:
            video_codec.engine_capabilities.cache_clear()
        assert kept.get("answer") == known
        kept.put("answer", 1)
