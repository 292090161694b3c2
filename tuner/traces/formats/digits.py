"""Numbers and times parsed from many places of a byte buffer at once.

Each function takes the buffer and the bounds of n fields, and returns n values and a mask of the fields that
it cannot read; those are for the slow way, which knows what to say about them.
"""

from __future__ import annotations

from datetime import date

import numpy as np
from numpy.typing import NDArray

from tuner.traces.formats.base import MAX_SECONDS, YEARS
from tuner.traces.trace import I64

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
_MAX_DIGITS = 18


def whole_numbers(buffer: Bytes, left: I64, right: I64) -> tuple[I64, Mask]:
    """Unsigned whole numbers of 1 to 18 digits."""
    width = right - left
    bad = (width < 1) | (width > _MAX_DIGITS)
    values = np.zeros(len(left), np.int64)
    last = len(buffer) - 1
    for place in range(int(min(width.max(initial=0), _MAX_DIGITS))):
        at = left + place
        inside = at < right
        digit = buffer[np.minimum(at, last)] - np.uint8(48)
        bad |= inside & (digit > 9)
        values = np.where(inside, values * 10 + digit, values)
    return values, bad


def seconds_ns(buffer: Bytes, left: I64, right: I64) -> tuple[I64, Mask]:
    """Unsigned decimal seconds ("12", "4.314579") in nanoseconds, rounded beyond nine decimals."""
    width = right - left
    last = len(buffer) - 1
    point = right.copy()
    for place in range(int(min(width.max(initial=0), _MAX_DIGITS + 1))):
        at = left + place
        is_point = (at < right) & (buffer[np.minimum(at, last)] == 46) & (point == right)
        point = np.where(is_point, at, point)
    whole, bad = whole_numbers(buffer, left, point)
    has_fraction = point < right
    fraction, bad_fraction = _fraction_ns(buffer, point + 1, right)
    bad |= has_fraction & bad_fraction
    bad |= whole >= MAX_SECONDS
    return np.where(bad, 0, whole) * 1_000_000_000 + np.where(has_fraction, fraction, 0), bad


def _fraction_ns(buffer: Bytes, left: I64, right: I64) -> tuple[I64, Mask]:
    """Digits behind a decimal point in nanoseconds."""
    digits, bad = whole_numbers(buffer, left, right)
    width = np.clip(right - left, 0, _MAX_DIGITS)
    powers = 10 ** np.arange(10, dtype=np.int64)
    up = powers[np.clip(9 - width, 0, 9)]
    down = powers[np.clip(width - 9, 0, 9)]
    return (digits * up + down // 2) // down, bad


def datetimes_ns(buffer: Bytes, left: I64, right: I64) -> tuple[I64, Mask]:
    """Times like `2023-11-16 18:15:46.6805900`, with Z or an offset like +00:00 or none, in nanoseconds of
    UTC since 1970 (no zone: taken as UTC).
    """
    bad = right - left < 19
    left = np.where(bad, 0, left)
    right = np.where(bad, 19, right) if len(buffer) >= 19 else right
    if len(buffer) < 19:
        return np.zeros(len(left), np.int64), np.ones(len(left), bool)

    def number(start: int, count: int) -> I64:
        nonlocal bad
        value, wrong = whole_numbers(buffer, left + start, left + start + count)
        bad = bad | wrong
        return value

    def sign(offset: int, *codes: int) -> None:
        nonlocal bad
        bad = bad | ~np.isin(buffer[left + offset], codes)

    sign(4, 45)
    sign(7, 45)
    sign(10, 32, 84)
    sign(13, 58)
    sign(16, 58)
    day_number = number(0, 4) * 10_000 + number(5, 2) * 100 + number(8, 2)
    hour, minute, second = number(11, 2), number(14, 2), number(17, 2)
    bad |= (hour > 23) | (minute > 59) | (second > 59)
    days, bad_day = _days(day_number)
    bad |= bad_day
    zone_at, fraction, bad_fraction = _fraction_and_zone(buffer, left + 19, right)
    bad |= bad_fraction
    offset_s, bad_zone = _zone_s(buffer, zone_at, right)
    bad |= bad_zone
    whole = days * 86_400 + hour * 3_600 + minute * 60 + second - offset_s
    return whole * 1_000_000_000 + fraction, bad


def _days(day_number: I64) -> tuple[I64, Mask]:
    """Days since 1970 of dates written as the number yyyymmdd."""
    distinct, inverse = np.unique(day_number, return_inverse=True)
    days = np.zeros(len(distinct), np.int64)
    bad = np.zeros(len(distinct), bool)
    epoch = date(1970, 1, 1).toordinal()
    for index, value in enumerate(distinct.tolist()):
        try:
            days[index] = date(value // 10_000, value // 100 % 100, value % 100).toordinal() - epoch
        except ValueError:
            bad[index] = True
        bad[index] |= value // 10_000 not in YEARS
    return days[inverse], bad[inverse]


def _fraction_and_zone(buffer: Bytes, at: I64, right: I64) -> tuple[I64, I64, Mask]:
    """Where the zone begins, and the fraction in front of it in nanoseconds."""
    last = len(buffer) - 1
    has_point = (at < right) & (buffer[np.minimum(at, last)] == 46)
    start = np.where(has_point, at + 1, at)
    end = start.copy()
    going = has_point.copy()
    for _ in range(_MAX_DIGITS):
        going = going & (end < right) & (buffer[np.minimum(end, last)] - np.uint8(48) <= 9)
        if not going.any():
            break
        end = end + going
    fraction, bad = _fraction_ns(buffer, start, end)
    return end, np.where(has_point, fraction, 0), has_point & bad


def _zone_s(buffer: Bytes, at: I64, right: I64) -> tuple[I64, Mask]:
    """Seconds east of UTC of nothing, `Z`, or an offset like `+01:00`."""
    last = len(buffer) - 1
    width = right - at
    first = buffer[np.minimum(at, last)]
    none = (width == 0) | ((width == 1) & (first == 90))
    signed = (width == 6) & ((first == 43) | (first == 45)) & (buffer[np.minimum(at + 3, last)] == 58)
    bad = ~(none | signed)
    if not signed.any():
        return np.zeros(len(at), np.int64), bad
    hours, bad_hours = whole_numbers(buffer, at + 1, np.where(signed, at + 3, at + 1))
    minutes, bad_minutes = whole_numbers(buffer, at + 4, np.where(signed, at + 6, at + 4))
    bad |= signed & (bad_hours | bad_minutes | (hours > 23) | (minutes > 59))
    offset = np.where(signed, hours * 3_600 + minutes * 60, 0)
    return np.where(first == 45, -offset, offset), bad
