"""``python -m boa_daemon`` is ``boa``."""

from boa_daemon.cli import main

if __name__ == "__main__":
    main()
