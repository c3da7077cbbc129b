"""How money is written, everywhere: dollars with their sign.

Amounts have cents, and two significant digits below ten cents: seconds on a GPU cost less than a cent. Prices
have all of their decimals. Least amounts are rounded up, so that they are enough when typed in again.
"""

from __future__ import annotations

import math

MOST_DECIMALS = 6
"""The ledger counts whole micro-dollars."""


def in_dollars(amount: float | None) -> str:
    """Return an amount of dollars: ``$1,234.50``, ``-$5.00``, ``$0.0034``; a dash for None."""
    if amount is None:
        return "-"
    size = abs(amount)
    if not math.isfinite(size):
        return f"{'-' if amount < 0.0 else ''}$unlimited"
    if size >= 0.0995 or size < 0.5 * 10.0**-MOST_DECIMALS:
        return _signed(amount, f"{size:,.2f}")
    return _signed(amount, _cents(f"{size:.{min(1 - math.floor(math.log10(size)), MOST_DECIMALS)}f}"))


def price_in_dollars(amount: float) -> str:
    """Return a price as it is listed, up to micro-dollars: ``$21.957642``, ``$1.006``, ``$24.00``."""
    return _signed(amount, _cents(f"{abs(amount):,.{MOST_DECIMALS}f}"))


def least_in_dollars(amount: float) -> str:
    """Return the least that is enough, rounded up at the sixth digit or at the cent: ``$25.7793``."""
    decimals = max(5 - math.floor(math.log10(amount)), 2) if amount > 0.0 else 2
    # The slack keeps 8.06 from becoming 8.061 through a rounding error.
    up = math.ceil(amount * 10.0**decimals * (1.0 - 1e-9)) / 10.0**decimals
    return _signed(up, _cents(f"{up:,.{decimals}f}"))


def _signed(amount: float, digits: str) -> str:
    """Return digits with the signs; what rounds to nothing has no minus."""
    is_below = amount < 0.0 and digits.strip("0.,")
    return f"{'-' if is_below else ''}${digits}"


def _cents(digits: str) -> str:
    """Return digits without trailing zeros beyond cents."""
    whole, _, rest = digits.partition(".")
    return f"{whole}.{rest.rstrip('0').ljust(2, '0')}"
