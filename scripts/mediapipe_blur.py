#!/usr/bin/env python3
"""A background blur as a MediaPipe + OpenCV script, for the table in docs/speed.md.

    python scripts/mediapipe_blur.py CLIP.mp4 OUT.mp4 [--same-look]

It needs ``mediapipe==0.10.21`` with ``opencv-python`` in an environment of its own, and ffmpeg on
the PATH: it reads with OpenCV and pipes to libx264 with bgsoft's default preset and CRF. The blur
is that of tutorials (55 pixels, hard mask) or, with ``--same-look``, that of bgsoft's preset
``soft`` (sigma 2.5 % of the height, soft mask). ``bgsoft bench CLIP.mp4`` gives the
speed of bgsoft and of a plain transcode beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import time

import cv2
import mediapipe
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--same-look", action="store_true")
    options = parser.parse_args()
    started, frames = time.perf_counter(), 0
    capture = cv2.VideoCapture(options.source)
    width, height = int(capture.get(3)), int(capture.get(4))
    raw = ["-f", "rawvideo", "-pix_fmt", "bgr24", "-s", f"{width}x{height}"]
    encoder = subprocess.Popen(
        ["ffmpeg", "-v", "error", "-y", *raw, "-r", str(capture.get(5)), "-i", "-",
         "-c:v", "libx264", "-preset", "veryfast", "-crf", "18", "-pix_fmt", "yuv420p",
         options.target],
        stdin=subprocess.PIPE,
    )  # fmt: skip
    with mediapipe.solutions.selfie_segmentation.SelfieSegmentation(model_selection=0) as model:
        while True:
            ok, frame = capture.read()
            if not ok:
                break
            mask = model.process(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)).segmentation_mask
            if options.same_look:
                blurred = cv2.GaussianBlur(frame, (0, 0), 0.025 * height)
                opacity = mask[..., None]
                picture = (frame * opacity + blurred * (1 - opacity)).astype(np.uint8)
            else:
                person = np.stack((mask,) * 3, axis=-1) > 0.5
                picture = np.where(person, frame, cv2.GaussianBlur(frame, (55, 55), 0))
            encoder.stdin.write(picture.tobytes())
            frames += 1
    encoder.stdin.close()
    if encoder.wait() != 0:
        raise SystemExit("ffmpeg failed")
    print(f"{frames / (time.perf_counter() - started):.1f} frames/s over the whole run")


if __name__ == "__main__":
    main()
