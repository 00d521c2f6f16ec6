"""Connections to other tools: Hugging Face models, sidecars on pretrained decoders, ONNX and ``torch.export`` files.

The optional packages are imported only when one of these modules is."""
