"""Figures for people: money, durations, counts. Used by status lines and replies; pure."""

from __future__ import annotations

from datetime import timedelta

_SYMBOLS = (("USD", "$"), ("EUR", "€"), ("GBP", "£"))


def money(micros: int, currency: str) -> str:
    """Return millionths of a currency for people: `$0.012`, `3.40 CHF`; below a tenth of a cent, `<$0.001`."""
    symbol = dict(_SYMBOLS).get(currency, currency)
    amount = micros / 1_000_000
    less = "<" if 0 < micros < 1_000 else ""
    figure = "0.001" if less else f"{amount:,.2f}" if amount >= 1 else f"{amount:.3f}"
    return f"{less}{figure} {symbol}" if symbol.isalnum() else f"{less}{symbol}{figure}"


def duration(time: timedelta) -> str:
    """Return a duration for people: `12 s`, `3 min 20 s`, `2 h 5 min`, `30 days`."""
    seconds = max(round(time.total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{count(days, 'day')} {hours} h" if hours else count(days, "day")


def count(number: int, what: str) -> str:
    """Return a number with its noun: `1 call`, `2 calls`, `1,000 calls`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
