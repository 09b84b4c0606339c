"""Reference Keras architectures, one file each."""
