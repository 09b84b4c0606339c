"""`python -m shrink`."""

from shrink.cli import main

main()
