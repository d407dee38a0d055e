"""The types, readable first and alone: what people say, where it goes, sessions and turns, children, steps, tools,
decisions, waits, slots.

Frozen, slotted, keyword-only dataclasses; ids are `NewType`s minted and parsed in `ids`; times are aware UTC.
Import from the submodules (`from gateway.domain.turns import Turn`).
"""
