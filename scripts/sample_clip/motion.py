"""Move the camera and the person, and put the layers together frame by frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from sample_clip.canvas import WORLD_HEIGHT, WORLD_WIDTH, FloatArray
from sample_clip.portrait import HEAD_CENTRE, NECK, Cutout
from sample_clip.room import STORE_SCALE, Layer

Matrix = npt.NDArray[np.float64]

FRAME_WIDTH: Final = 1280
FRAME_HEIGHT: Final = 720

_TEXTURE_SCALE: Final = 2
"""Texels per portrait pixel: about what the frame shows, so that it is sampled near 1:1."""

_PERSON_SCALE: Final = 1.9
_PERSON_BASE: Final = (217.0, 343.0)
"""Portrait pixel that stands at the middle of the frame's lower edge and is swayed about."""

_HEAD_RADII: Final = (80.0, 92.0)
_HEAD_FALLOFF: Final = 1.6
"""The head's tilt fades out between its ellipse and this multiple of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where camera and person are at one time; lengths in world units, angles in degrees."""

    truck: tuple[float, float]
    """Sideways camera position (x, y): near layers shift more."""

    dolly: float
    """Way gone towards the person, as a share of the distance."""

    pan: tuple[float, float]
    """Shift of the whole picture (x, y)."""

    roll: float
    """Rotation of the whole picture."""

    sway: float
    """Rotation of the person about the base."""

    tilt: float
    """Rotation of the head about the neck."""

    breath: float
    """Vertical stretch of the person, relative."""


class Choreography:
    """Seeded, smooth motion over the clip: a slow orbit by hand, and a person who sits still."""

    def __init__(self, rng: np.random.Generator, duration_seconds: float) -> None:
        self._duration = duration_seconds
        self._rates = rng.uniform(0.35, 1.0, (6, 4)) * np.array([1.0, 1.7, 3.1, 5.3])
        self._phases = rng.uniform(0.0, 2 * np.pi, (6, 4))

    def at(self, seconds: float) -> Moment:
        """Return the moment at a time in the clip."""
        progress = seconds / self._duration
        eased = progress * progress * (3.0 - 2.0 * progress)
        truck_x = 84.0 * (2.0 * eased - 1.0)
        shake_x, shake_y, roll, rise, sway, tilt = (self._wander(i, seconds) for i in range(6))
        return Moment(
            truck=(truck_x, 8.0 * rise),
            dolly=0.085 * eased,
            pan=(0.84 * truck_x + 3.2 * shake_x, 8.0 * rise + 2.6 * shake_y + 10.0 * eased),
            roll=0.22 * roll,
            sway=0.75 * sway + 0.25 * np.sin(1.1 * seconds),
            tilt=1.3 * tilt + 0.9 * np.sin(0.85 * seconds + 0.4),
            breath=0.004 * np.sin(2 * np.pi * seconds / 3.4),
        )

    def _wander(self, channel: int, seconds: float) -> float:
        """Return a channel's smooth noise, about -1 to 1: slow waves with faster, smaller ones."""
        waves = np.sin(2 * np.pi * self._rates[channel] * seconds * 0.5 + self._phases[channel])
        return float(waves @ np.array([0.6, 0.3, 0.12, 0.05]))


class Stage:
    """Renders frames of one person in front of layers."""

    def __init__(self, person: Cutout) -> None:
        self._texture = _texture_of(person)
        ys, xs = np.mgrid[0:FRAME_HEIGHT, 0:FRAME_WIDTH].astype(np.float32)
        self._frame_xy = np.stack([xs + 0.5, ys + 0.5], axis=-1)
        offset = (self._frame_xy - [FRAME_WIDTH / 2, FRAME_HEIGHT / 2]) / [FRAME_WIDTH, FRAME_WIDTH]
        self._vignette = (1.0 - 0.42 * (offset**2).sum(axis=-1, keepdims=True)).astype(np.float32)

    def render(self, layers: list[Layer], moment: Moment) -> tuple[FloatArray, FloatArray]:
        """Return the frame, (H, W, 3) RGB in 0..1, and the person's opacity, (H, W) in 0..1."""
        frame: FloatArray = np.zeros((FRAME_HEIGHT, FRAME_WIDTH, 3), np.float32)
        for layer in layers:
            warped = cv2.warpAffine(
                layer.premultiplied,
                _camera_matrix(moment, layer.nearness) @ _store_to_world(),
                (FRAME_WIDTH, FRAME_HEIGHT),
                flags=cv2.INTER_CUBIC,
                borderMode=cv2.BORDER_REPLICATE,
            )
            frame = _over(np.asarray(np.clip(warped, 0.0, 1.0), np.float32), frame)
        person = self._warp_person(moment)
        frame = _over(person, frame)
        return np.clip(frame * self._vignette, 0.0, 1.0).astype(np.float32), person[..., 3]

    def _warp_person(self, moment: Moment) -> FloatArray:
        """Return the person as seen by the camera, (H, W, 4), premultiplied."""
        to_frame = _square(_camera_matrix(moment, 1.0)) @ _portrait_to_world(moment)
        inverse = np.linalg.inv(to_frame).astype(np.float32)
        portrait_xy = self._frame_xy @ inverse[:2, :2].T + inverse[:2, 2]
        texel_xy = _untilt_head(portrait_xy, moment.tilt) * _TEXTURE_SCALE - 0.5
        warped = cv2.remap(
            self._texture, texel_xy[..., 0], texel_xy[..., 1], cv2.INTER_CUBIC,
            borderMode=cv2.BORDER_CONSTANT, borderValue=(0, 0, 0, 0),
        )  # fmt: skip
        return np.asarray(np.clip(warped, 0.0, 1.0), np.float32)


