"""The meeting rooms of the trial's world and their bookings: the same ones in every world.

`world` writes them to a file, and `booking_server` reads and changes that file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

SEATS = {"Aurora": 8, "Borealis": 4, "Cedar": 6, "Dune": 10, "Fjord": 6, "Harbour": 12, "Lagoon": 20}
TIMES = [f"{hour:02}:00" for hour in range(9, 17)]
PEOPLE = ["Mira Sand", "Jon Hale", "Petra Vogel", "Oskar Lund", "Lin Zhao", "Tariq Aziz", "Ruth Adler", "Ivo Marek"]
TITLES = ["Stand-up", "Planning", "Review", "Interview", "Supplier call", "Training", "One to one", "Budget round"]

Booking = dict[str, Any]


def booking(room: str, day: date, time: str, title: str, booked_by: str, **more: Any) -> Booking:
    return {"room": room, "date": day.isoformat(), "time": time, "title": title, "booked_by": booked_by, **more}


def everyday(chance: random.Random) -> Iterator[Booking]:
    """Two fifths of all hours of the workdays from September to the middle of November."""
    for offset in range(77):
        day = date(2026, 9, 1) + timedelta(days=offset)
        if day.weekday() < 5:
            for room in SEATS:
                share = 0.2 + 0.035 * len(room)
                for time in TIMES:
                    if chance.random() < share:
                        people = chance.randint(2, SEATS[room])
                        yield booking(room, day, time, chance.choice(TITLES), chance.choice(PEOPLE), people=people)


def arranged() -> Iterator[Booking]:
    """Those that tasks are about: two free times, a room that is taken, and lunches that look alike."""
    for time in TIMES:
        if time not in ("11:00", "15:00"):
            yield booking("Aurora", date(2026, 12, 3), time, "Training", "Ruth Adler", people=8)
    yield booking("Dune", date(2026, 12, 4), "10:00", "Supplier call", "Ivo Marek", people=7)
    for week in range(5):
        day = date(2026, 11, 20) + timedelta(weeks=week)
        yield booking("Lagoon", day, "12:00", "Team lunch", "Mira Sand", people=18, series="R-4")
    yield booking("Harbour", date(2026, 11, 27), "12:00", "Team lunch", "Jon Hale", people=11)
    yield booking("Lagoon", date(2026, 11, 27), "13:00", "Team lunch, clearing up", "Mira Sand", people=2)


def of_december() -> Iterator[Booking]:
    """Those that later tasks are about: a week of one person, with a series, and a room that is taken one morning."""
    for number, room, time, title in [
        (14, "Cedar", "10:00", "Interview"),
        (14, "Fjord", "15:00", "Supplier call"),
        (15, "Dune", "09:00", "Planning"),
        (17, "Harbour", "13:00", "Training"),
        (18, "Aurora", "16:00", "Review"),
        (21, "Cedar", "10:00", "Interview"),
    ]:
        yield booking(room, date(2026, 12, number), time, title, "Lin Zhao", people=3)
    for week in range(4):
        day = date(2026, 12, 2) + timedelta(weeks=week)
        yield booking("Lagoon", day, "14:00", "Reading circle", "Lin Zhao", people=9, series="R-5")
    yield booking("Cedar", date(2026, 12, 15), "10:00", "Interview", "Jon Hale", people=3)
    yield booking("Borealis", date(2026, 12, 16), "09:00", "One to one", "Ruth Adler", people=2)


def all_bookings() -> list[Booking]:
    found = [*everyday(random.Random(15)), *arranged(), *of_december()]
    return [{"booking_id": f"B-{number}", **one} for number, one in enumerate(found, 1001)]
