"""The public face for programs and notebooks; `boa_daemon` itself hands on what is here."""
