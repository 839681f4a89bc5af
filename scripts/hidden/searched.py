"""Hides the faces of a video in this process: a render's search and hiding, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bgsoft.analysis.reduce import Reducer
from bgsoft.analysis.scenes import LumaProbe
from bgsoft.decode.cpu import CpuDecoder
from bgsoft.face.create import create_faces
from bgsoft.face.networks import FaceNetworks
from bgsoft.frame import Frame
from bgsoft.pipeline.refresh import REFRESH_INTERVAL
from bgsoft.rendering.host import host_planes
from bgsoft.ring import FrameRing
from bgsoft.settings.config import FaceConfig, FaceMode, RenderConfig
from hidden.judge import Shown


def searched(source: Path) -> Iterator[Shown]:
    """Return each frame's time stamp and planes, Y, U, V of 4:2:0, with all faces hidden."""
    with CpuDecoder(source) as decoder:
        info = decoder.info
        hidden = FaceConfig(mode=FaceMode.ANONYMIZE, subjects=0)
        config = RenderConfig(input=source, output=source, face=hidden)
        faces = create_faces(config, info, partial(FaceNetworks, info.format), None)
        assert faces is not None
        reducer, scenes = Reducer(info.format), LumaProbe(info.format)
        ring = FrameRing(faces.held + 1, partial(host_planes, info.format))

        def finished(frames: list[Frame]) -> Iterator[Shown]:
            for frame in frames:
                planes = frame.luma, frame.chroma[..., 0], frame.chroma[..., 1]
                yield frame.pts, [plane.copy() for plane in planes]
                ring.release(frame)

        with faces:
            for frame in decoder.frames(ring):
                reduced = reducer.reduce([frame])
                if scenes.cuts(reduced)[0]:
                    faces.cut()
                if frame.index % REFRESH_INTERVAL == 0:
                    faces.refresh()
                yield from finished(faces.finish([frame], faces.find([frame], reduced)))
            yield from finished(faces.flush())
