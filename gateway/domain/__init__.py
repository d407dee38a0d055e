"""Domain types, free of I/O: messages, routes, sessions, turns, children, steps, tools, decisions, waits, slots. Used
by every other room.

Frozen, slotted, keyword-only dataclasses; ids are `NewType`s minted and parsed in `ids`; times are aware UTC. Import
from the submodules (`from gateway.domain.turns import Turn`).
"""
