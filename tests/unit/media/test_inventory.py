"""Properties that containers and first pictures declare: applied, or reported."""

from __future__ import annotations

import io
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from bgsoft.decode.cpu import CpuDecoder
from bgsoft.media.info import Orientation
from bgsoft.media.probe import probe
from bgsoft.ring import FrameRing
from tests.carried import SAMPLE_ENTRY, TRACK, box, clean_aperture, insert_box
from tests.fakes import host_planes
from tests.outside import ffmpeg
from tests.processes import run_python
from tests.synthetic import VideoSpec, regular_times, write_video

SPHERICAL_V1 = (
    b'<?xml version="1.0"?><rdf:SphericalVideo'
    b' xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
    b' xmlns:GSpherical="http://ns.google.com/videos/1.0/spherical/">'
    b"<GSpherical:Spherical>true</GSpherical:Spherical>"
    b"<GSpherical:Stitched>true</GSpherical:Stitched>"
    b"<GSpherical:StitchingSoftware>x</GSpherical:StitchingSoftware>"
    b"<GSpherical:ProjectionType>equirectangular</GSpherical:ProjectionType>"
    b"</rdf:SphericalVideo>"
)
UUID_V1 = bytes.fromhex("ffcc8263f8554a938814587a02521fdd")
SPHERICAL_V2 = box(
    b"sv3d",
    box(b"svhd", bytes(4), b"test\0"),
    box(b"proj", box(b"prhd", bytes(16)), box(b"equi", bytes(20))),
)
DOLBY_VISION = box(b"dvvC", bytes((1, 0, 9 << 1, 5 << 3 | 5, 2 << 4)), bytes(19))
AMBIENT = box(b"amve", struct.pack(">IHH", 3_140_000, 15_635, 16_450))


def write_plain(path: Path, **changes: object) -> Path:
    options = {"preset": "ultrafast", "bf": "0"}
    return write_video(path, VideoSpec(times=regular_times(3), options=options, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "added", "name"),
    [
        pytest.param(TRACK, box(b"uuid", UUID_V1, SPHERICAL_V1), "360° projection", id="v1"),
        pytest.param(SAMPLE_ENTRY, SPHERICAL_V2, "360° projection", id="v2"),
        pytest.param(SAMPLE_ENTRY, DOLBY_VISION, "Dolby Vision", id="dolby-vision"),
        pytest.param(SAMPLE_ENTRY, AMBIENT, "ambient viewing environment", id="ambient"),
    ],
)
def test_a_box_that_no_output_has_is_named(
    tmp_path: Path, place: tuple[bytes, ...], added: bytes, name: str
) -> None:
    path = insert_box(write_plain(tmp_path / "a.mp4"), place, added)
    info = probe(path)
    assert info.side_data == (name,)
    assert info.notices == (f"{name} left out",)


def decoded(path: Path) -> list[np.ndarray]:
    with CpuDecoder(path) as decoder:
        ring = FrameRing(2, lambda slot: host_planes(decoder.info.format, slot))
        pictures = []
        for frame in decoder.frames(ring):
            pictures.append(np.concatenate([frame.luma.ravel(), frame.chroma.ravel()]))
            ring.release(frame)
        return pictures


@pytest.mark.parametrize(
    ("crop", "format"),
    [
        ((32, 16, 8, 24), "yuv420p"),
        ((33, 17, 8, 24), "yuv420p"),  # rounded as FFmpeg does
        ((33, 17, 8, 25), "yuv444p"),
    ],
)
def test_a_clean_aperture_is_applied_as_ffmpeg_does(
    tmp_path: Path, crop: tuple[int, int, int, int], format: str
) -> None:
    path = write_plain(tmp_path / "a.mov", pixel_format=format)
    size = probe(path).format.width, probe(path).format.height
    insert_box(path, SAMPLE_ENTRY, clean_aperture(size, *crop))
    info = probe(path)
    out = tmp_path / "shown.yuv"
    # Chroma is halved by other filters where it is finer: only luma is compared then.
    ffmpeg("-i", path, "-f", "rawvideo", "-pix_fmt", format, out)
    shown = np.fromfile(out, np.uint8).reshape(3, -1)
    pixels = info.format.width * info.format.height
    assert shown.shape[1] == pixels * (3 if format == "yuv444p" else 3 / 2)
    for expected, picture in zip(shown, decoded(path), strict=True):
        assert np.array_equal(picture[:pixels], expected[:pixels])
        if format == "yuv420p":
            chroma = expected[pixels:].reshape(2, -1).T.ravel()
            assert np.array_equal(picture[pixels:], chroma)


