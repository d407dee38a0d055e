"""The types, readable first and alone: what people say, sessions and turns, tools, waits, slots.

Frozen, slotted, keyword-only dataclasses; ids are `NewType`s minted and parsed in `ids`; times are aware UTC.
Import from the submodules (`from gateway.model.sessions import Turn`).
"""
