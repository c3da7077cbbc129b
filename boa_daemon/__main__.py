"""Run the `boa` command line as ``python -m boa_daemon``."""

from boa_daemon.cli import main

if __name__ == "__main__":
    main()
