"""The CUDA device: driver, context, streams, memory, codecs and NVML's measurements."""
