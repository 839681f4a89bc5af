"""Cut the person out of the portrait that ships with scikit-image.

The photograph is ``skimage.data.astronaut()``: Eileen Collins, NASA, public domain, 512 x 512.
Its outline was traced by hand once; a band around that line is then solved for opacity by
closed-form matting, and the colours in the band are freed of the studio's backdrop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.sparse.linalg
import skimage.data

FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]

PORTRAIT_SUM: Final = 90_124_324
"""Sum of all samples of the expected portrait: the outline fits this photograph only."""

CUT_ROW: Final = 350
"""Rows kept. The helmet that she holds starts just below and would look cut in two."""

HEAD_CENTRE: Final = (226.0, 90.0)
"""Centre of the head (x, y), in portrait pixels."""

NECK: Final = (222.0, 178.0)
"""The point (x, y) about which the head tilts, in portrait pixels."""

_BODY_LEFT: Final = (
    (24, 362), (25, 345), (30, 333), (34, 318), (39, 305), (40, 296), (46, 278), (53, 264),
    (58, 256), (64, 249), (74, 238), (88, 228), (100, 219), (108, 211), (112, 206), (113, 200),
    (112, 192), (113, 187), (117, 185), (122, 186), (124, 180), (128, 172), (134, 164),
    (146, 154), (158, 150), (170, 148), (184, 149), (182, 140), (182, 131), (178, 131),
    (174, 126), (171, 120),
)  # fmt: skip
_HAIR: Final = (
    (168, 117), (165, 113), (161, 109), (156, 101), (154, 92), (153, 82), (153, 70), (156, 60),
    (160, 54), (168, 47), (178, 41), (188, 36), (191, 31), (197, 26), (206, 21), (216, 18),
    (226, 15), (234, 15), (243, 17), (252, 20), (260, 23), (270, 28), (279, 33), (286, 40),
    (291, 48), (296, 58), (299, 70), (301, 80), (302, 88), (300, 97), (297, 107), (291, 116),
    (284, 124), (279, 130),
)  # fmt: skip
_BODY_RIGHT: Final = (
    (277, 134), (272, 137), (268, 136), (266, 138), (265, 145), (262, 154), (258, 161),
    (257, 170), (256, 173), (269, 183), (283, 195), (293, 207), (300, 221), (304, 234),
    (308, 236), (322, 245), (334, 254), (341, 263), (346, 275), (349, 284), (352, 286),
    (355, 297), (357, 309), (360, 324), (363, 332), (361, 334), (361, 345), (366, 351),
    (366, 362),
)  # fmt: skip
_SOLID: Final = (
    ((117, 189), (116, 197), (118, 205)),
    ((127, 178), (131, 171), (137, 164), (148, 156)),
    ((125, 185), (126, 180), (128, 174), (131, 168), (137, 162)),
    ((351, 291), (354, 306), (355, 314)),
)
"""Lines on the collar's latch, its rim and a strap, whose colours resemble the backdrop's."""

_CLOTH_INNER_PX: Final = 3.0
_CLOTH_OUTER_PX: Final = 3.0
_HAIR_BAND_PX: Final = 7
_EPSILON: Final = 3e-6
"""Regularises the covariance of a window's colours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutout:
    """A person without background."""

    colour: FloatArray
    """(H, W, 3) RGB in 0..1, not premultiplied, defined wherever alpha is above 0."""

    alpha: FloatArray
    """(H, W) opacity in 0..1."""


def cut_out_person() -> Cutout:
    """Return the portrait's person, down to ``CUT_ROW``.

    Raises:
        RuntimeError: if scikit-image's portrait isn't the one that the outline was traced on.
    """
    portrait = skimage.data.astronaut()  # type: ignore[no-untyped-call]
    if portrait.shape != (512, 512, 3) or int(portrait.sum()) != PORTRAIT_SUM:
        raise RuntimeError("skimage.data.astronaut() is not the photograph that was traced")
    image = portrait[:CUT_ROW].astype(np.float32) / 255.0
    inside, outside = _trimap(image.shape[0], image.shape[1])
    solved = closed_form_alpha(image, inside, outside)
    # The solver leaves a haze of a few percent on both sides of the edge.
    alpha = np.clip((solved - 0.04) / 0.88, 0.0, 1.0)
    return Cutout(colour=decontaminate(image, alpha), alpha=alpha)


