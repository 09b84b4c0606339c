"""From a Keras model to a .tflite artifact, and what can be read from one."""
