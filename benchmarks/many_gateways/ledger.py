"""What the clients of the three gateways saw, what was done to the gateways, and what of it may not be.

Values and pure functions; it starts nothing and asks nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LONGEST = 2.0
"""Seconds that a request may wait."""
SETTLED = 20.0
"""Seconds after which the gateways have written what waited for a database that is back."""
_STARVED = 1.0
"""Seconds in line for a processor, after which a database does not answer in time."""
CLIENTS, BALANCER, DATABASE = "clients", "balancer", "database"
"""Parties beside the gateways, which go by their own names."""


class Outcome(StrEnum):
    ANSWERED = "answered"
    TOLD = "told"
    """An error as the protocol has it, with a text."""
    REFUSED = "refused"
    """An HTTP status that is none of the protocol's."""
    BROKEN = "broken"
    """The response ended in the middle, or none came."""


@dataclass(frozen=True)
class Seen:
    """One request, as its client saw it, by the name that HAProxy logs; `own` is how long it takes by itself."""

    name: str
    kind: str
    began: float
    ended: float
    outcome: Outcome
    text: str = ""
    own: float = 0.0

    @property
    def waited(self) -> float:
        return self.ended - self.began - self.own


class Harm(StrEnum):
    KILLED = "killed"
    TERMINATED = "stopped and started again"
    PAUSED = "paused"
    DATABASE = "database"


@dataclass(frozen=True)
class Fault:
    """Something that was done to a gateway, or to the database, which all of them have."""

    harm: Harm
    began: float
    ended: float
    gateway: str = ""
    what: str = ""

    def meets(self, began: float, ended: float, after: float = 0.0) -> bool:
        return began <= self.ended + after and ended >= self.began


@dataclass
class Rest:
    """A cut result, and whether its rest could be read in the end."""

    mark: str
    made: float
    request: str
    """The name of the request that made it."""
    reads: int = 0
    is_lost: bool = False
    told: list[str] = field(default_factory=list)
    """The names of the requests that could not read it."""


@dataclass
class Queued:
    """How long the processes of each party have stood in line for a processor, since the beginning, at many moments."""

    at: dict[str, list[float]] = field(default_factory=dict)
    total: dict[str, list[float]] = field(default_factory=dict)

    def add(self, who: str, at: float, more: float) -> None:
        self.at.setdefault(who, []).append(at)
        totals = self.total.setdefault(who, [0.0])
        totals.append(totals[-1] + more)

    def during(self, who: str, began: float, ended: float) -> float:
        moments = self.at.get(who, [])
        totals = self.total.get(who, [0.0])
        first, last = bisect_left(moments, began), bisect_left(moments, ended)
        # From the look before to the look after.
        return totals[min(last + 1, len(totals) - 1)] - totals[max(0, first)]


@dataclass
class Ledger:
    """Everything that was seen in one run."""

    seen: list[Seen] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    """The ids of notes whose call was answered."""
    executed: Counter[str] = field(default_factory=Counter)
    """How often each note was written, as the servers say."""
    stale: list[Seen] = field(default_factory=list)
    """Reads that did not see what their client had written before."""
    wrong: list[str] = field(default_factory=list)
    gateways: Mapping[str, str] = field(default_factory=dict)
    """The gateway that had each request, as HAProxy says."""
    queued: Queued = field(default_factory=Queued)

    def gateway(self, seen: Seen) -> str:
        return self.gateways.get(seen.name, "")

    def hit(self, harm: Harm, seen: Seen, after: float = 0.0) -> bool:
        """Whether this was done while the request was in progress: to its gateway, or to the database."""
        return any(
            fault.harm is harm
            and fault.gateway in ("", self.gateway(seen))
            and fault.meets(seen.began, seen.ended, after)
            for fault in self.faults
        )


@dataclass(frozen=True)
class Verdict:
    """A run's requests, sorted by what they mean."""

    in_flight: list[Seen]
    """Lost with the process that was killed."""
    lost: list[Seen]
    """Lost without that reason."""
    told_of_database: list[Seen]
    told: list[Seen]
    """Told of an error without a reason."""
    paused: list[Seen]
    """Waited for a paused gateway that they had been sent to."""
    late: list[Seen]
    """Waited too long without that reason."""
    held_in_memory: list[Rest]
    """Rests that only a killed gateway had, because the database was away."""
    lost_rests: list[Rest]
    stale: list[Seen]
    stale_meanwhile: list[Seen]
    """Stale while the database was away."""
    twice: list[str]
    never: list[str]


