"""Other services of the fake cloud: prices, quotas, images, reservations, and events."""

from __future__ import annotations

import json
from datetime import datetime

from moto import backends as moto_backends
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

from boa_daemon.backends.aws.prices.side_prices import QUESTIONS, catalogue_of
from boa_daemon.testing import fake_blocks
from boa_daemon.testing.fake_answers import (
    Answer,
    Call,
    ec2_error,
    ec2_rows,
    iso,
    json_answer,
    json_error,
    price_entry,
)
from boa_daemon.testing.fake_terms import CloudFacts, Lifetime

__all__ = ["json_error", "other_service", "reservations", "send_event", "spot_history"]


def _region_of_queue(call: Call) -> str:
    """Return the region of the queue that a call names: SQS answers in no other."""
    host = str(call.document.get("QueueUrl", "")).removeprefix("https://sqs.").partition("/")[0]
    return host.partition(".amazonaws.")[0] if ".amazonaws." in host else ""


def other_service(cloud: CloudFacts, call: Call) -> Answer | None:
    """Answer calls to services that moto lacks; return None to leave a call to moto."""
    if call.service == "pricing" and call.operation == "GetProducts":
        terms = {each["Field"]: each["Value"] for each in call.document["Filters"]}
        name = terms.get("instanceType", "")
        if not name:
            return _side_price(cloud, call.document["ServiceCode"], terms)
        price = cloud.terms.list_prices.get(name) or _catalogue_price(cloud, name)
        entry = price_entry(name, price or 0.0, dated=cloud.terms.dated_prices.get(name, ()))
        return json_answer({"FormatVersion": "aws_v1", "PriceList": [entry] if price else []})
    if call.service == "sqs" and _region_of_queue(call) not in ("", call.region):
        said = f"The address {call.document['QueueUrl']} is not valid for this endpoint."
        return json_error("InvalidAddress", said)
    if call.service == "servicequotas" and call.operation == "GetServiceQuota":
        code = call.document["QuotaCode"]
        if code not in cloud.terms.vcpu_quotas:
            return json_error("NoSuchResourceException", f"no quota {code}", 400)
        value = float(cloud.terms.vcpu_quotas[code])
        return json_answer(
            {"Quota": {"QuotaCode": code, "ServiceCode": "ec2", "Value": value, "Unit": "None"}}
        )
    if call.service == "ssm" and str(call.document.get("Name", "")).startswith("/aws/service/deeplearning/"):
        image = next(iter(cloud.backend(call.region).amis))
        name = call.document["Name"]
        return json_answer({"Parameter": {"Name": name, "Type": "String", "Value": image, "Version": 1}})
    if call.service == "ssm" and call.operation == "DescribeInstanceInformation":
        return json_answer({"InstanceInformationList": []})
    return None


def _side_price(cloud: CloudFacts, service: str, terms: dict[str, str]) -> Answer:
    """Answer a price besides instances in a region; no entry if the terms match no price."""
    wanted = {key: value for key, value in terms.items() if key != "regionCode"}
    region, entries = terms["regionCode"], []
    known = cloud.terms.side_prices.get(region) or catalogue_of(region)
    for name, (whose, asked, unit, parts) in QUESTIONS.items():
        plain = {key: value for key, value in asked.items() if value[0] != "*"}
        usd = known.get(name)
        if usd is None or (whose, plain) != (service, wanted):
            continue
        usage = {key: f"EUW1-{value[1:]}" for key, value in asked.items() if value[0] == "*"}
        tiers = (
            [("0", 0.0), ("1000000", usd * parts)] if name == "sqs_usd_per_million" else [("0", usd * parts)]
        )
        rows = {
            begin: {"unit": unit, "beginRange": begin, "pricePerUnit": {"USD": f"{price:.12f}"}}
            for begin, price in tiers
        }
        product = {"attributes": plain | usage}
        entries.append({"product": product, "terms": {"OnDemand": {"T": {"priceDimensions": rows}}}})
    return json_answer({"FormatVersion": "aws_v1", "PriceList": [json.dumps(each) for each in entries]})


