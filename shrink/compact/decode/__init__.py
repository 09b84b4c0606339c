"""Kernels stored for TFLite Micro's operator TFLM_DECODE, in fewer bytes of flash."""