def _trimap(height: int, width: int) -> tuple[BoolArray, BoolArray]:
    """Return what is surely person and surely not, each (H, W); the rest is to be solved."""
    outline = np.array(_BODY_LEFT + _HAIR + _BODY_RIGHT, np.int32)
    body = np.zeros((height, width), np.uint8)
    cv2.fillPoly(body, [outline], 255)
    hair = np.zeros_like(body)
    cv2.polylines(hair, [np.array(_HAIR, np.int32)], False, 255, 2 * _HAIR_BAND_PX + 1)
    depth = cv2.distanceTransform(body, cv2.DIST_L2, 5)
    distance = cv2.distanceTransform(255 - body, cv2.DIST_L2, 5)
    solid = np.zeros_like(body)
    cv2.polylines(solid, [np.array(line, np.int32) for line in _SOLID], False, 255, 2)
    inside = ((depth > _CLOTH_INNER_PX) & (hair == 0)) | (solid > 0)
    outside = (distance > _CLOTH_OUTER_PX) & (hair == 0)
    return inside, outside


def closed_form_alpha(image: FloatArray, inside: BoolArray, outside: BoolArray) -> FloatArray:
    """Solve opacity between known regions.

    Closed-form matting: A. Levin, D. Lischinski, Y. Weiss, "A Closed-Form Solution to Natural
    Image Matting", CVPR 2006, equation 12, 3 x 3 windows. Only windows that touch an unsolved
    pixel are assembled.

    Args:
        image: (H, W, 3) float32 RGB in 0..1.
        inside: (H, W), where opacity is 1.
        outside: (H, W), where opacity is 0.

    Returns:
        (H, W) float32 in 0..1.
    """
    height, width = inside.shape
    unknown = ~(inside | outside)
    touched = cv2.dilate(unknown.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    rows, columns = np.nonzero(touched[1:-1, 1:-1])
    offsets_y, offsets_x = (o.ravel() for o in np.mgrid[0:3, 0:3])
    window_y = rows[:, None] + offsets_y
    window_x = columns[:, None] + offsets_x
    indices = window_y * width + window_x

    colours = image[window_y, window_x].astype(np.float64)
    centred = colours - colours.mean(axis=1, keepdims=True)
    covariance = np.einsum("nki,nkj->nij", centred, centred) / 9.0 + np.eye(3) * (_EPSILON / 9.0)
    affinity = (1.0 + centred @ np.linalg.inv(covariance) @ centred.transpose(0, 2, 1)) / 9.0
    values = (np.eye(9) - affinity).ravel()

    laplacian = scipy.sparse.csr_matrix(
        (values, (np.repeat(indices, 9, axis=1).ravel(), np.tile(indices, (1, 9)).ravel())),
        shape=(height * width, height * width),
    )
    free = np.flatnonzero(unknown.ravel())
    solid = np.flatnonzero(inside.ravel())
    right_side = -np.asarray(laplacian[free][:, solid].sum(axis=1)).ravel()
    solution = scipy.sparse.linalg.spsolve(laplacian[free][:, free].tocsc(), right_side)
    alpha = inside.ravel().astype(np.float32)
    alpha[free] = np.clip(solution, 0.0, 1.0)
    return alpha.reshape(height, width)


def decontaminate(image: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return the person's own colour, undoing the mix with the backdrop near the edge.

    Inverts C = a F + (1 - a) B with B spread from the surroundings; where opacity is low that
    is noise, so F fades over to the colour spread from the solid person.

    Args:
        image: (H, W, 3) float32 in 0..1.
        alpha: (H, W) float32 in 0..1.
    """
    person = _spread(image, (alpha > 0.98).astype(np.float32))
    backdrop = _spread(image, (alpha < 0.02).astype(np.float32))
    a = alpha[..., None]
    inverted = np.clip((image - (1.0 - a) * backdrop) / np.maximum(a, 0.2), 0.0, 1.0)
    trust = np.clip((a - 0.3) / 0.6, 0.0, 1.0)
    return np.asarray(trust * inverted + (1.0 - trust) * person, np.float32)


def _spread(image: FloatArray, weight: FloatArray) -> FloatArray:
    """Fill where weight is 0 with colours from near by (normalised blurs, fine over coarse)."""
    filled = np.zeros_like(image)
    for sigma in (24.0, 10.0, 4.0, 1.6):
        total = cv2.GaussianBlur(weight, (0, 0), sigma)[..., None]
        mean = cv2.GaussianBlur(image * weight[..., None], (0, 0), sigma) / np.maximum(total, 1e-6)
        share = np.clip(total / 0.02, 0.0, 1.0)
        filled = share * mean + (1.0 - share) * filled
    known = weight[..., None] > 0
    return np.where(known, image, filled).astype(np.float32)
