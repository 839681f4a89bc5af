"""The Python interface: calls that take what the command line takes.

``scripts/make_keywords.py`` writes the help of its settings, from :mod:`bgsoft.settings.config`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from bgsoft.chunks.run import render_config
from bgsoft.rendering.configure import config_from_keywords
from bgsoft.report import Event, Progress, RenderReport
from bgsoft.settings.keywords import FilePath, FrameSettings, PictureSettings, RenderSettings
from bgsoft.settings.options import DEFAULT_PRESET, errors_in_keywords

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bgsoft.rendering.frames import Frames


def render(
    input: FilePath,
    output: FilePath,
    *,
    preset: str | None = DEFAULT_PRESET,
    on_progress: Callable[[Progress], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
    **settings: Unpack[RenderSettings],
) -> RenderReport:
    """Render one video, as ``bgsoft render`` does.

    Settings that are None are the preset's, or else have the default that is named.

    Args:
        input: Video to read.
        output: Video to write; its suffix chooses the container.
        preset: A preset's name or TOML file; None: the bare defaults.
        effect: Effect on the background; alpha makes it transparent, matte writes the mask instead.
            [default: blur]
        strength: Strength. blur, bokeh, pixelate: size in percent of the frame height, 0 to 25;
            dim: percent of light removed, 0 to 100. [default: blur 2.5, bokeh 2.5, pixelate 3, dim
            60]
        background: Picture, video (looped), or colour such as '#00b140' or green, to put behind
            people. It also chooses the effect, unless effect does.
        invert: Apply the effect to people, and keep their surroundings unchanged.
        model: Model that finds people: a name from bgsoft models list, or your own ONNX file with a
            FILE.toml in the same folder. [default: selfie-general]
        matte: Quality of the segmentation. fast: one model, one pass a frame. standard: two models,
            and a close pass over the people. best: also refines edges with another network. A
            matting model such as rvm-mobilenetv3 runs in one pass; best averages it with all of
            these. [default: standard]
        mask_every: Segment only every Nth frame, 1 to 300. [default: 1]
        similarity: Reuse the last mask while frames are this similar: PSNR in dB, 0 to 100, or off.
            [default: off]
        matte_in: Take the matte from a grey video, pictures, or an alpha channel, made by any tool.
        matte_mode: Use of matte_in: replace our own matte, or the larger (max) or smaller (min) of
            both. [default: replace]
        matte_match: Match matte_in to the frames of the video by number, or by time. [default:
            frame]
        face: guard: keep faces sharp that the mask missed. main: keep only the main person sharp.
            anonymize: make other people's faces unrecognisable. [default: guard]
        subjects: Number of main people for face main or anonymize: the largest, most central and
            longest in view; 0 hides every face. [default: 1]
        face_every: Detect faces on every Nth frame, and predict their movement in between. N is at
            most 8 where faces are hidden. [default: by time; with face_data 1]
        main: Name a main person: a place and a time (50%,40%@0:10), or the id of a track of faces.
            Repeatable; replaces subjects.
        faces: Use exactly the faces in a file of bgsoft faces, which may be edited.
        small_faces: Also detect faces smaller than a twentieth of the frame height; anonymize
            always does.
        hide: Also hide this place: left, top, width and height, in pixels or percent of the upright
            frame; optionally a time span: 10%,20%,15%,30%@1:05-1:20. Repeatable.
        anonymize_style: Style of hidden faces and places; solid is black. [default: blur, subjects
            0: solid]
        anonymize_shape: Shape of hidden faces. [default: ellipse]
        anonymize_margin: Enlarge the hidden place around a face, or what detector finds, in percent
            of its size, 0 to 100. [default: 0]
        regions: Read regions from a TOML file: hide, keep or drop boxes, ellipses and polygons,
            which may move. See docs/regions.md.
        keep: Always treat this region as person, like a chair. Given as for hide. Repeatable.
        drop: Never treat this region as person, like a poster. Given as for hide. Repeatable.
        detector: Hide what a detector finds, like number plates or screens: your own ONNX file with
            a FILE.toml in the same folder. See docs/models.md.
        threshold: Probability from which a pixel is a person; off uses the probability as opacity.
            [default: 0.5]
        softness: Width of the soft edge around the threshold; 0 is a hard edge. [default: 0.5]
        min_area: Remove islands, and uncertain holes, smaller than this fraction of the frame.
            [default: 0.002]
        smooth: Smoothness of the outline; 0 is off. [default: 0.5]
        expand: Move the edge outwards, or inwards if negative, in percent of the frame height, -5
            to 5. [default: 0]
        feather: Width of an extra soft rim outside the person, or on both sides with preset obs, in
            percent of the frame height, 0 to 10. [default: 0]
        temporal: Steadiness of the edge over time; 0 is off, 1 is strongest. [default: 0.7]
        refine: guided: fit the edge to the picture. none: keep the edge of the mask. [default:
            guided]
        codec: Video codec of the output; auto: h264 if the container, bit depth and effect allow
            it. [default: auto]
        quality: The encoder's own quality number. For videos (CRF, CQ or qscale) lower is better
            and larger. For JPEG and WebP pictures higher is better, 1 to 100. [default: by codec;
            h264: 18, JPEG: 95, WebP: 90]
        speed: The encoder's own preset: x264/x265 ultrafast to veryslow, AV1 and VP9 a number,
            NVENC P1 to P7. [default: by codec; h264: veryfast]
        chroma: Chroma resolution. keep: that of the source, including 4:2:2 and 4:4:4. 420: that of
            most videos. auto: keep with prores, ffv1 and raw, otherwise 420. [default: auto]
        encoder_option: Pass an option to the encoder, e.g. tune=film; repeatable.
        audio: Sound tracks of the input; none: leave them out. [default: keep]
        mute: Silence all sound in this time span, in seconds or HH:MM:SS from the first frame:
            1:05-1:20, 5- or -3. Repeatable.
        metadata: Tags, data tracks and subtitles that identify people, places, times or devices.
            auto: strip if faces or places are hidden, otherwise keep. [default: auto]
        decode: Backend for decoding. [default: auto]
        infer: Backend for the models. [default: auto]
        composite: Backend for matte and effect. [default: auto]
        encode: Backend for encoding. [default: auto]
        gpu: Number of the GPU, from 0. [default: the first]
        require_gpu: Fail instead of running any stage on the CPU.
        batch: Frames processed at a time, 1 to 64, or auto. [default: auto]
        precision: Number format of the models. [default: fp32]
        threads: Number of cores to use, 1 to 256; 0: all. x264 ignores it. [default: 0]
        stall: Fail if no frame passes any stage for this time; off: wait for ever. [default: 300]
        start: Start at this time: seconds or HH:MM:SS. [default: 0]
        fps: Frame rate of an input sequence of pictures, 0.1 to 1000. [default: 25]
        duration: Render at most this length: seconds or HH:MM:SS. [default: to the end]
        face_data: Also write the faces of every frame, with 468 landmarks each.
        format: Container of OUT; auto: by the extension of its name, mkv for a pipe. [default:
            auto]
        matte_out: Also write the mask as a grey video or picture.
        overwrite: Replace OUT and the other output files if they exist.
        skip_existing: Skip the render, with exit code 0, if OUT exists.
        report: Write a report as JSON: frames, speed, backends, notices.
        chunks: Render a long video in up to N parallel chunks and join them; auto: where that is
            faster. Repeat an interrupted command to continue with its finished chunks. [default:
            auto]
        trace: Write a timeline of threads and GPU streams; open it in ui.perfetto.dev.
        on_progress: Called about ten times a second, from the calling thread.
        on_event: Called once for each notice, fallback, repair and scene cut, from any thread,
            never from two at a time.
        cancel: Set it, from any thread, to stop the render.

    Returns:
        What was done.

    Raises:
        ConfigError: A value is out of range, or does not fit input or output.
        TypeError: There is no such setting.
        BgsoftError: As :func:`bgsoft.chunks.run.render_config`.
    """
    known = RenderSettings.__optional_keys__
    with errors_in_keywords():
        config = config_from_keywords(
            "render", known, settings, input=input, output=output, preset=preset
        )
        return render_config(config, on_progress=on_progress, on_event=on_event, cancel=cancel)


def frames(
    input: FilePath,
    *,
    preset: str | None = DEFAULT_PRESET,
    alpha: bool = False,
    on_event: Callable[[Event], None] | None = None,
    **settings: Unpack[FrameSettings],
) -> Frames:
    """Render one video, frame by frame, to arrays.

        for frame in bgsoft.frames("in.mp4", effect="bokeh"):
            show(frame.picture, frame.pts * frame.time_base)

    The settings are checked now; the render begins with the first frame that is asked for, runs
    beside, and waits for its frames to be taken. It ends with the loop, however that is left.

    Args:
        input: Video to read.
        preset: A preset's name or TOML file; None: the bare defaults.
        alpha: Hand over the matte of each frame, too; with effect alpha it always is.
        on_event: Called once for each notice, fallback, repair and scene cut, from any thread,
            never from two at a time.
        **settings: As for :func:`render`, but for those of a file that is written.

    Returns:
        An iterator over :class:`bgsoft.RenderedFrame`, and a context manager.

    Raises:
        ConfigError: A value is out of range. All else is raised where the first frame is asked for.
        TypeError: There is no such setting, or it means nothing here.
    """
    from bgsoft.rendering.frames import Frames

    with errors_in_keywords():
        config = config_from_keywords(
            "frames", FrameSettings.__optional_keys__, settings, input=input, preset=preset
        )
    return Frames(config, alpha=alpha, on_event=on_event)


def process(
    image: NDArray[np.uint8],
    *,
    preset: str | None = DEFAULT_PRESET,
    on_event: Callable[[Event], None] | None = None,
    **settings: Unpack[PictureSettings],
) -> NDArray[np.uint8]:
    """Composite one picture, once; for more than one, a :class:`bgsoft.Processor` is faster.

    Args, result and errors are those of it and of its
    :meth:`bgsoft.rendering.processor.Processor.process`.
    """
    from bgsoft.rendering.processor import Processor

    with Processor(preset=preset, on_event=on_event, **settings) as processor:
        return processor.process(image)
