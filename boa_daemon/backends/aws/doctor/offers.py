"""Doctor checks of what the region rents: types and their zones, prices, quotas, images, disks."""

from __future__ import annotations

from collections.abc import Iterator

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.doctor.check import DoctorCheck
from boa_daemon.backends.aws.instances.images import newest, staleness
from boa_daemon.backends.aws.prices.region_prices import how_to_price
from boa_daemon.backends.aws.prices.side_prices import side_prices
from boa_daemon.backends.settings import BUILT
from boa_daemon.errors import MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Clock
from boa_daemon.units import counted
from policies.money_text import price_in_dollars


class OffersDoctor:
    """Checks the types of the settings, one by one. Nothing is started or ended."""

    def __init__(self, cloud: AwsCloud, catalog: Catalog, clock: Clock) -> None:
        self._cloud, self._settings, self._calls = cloud, cloud.settings, cloud.calls
        self._catalog, self._clock = catalog, clock

    def types(self) -> Iterator[DoctorCheck]:
        """Check that the region rents the types of the settings."""
        if not self._settings.instance_types:
            yield DoctorCheck(
                name="instance types",
                status="failed",
                said="none are named",
                fix='Name some under [cloud]: instance_types = ["g5.xlarge"]; `boa catalog` lists them',
            )
        zones = self._cloud.market.zones()
        for name in self._settings.instance_types:
            self._catalog.entry(name)
            here = zones.get(name, ())
            where = f"of {', '.join(self._settings.zones)}" if self._settings.zones else ""
            yield DoctorCheck(
                name=f"type {name}",
                status="ok" if here else "failed",
                said=", ".join(here)
                or f"no zone {where} in {self._settings.region} rents it".replace("  ", " "),
                fix="" if here else "Take it out of instance_types, or choose another region or zones",
            )

    def subnets(self) -> Iterator[DoctorCheck]:
        """Check that each zone has a subnet with free addresses."""
        for zone in sorted({zone for zones in self._cloud.market.zones().values() for zone in zones}):
            names = [name for name in self._cloud.launcher.open_subnets(zone) if name]
            yield DoctorCheck(
                name=f"subnet {zone}",
                status="ok" if names else "warning",
                said=", ".join(names) or "neither a subnet of the settings nor a default one",
                fix=""
                if names
                else "Name a subnet of this zone under [cloud] subnets, or leave the zone out",
            )

    def prices(self) -> Iterator[DoctorCheck]:
        """Check the price of each type and the prices besides instances, with their sources."""
        try:
            sides = side_prices(self._settings)
            said = f"beside instances as of {sides.as_of}, by {sides.source}"
            yield DoctorCheck(name="prices beside", status="ok", said=said)
        except MissingPrice as error:
            fix = f"Type `boa prices --beside --region {self._settings.region}`"
            yield DoctorCheck(
                name="prices beside", status="failed", said=str(error).partition(". ")[0], fix=fix
            )
            return
        for name in self._settings.instance_types:
            price = self._cloud.market.price(name, "", "on-demand")
            is_live = self._cloud.market.ages().get(f"price {name}") is not None
            entry = self._catalog.entry(name)
            source = "live" if is_live else f"{entry.source}, as of {entry.as_of or 'an unknown day'}"
            said = f"not known in {self._settings.region}, so it is not rented"
            if price is not None:
                said = f"{price_in_dollars(price)}/hour in {self._settings.region}, {source}"
            yield DoctorCheck(
                name=f"price {name}",
                status="ok" if is_live else "failed" if price is None else "warning",
                said=said,
                fix="" if is_live else how_to_price(self._settings),
            )

    def quotas(self) -> Iterator[DoctorCheck]:
        """Check how many nodes the quotas allow; new accounts have quotas of zero."""
        self._cloud.nodes()
        for offer in self._one_per_quota():
            vcpus = self._catalog.entry(offer.instance_type).vcpus
            code = self._cloud.market.quota_code(offer.instance_type, offer.market)
            quota, left = self._cloud.market.quota(code), offer.nodes_left
            name = f"quota {code or offer.instance_type} {offer.market}"
            if quota is None or left is None:
                fix = "Allow servicequotas:GetServiceQuota"
                yield DoctorCheck(name=name, status="warning", said="not known", fix=fix)
                continue
            said = f"{quota:.0f} vCPUs, room for {left} more {offer.instance_type} of {vcpus}"
            short = f"Ask for at least {vcpus} vCPUs more in the Service Quotas console, quota {code}"
            yield DoctorCheck(
                name=name, status="ok" if left else "failed", said=said, fix="" if left else short
            )

    def _one_per_quota(self) -> list[Offer]:
        """Return one offer for each type and market."""
        found: dict[tuple[str, str], Offer] = {}
        for offer in self._cloud.offers():
            if offer.market != "reserved":
                found.setdefault((offer.instance_type, offer.market), offer)
        return list(found.values())

    def images(self) -> Iterator[DoctorCheck]:
        """Check that there is an image for each type, and whether our own image is stale."""
        for name in self._settings.instance_types:
            named = self._settings.image_of(name)
            image, _ = self._cloud.launcher.image(name)
            own = newest(self._calls) if named == BUILT else None
            stale = [] if own is None else list(staleness(self._calls, own, self._clock.now()))
            said = image if image == named else f"{image} by {named}"
            yield DoctorCheck(
                name=f"image {name}",
                status="warning" if stale else "ok",
                said="; ".join([said, *([own.holds] if own else []), *stale]),
                fix="`boa image build --yes` makes a new one" if stale else "",
            )

    def disks(self) -> Iterator[DoctorCheck]:
        """Report on which disks jobs read and write on a node of each type."""
        root = f"root volume of {self._settings.volume_gib} GiB at {self._settings.volume_mb_per_second} MB/s"
        for name in self._settings.instance_types:
            entry = self._catalog.entry(name)
            own = counted(entry.instance_store_disks, "disk")
            yield DoctorCheck(
                name=f"disk {name}",
                status="ok",
                said=f"{own} of its own ({entry.instance_store_gb} GB) for jobs and their data; {root}"
                if entry.instance_store_disks
                else f"no disk of its own: jobs and their data are on the {root}",
            )
