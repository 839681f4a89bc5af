"""Inference layer: ONNX Runtime sessions behind one small interface."""
