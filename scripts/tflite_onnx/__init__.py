"""Reads TFLite models and writes them as plain ONNX graphs; used by ``convert_models.py``."""
