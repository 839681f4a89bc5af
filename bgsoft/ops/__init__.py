"""Operations on pictures: one ``.cu`` file a subject, for the device and mostly for the host too.

Conventions, in every file:

- Planes are C-contiguous arrays: luma (H, W), chroma (⌈H/2⌉, ⌈W/2⌉, 2) with Cb before Cr,
  so a row's pitch is its width times its bytes per sample. Other pitches are named in the comment.
- ``sample_t`` is ``unsigned char`` for NV12 and ``unsigned short`` for P010 (code value << 6),
  chosen by ``-DSAMPLE_BITS=8`` or ``16`` when a file is compiled.
- The comment of each kernel states its rounding and its launcher; a kernel for the device alone
  states its counterpart on the CPU, which is the reference.
- No kernel allocates, prints or synchronises with the host.
"""
