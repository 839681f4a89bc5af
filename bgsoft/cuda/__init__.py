"""The CUDA device: context, streams, memory, and the crossings between host and device."""
