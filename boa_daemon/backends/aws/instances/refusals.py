"""Convert errors of EC2 launches to refusals: which offers are closed, and for how long.

The table `client/refusal_codes.py` has the scope and the rest of each code; here a scope becomes the names of
the offers that it closes. Ending instances does not use this module and continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import cast

from boa_daemon.backends.aws.client.errors import CallFailed, meaning_of
from boa_daemon.backends.aws.client.refusal_codes import BY_MEANING, Scope, has_own_row, rule_of
from boa_daemon.backends.aws.instances.market import AwsMarket
from boa_daemon.tick.facts.offers import Offer, RefusalKind
from boa_daemon.tick.facts.ports import Refused, Unknown
from boa_daemon.tick.facts.rests import OFFER

_LOG = logging.getLogger("boa.cloud")


def refusal_of(error: CallFailed, offer: Offer, market: AwsMarket) -> Refused | Unknown:
    """Return what a failed launch means for the planner."""
    rule = error.rule
    if error.encoded:
        _LOG.warning("%s", error.encoded)
    kind = rule.answer
    if kind == "unknown" or error.meaning == "unknown":
        return Unknown(reason=str(error))
    seconds = rule.rest_seconds
    if rule.answer == "throttled" and seconds is not None:
        # Jitter, so that several daemons of one account do not ask together.
        jitter = seconds * Random(str(error) + offer.key).uniform(1.0, 2.0)
        seconds = jitter if error.retry_after_seconds is None else error.retry_after_seconds
    if rule.answer == "quota" and rule.scope == "quota":
        market.learn_quota(market.quota_code(offer.instance_type, offer.market), error.vcpu_limit)
    return Refused(
        reason=str(error),
        kind=cast(RefusalKind, kind),
        scopes=_SCOPES[rule.scope](offer, market),
        retry_after_seconds=seconds,
    )


def refusal_of_end(code: str, said: str, offer: Offer, market: AwsMarket, *, times: int) -> Refused:
    """Return what an instance that never ran means: a refusal of its offer, by EC2's reason for its end.

    `times` launches of the offer have ended so in a row.
    """
    plain = code.partition(".")[2] or code
    # EC2 says no more than this of a KMS key that it may not use.
    plain = "KMSKeyNotAccessibleFault" if code == "Client.InternalError" else plain
    meaning = meaning_of(plain, 400 if code.startswith("Client.") else 500)
    rule = rule_of(plain, meaning, said)
    if meaning in ("unknown", "bad-request") and not has_own_row(plain):
        rule = BY_MEANING["no-capacity"]
    seconds = OFFER.seconds(times=times)
    return Refused(
        reason=f"{said.rstrip('.')}. {rule.advice}",
        kind="no-capacity" if rule.answer in ("unknown", "throttled") else cast(RefusalKind, rule.answer),
        scopes=_SCOPES[rule.scope](offer, market),
        retry_after_seconds=seconds if rule.rest_seconds is None else max(seconds, rule.rest_seconds),
    )


def _of_quota(offer: Offer, market: AwsMarket) -> tuple[str, ...]:
    """Return every type of the offer's quota, in all zones."""
    code = market.quota_code(offer.instance_type, offer.market)
    names = [name for name in market.settings.instance_types if market.quota_code(name, offer.market) == code]
    return tuple(f"{name}/*/{offer.market}" for name in names or [offer.instance_type])


def _of_image(offer: Offer, market: AwsMarket) -> tuple[str, ...]:
    """Return every type that is launched from the offer's image."""
    settings, named = market.settings, market.settings.image_of(offer.instance_type)
    names = [name for name in settings.instance_types if settings.image_of(name) == named]
    return tuple(names or [offer.instance_type])


def _of_zone(offer: Offer, market: AwsMarket) -> tuple[str, ...]:
    return (f"*/{offer.zone or '*'}",)


_SCOPES: Mapping[Scope, Callable[[Offer, AwsMarket], tuple[str, ...]]] = {
    "offer": lambda offer, _: (offer.key,),
    "reservation": lambda offer, _: (offer.key,),
    # A subnet closes its zone once no other subnet of the zone has taken the launch.
    "subnet": _of_zone,
    "zone": _of_zone,
    "type in zone": lambda offer, _: (f"{offer.instance_type}/{offer.zone or '*'}",),
    "type": lambda offer, _: (offer.instance_type,),
    "image": _of_image,
    "market": lambda offer, _: (f"*/*/{offer.market}",),
    "quota": _of_quota,
    "region": lambda offer, _: ("*",),
    "order": lambda offer, _: (),
}
