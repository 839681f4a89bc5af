"""CUDA kernels: one ``.cu`` file a subject, and the loader that compiles them.

Conventions, in every file:

- Planes are C-contiguous device arrays: luma (H, W), chroma (⌈H/2⌉, ⌈W/2⌉, 2) with Cb before Cr,
  so a row's pitch is its width times its bytes per sample. Other pitches are named in the comment.
- ``sample_t`` is ``unsigned char`` for NV12 and ``unsigned short`` for P010 (code value << 6),
  chosen by ``-DSAMPLE_BITS=8`` or ``16`` when a file is compiled.
- Each kernel names its counterpart on the CPU, which is the reference, and its rounding.
- No kernel allocates, prints or synchronises with the host.
"""