def _catalogue_price(cloud: CloudFacts, name: str) -> float | None:
    """Return the catalogue's price of a type, if it has one."""
    entry = cloud.catalog.entries.get(name)
    return None if entry is None else entry.usd_per_hour


def spot_history(cloud: CloudFacts, call: Call) -> Answer:
    """Return spot prices since the requested start, and the last price before it for each type and zone."""
    wanted = set(call.numbered("InstanceType"))
    text = call.query.get("StartTime", "")
    start = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else 0.0
    rows = []
    paths = dict(cloud.terms.spot_paths)
    for name in wanted if cloud.terms.spot_fraction else ():
        price = cloud.terms.spot_fraction * (_catalogue_price(cloud, name) or 0.0)
        offered = (row for row in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(call.region, ()))
        for zone in [row["Location"] for row in offered if row["InstanceType"] == name]:
            paths.setdefault((name, zone), [(0.0, price)])
    for (name, zone), path in paths.items():
        known = [(at, usd) for at, usd in path if at <= cloud.clock()]
        before = [point for point in known if point[0] <= start][-1:]
        for at, usd in before + [point for point in known if point[0] > start]:
            if not wanted or name in wanted:
                row = {"instanceType": name, "productDescription": "Linux/UNIX", "spotPrice": f"{usd:.6f}"}
                rows.append(row | {"timestamp": iso(at), "availabilityZone": zone})
    return ec2_rows("DescribeSpotPriceHistory", "spotPriceHistorySet", rows)


def reservations(cloud: CloudFacts, call: Call) -> Answer:
    """Return the capacity reservations of the terms, or only the named ones; an unknown id fails the call."""
    wanted = call.numbered("CapacityReservationId")
    rows = [
        {
            "capacityReservationId": name,
            "instanceType": kind,
            "availabilityZone": zone,
            "availableInstanceCount": left,
            "totalInstanceCount": left,
            "state": "active",
        }
        for kind, (name, zone, left) in cloud.terms.reservations.items()
        if not wanted or name in wanted
    ]
    rows += [
        row
        for row in (*fake_blocks.rows(cloud), *fake_blocks.capacity_rows(cloud))
        if (not wanted or row["capacityReservationId"] in wanted) and _has_tag(cloud, call, row)
    ]
    if lacking := set(wanted) - {str(row["capacityReservationId"]) for row in rows}:
        said = f"The capacity reservation '{min(lacking)}' does not exist"
        return ec2_error("InvalidCapacityReservationId.NotFound", said)
    return ec2_rows("DescribeCapacityReservations", "capacityReservationSet", rows)


def _has_tag(cloud: CloudFacts, call: Call, row: dict[str, object]) -> bool:
    """Return whether a reservation has the tag of the call's filter, if there is one."""
    name, value = call.query.get("Filter.1.Name", ""), call.query.get("Filter.1.Value.1", "")
    one = cloud.terms.capacity.get(str(row["capacityReservationId"]))
    if not name.startswith("tag:") or one is None:
        return True
    return one.tags.get(name.removeprefix("tag:")) == value


def send_event(cloud: CloudFacts, life: Lifetime, what: str, state: str = "") -> None:
    """Send an event of an instance to the terms' queue, or without one to moto's EventBridge."""
    detail = {"instance-id": life.id}
    detail |= {"state": state} if state else {"instance-action": "terminate"}
    event = {
        "version": "0",
        "source": "aws.ec2",
        "detail-type": what,
        "region": life.region,
        "time": iso(cloud.clock() if life.ended_at is None else life.ended_at),
        "resources": [f"arn:aws:ec2:{life.zone}:instance/{life.id}"],
        "detail": detail,
    }
    if not cloud.terms.event_queue:
        bus = moto_backends.get_backend("events")[DEFAULT_ACCOUNT_ID][life.region]
        bus.put_events([{"Source": "aws.ec2", "DetailType": what, "Detail": json.dumps(detail)}])
        return
    queues = moto_backends.get_backend("sqs")[DEFAULT_ACCOUNT_ID][life.region]
    queues.send_message(cloud.terms.event_queue, json.dumps(event))
