"""Where the operators of a file run: on an accelerator, in a delegate, or on the CPU."""