def _over(front: FloatArray, back: FloatArray) -> FloatArray:
    """Return a premultiplied (H, W, 4) picture in front of an opaque (H, W, 3) one."""
    return np.asarray(back * (1.0 - front[..., 3:]) + front[..., :3], np.float32)


def _texture_of(person: Cutout) -> FloatArray:
    """Return the enlarged, slightly sharpened, premultiplied person, (H, W, 4)."""
    size = (person.alpha.shape[1] * _TEXTURE_SCALE, person.alpha.shape[0] * _TEXTURE_SCALE)
    colour = cv2.resize(person.colour, size, interpolation=cv2.INTER_LANCZOS4)
    colour = colour + 0.55 * (colour - cv2.GaussianBlur(colour, (0, 0), 1.6))
    # Lanczos rings on the mask's hard edge, which would show as a second outline.
    alpha = cv2.resize(cv2.GaussianBlur(person.alpha, (0, 0), 0.5), size)[..., None]
    joined = np.concatenate([np.clip(colour, 0.0, 1.0) * alpha, alpha], axis=2)
    return np.asarray(joined, np.float32)


def _square(affine: Matrix) -> Matrix:
    """Return a 2 x 3 matrix as 3 x 3."""
    return np.vstack([affine, [0.0, 0.0, 1.0]])


def _camera_matrix(moment: Moment, nearness: float) -> Matrix:
    """Return the 2 x 3 matrix from world to frame pixels for a layer."""
    zoom = 1.0 / (1.0 - moment.dolly * nearness)
    angle = np.deg2rad(moment.roll)
    turn = zoom * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    centre = np.array([FRAME_WIDTH / 2, FRAME_HEIGHT / 2])
    offset = centre + np.array(moment.pan) - turn @ (np.array(moment.truck) * nearness)
    return np.column_stack([turn, offset])


def _store_to_world() -> Matrix:
    """Return the 3 x 3 matrix from a layer's stored pixels to world units."""
    scale = 1.0 / STORE_SCALE
    return np.array([[scale, 0, -WORLD_WIDTH / 2], [0, scale, -WORLD_HEIGHT / 2], [0, 0, 1.0]])


def _portrait_to_world(moment: Moment) -> Matrix:
    """Return the 3 x 3 matrix from portrait pixels to world units."""
    angle = np.deg2rad(moment.sway)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear = turn @ np.diag([_PERSON_SCALE, _PERSON_SCALE * (1.0 + moment.breath)])
    offset = np.array([0.0, FRAME_HEIGHT / 2]) - linear @ np.array(_PERSON_BASE)
    return _square(np.column_stack([linear, offset]))


def _untilt_head(portrait_xy: FloatArray, tilt: float) -> FloatArray:
    """Return where each portrait position, (..., 2), comes from before the head tilted."""
    distance = np.linalg.norm((portrait_xy - HEAD_CENTRE) / np.array(_HEAD_RADII), axis=-1)
    inner = np.clip((_HEAD_FALLOFF - distance) / (_HEAD_FALLOFF - 1.0), 0.0, 1.0)
    angle = -np.deg2rad(tilt) * inner * inner * (3.0 - 2.0 * inner)
    x, y = portrait_xy[..., 0] - NECK[0], portrait_xy[..., 1] - NECK[1]
    cosine, sine = np.cos(angle), np.sin(angle)
    turned = np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=-1) + np.array(NECK)
    return np.asarray(turned, np.float32)