@pytest.mark.parametrize(("name", "location"), [("center", 2), ("topleft", 3)])
@pytest.mark.parametrize("ending", ["y4m", "mkv"])
def test_chroma_siting_of_raw_video_is_read(
    tmp_path: Path, ending: str, name: str, location: int
) -> None:
    path = tmp_path / f"a.{ending}"
    clip = ("-f", "lavfi", "-i", "testsrc2=s=64x48:d=0.1", "-pix_fmt", "yuv420p")
    raw = ("-c:v", "rawvideo", *(("-allow_raw_vfw", "1") if ending == "mkv" else ()))
    ffmpeg(*clip, "-vf", f"setparams=chroma_location={name}", *raw, path)
    assert probe(path).format.color.chroma_location == location


def test_a_crop_that_leaves_nothing_is_not_applied(tmp_path: Path) -> None:
    path = write_plain(tmp_path / "a.mov")
    plain = probe(path)
    size = plain.format.width, plain.format.height
    insert_box(path, SAMPLE_ENTRY, clean_aperture(size, size[0], 0, 0, 0))
    assert probe(path).format == plain.format


def write_pictures(path: Path, codec: str, picture: bytes) -> Path:
    with av.open(str(path), "w") as output:
        stream = output.add_mux_stream(codec, rate=25, width=64, height=48)
        for index in range(2):
            packet: av.Packet = av.Packet(picture)
            packet.pts = packet.dts = index
            packet.time_base = Fraction(1, 25)
            packet.stream, packet.is_keyframe = stream, True
            output.mux(packet)
    return path


def test_a_named_profile_does_not_end_the_process(tmp_path: Path) -> None:
    """PyAV frees the profile's name twice."""
    image = pytest.importorskip("PIL.Image")
    profile = pytest.importorskip("PIL.ImageCms").createProfile("sRGB")
    data = io.BytesIO()
    profile = pytest.importorskip("PIL.ImageCms").ImageCmsProfile(profile).tobytes()
    image.new("RGB", (64, 48), (200, 10, 10)).save(data, "png", icc_profile=profile)
    path = write_pictures(tmp_path / "a.mov", "png", data.getvalue())
    code = (
        "import sys; from pathlib import Path; from bgsoft.media.probe import probe;"
        "print(*probe(Path(sys.argv[1])).side_data)"
    )
    done = run_python("-c", code, path)
    assert (done.returncode, done.stdout) == (0, "colour profile\n"), done.stderr


def test_exif_in_pictures_hides_no_rotation(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    exif, data = image.Exif(), io.BytesIO()
    exif[274] = 6
    image.new("RGB", (64, 48), (200, 10, 10)).save(data, "jpeg", exif=exif)
    path = write_pictures(tmp_path / "a.mov", "mjpeg", data.getvalue())
    info = probe(path)
    assert info.orientation == Orientation(rotation=90)
    assert info.side_data == ("EXIF",)
    ffmpeg("-i", path, "-frames:v", "1", tmp_path / "shown.png")
    with image.open(tmp_path / "shown.png") as shown:
        assert shown.size == (info.format.width, info.format.height) == (48, 64)


@pytest.mark.parametrize(
    ("start", "kinds"), [("00:00:00:00", ()), ("10:00:00:00", ("timecodes in the pictures",))]
)
def test_timecodes_of_mpeg_2_are_named_if_they_tell_something(
    tmp_path: Path, start: str, kinds: tuple[str, ...]
) -> None:
    path = tmp_path / "a.mpg"
    source = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.2")
    ffmpeg(*source, "-c:v", "mpeg2video", "-gop_timecode", start, path)
    assert probe(path).side_data == kinds


def test_views_that_lie_side_by_side_are_in_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    source = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.12")
    ffmpeg(*source, "-c:v", "libx264", "-x264-params", "frame-packing=3", path)
    info = probe(path)
    assert info.side_data == ("stereo 3D",)
    assert info.notices == ("stereo 3D: the output does not say how the two views lie",)
