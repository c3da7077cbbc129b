"""The stages of a tick: each module has one function `(state, draft) -> draft`, and says what it may change.

`boa_daemon.tick.decide.decision.STAGES` lists them in order.
"""