def judged(ledger: Ledger) -> Verdict:
    seen = ledger.seen
    gone = [one for one in seen if one.outcome in (Outcome.REFUSED, Outcome.BROKEN)]
    told = [one for one in seen if one.outcome is Outcome.TOLD]
    late = [one for one in seen if by_itself(ledger, one) > LONGEST]
    lost_rests = [rest for rest in ledger.rests if rest.is_lost]
    in_memory = [rest for rest in lost_rests if was_in_memory(ledger, rest)]
    gone_with_it = {name for rest in in_memory for name in rest.told}
    return Verdict(
        in_flight=[one for one in gone if was_in_flight(ledger, one)],
        lost=[one for one in gone if not was_in_flight(ledger, one)],
        told_of_database=[one for one in told if _may_be_told(ledger, one)],
        told=[one for one in told if not _may_be_told(ledger, one) and one.name not in gone_with_it],
        paused=[one for one in late if ledger.hit(Harm.PAUSED, one)],
        late=[one for one in late if not ledger.hit(Harm.PAUSED, one)],
        held_in_memory=in_memory,
        lost_rests=[rest for rest in lost_rests if rest not in in_memory],
        stale=[one for one in ledger.stale if not ledger.hit(Harm.DATABASE, one, SETTLED)],
        stale_meanwhile=[one for one in ledger.stale if ledger.hit(Harm.DATABASE, one, SETTLED)],
        twice=[name for name, times in ledger.executed.items() if times > 1],
        never=[name for name in ledger.answered if name not in ledger.executed],
    )


def was_in_flight(ledger: Ledger, seen: Seen) -> bool:
    """Whether the request was lost because its gateway was killed.

    If it was not the first on its connection, HAProxy closes that in silence, and logs nothing: then it is enough that
    some gateway was killed at that moment.
    """
    if ledger.gateway(seen) or seen.outcome is not Outcome.BROKEN:
        return ledger.hit(Harm.KILLED, seen)
    return any(fault.harm is Harm.KILLED and fault.meets(seen.began, seen.ended) for fault in ledger.faults)


def by_itself(ledger: Ledger, seen: Seen) -> float:
    """What a request waited, less the time in which those who worked on it stood in line for a processor.

    Other work on the machine delays everybody, and says nothing of us. Not the database's: to wait for it or not is up
    to the gateway.
    """
    if seen.waited <= LONGEST:
        return seen.waited
    workers = (CLIENTS, BALANCER, ledger.gateway(seen))
    return seen.waited - sum(ledger.queued.during(who, seen.began, seen.ended) for who in workers)


def was_in_memory(ledger: Ledger, rest: Rest) -> bool:
    """Whether the gateway that cut it was killed before it could write it to a database that was away.

    A database that stood in line for a processor when the gateway was killed, just after the cut, was away, too.
    """
    made_by = ledger.gateways.get(rest.request, "")
    away = [fault for fault in ledger.faults if fault.harm is Harm.DATABASE]
    killed = [fault.began for fault in ledger.faults if fault.harm is Harm.KILLED and fault.gateway == made_by]
    began = rest.made - LONGEST
    after = [at for at in killed if at >= began]
    if any(fault.meets(began, at, SETTLED) for at in after for fault in away):
        return True
    soon = [at for at in after if at <= rest.made + LONGEST]
    return any(_starved(ledger, (DATABASE, made_by), began, at) for at in soon)


def _starved(ledger: Ledger, parties: Iterable[str], began: float, ended: float) -> bool:
    return sum(ledger.queued.during(who, began, ended) for who in parties) > _STARVED


def _may_be_told(ledger: Ledger, seen: Seen) -> bool:
    """A rest that is in a database that is away, or in another gateway's memory, cannot be read until it is back.

    A database that stands in line for a processor is away, too.
    """
    if seen.kind != "read the rest":
        return False
    parties = (DATABASE, ledger.gateway(seen))
    is_slow = _starved(ledger, parties, seen.began - SETTLED, seen.ended)
    return is_slow or ledger.hit(Harm.DATABASE, seen, SETTLED)


def problems(ledger: Ledger, growth: Mapping[str, str]) -> list[str]:
    """What must not be; nothing if all is well. `growth` has what grew, and how."""
    verdict = judged(ledger)
    found: dict[str, Iterable[object]] = {
        "requests were lost that no killed gateway had": verdict.lost,
        "requests got an error without a reason": verdict.told,
        f"requests waited over {LONGEST:g} s": verdict.late,
        "rests of cut results were lost": verdict.lost_rests,
        "reads did not see what was written before": verdict.stale,
        "calls happened twice": verdict.twice,
        "calls were answered and never happened": verdict.never,
        "answers were another's": ledger.wrong,
    }
    said = [f"{len(list(each))} {text}" for text, each in found.items() if each]
    said += [f"{name} grew: {how}" for name, how in growth.items()]
    if not any(fault.harm is Harm.KILLED for fault in ledger.faults):
        said.append("no gateway was killed")
    if not verdict.in_flight and not ledger.answered:
        said.append("nothing was called")
    return said
