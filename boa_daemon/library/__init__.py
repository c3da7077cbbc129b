"""The public library for programs and notebooks, exported by `boa_daemon`."""
