"""What instances cost in a region besides what AWS answers: the price file of the settings, the catalogue.

The shipped catalogue has prices of us-east-1. In any other region a type has a price only if the Pricing API
or the file of `[cloud] prices` has one: prices of one region never stand for another's.
"""

from __future__ import annotations

import os

from boa_daemon.backends.settings import AwsSettings
from boa_daemon.inputs.catalog import Catalog


def catalog_of(settings: AwsSettings) -> Catalog:
    """Return the catalogue with the prices of the settings' price file.

    Raises:
        InputError: when the file cannot be read, or holds another region's prices.
    """
    files = (settings.prices,) if settings.prices else ()
    return Catalog.load(*files, region=settings.region)


def price_file_stamp(settings: AwsSettings) -> tuple[str, object]:
    """Return the name and what changes when somebody names another price file, or writes the one there is."""
    try:
        found = os.stat(settings.prices) if settings.prices else None
    except OSError:
        # It is gone, or cannot be reached: reading it says why.
        return settings.prices, "unreadable"
    return settings.prices, found and (found.st_mtime_ns, found.st_size, found.st_ino)


def how_to_price(settings: AwsSettings) -> str:
    """Return what mends a missing price in the region, as a command."""
    file = settings.prices or "prices.toml"
    then = "" if settings.prices else f', and set [cloud] prices = "{file}"'
    return (
        f"Allow pricing:GetProducts; or, where it is denied, have somebody type `boa prices refresh {file} "
        f"--region {settings.region}` (--from FILE reads a saved price list){then}"
    )
