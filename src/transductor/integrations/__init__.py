"""Connects models to other people's tools: Hugging Face, pretrained decoders, ONNX and ``torch.export``.

Optional packages are imported only by the modules that need them.
"""
