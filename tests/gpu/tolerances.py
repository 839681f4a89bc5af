"""Allowed differences of the GPU's results from the CPU's that only tests need."""

from __future__ import annotations

from bgsoft.diagnose.parity import TENSOR, Tolerance

# In 8-bit codes.
TENSOR_8_BITS = TENSOR._replace(rare=0.0001)
"""A model's input from 8-bit frames, where such ties are rare."""
MAX_WHOLE_FRAME_DIFFERENCE = 3.5
"""Replaces 2.5 for odd sizes: chroma falls between samples, where OpenCV rounds intermediates."""

# Of masks and mattes in [0, 1].
BLENDED = 1e-4
"""Weighted sums of masks."""
SCHEDULED_MASK = Tolerance(usual=0.05, rare=0.002, mean=0.002)
"""Masks of several passes, whose weights differ by some codes in places."""
AVERAGED_MATTE = Tolerance(usual=0.05, rare=0.01, mean=0.004)
RECURRENT_ALPHA = Tolerance(maximum=3 / 255, usual=1e-5, rare=0.02)
"""Except for samples whose picture differs by a code value."""

# Of faces.
FACE_SIZE_SHARE = 0.005
"""Mean distance of landmarks through both models, in face widths."""
FACE_BOX_SHARE = 0.02
"""Distance of boxes through the detector, in sides of the view."""
PRESENCE = 0.02
"""Difference of a face's presence, through both models."""
CHECK = 0.05
"""Difference of the other detector's scores of faces, which are about 1."""

# Least PSNR of whole pictures, in dB.
STRUCTURED_DB = 70.0
"""Composites of structured pictures, in addition to the other limits."""
MIN_FACES_DB = 32.0
"""Luma with faces, or batches of other sizes."""
