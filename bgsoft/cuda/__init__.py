"""The CUDA device: driver, context, streams, memory, codecs and what NVML reports."""
