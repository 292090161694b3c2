"""`python -m tuner` is `kimi-tune`."""

from tuner.cli import main

main()
