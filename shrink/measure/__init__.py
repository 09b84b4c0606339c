"""Size, memory and latency; metrics are measured in `task`, the tensor arena in `tflite`."""
