"""A server that books meeting rooms, and asks which time is wanted when several are free.

Started by the gateway of a trial. Its only argument is the file with the bookings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from benchmarks.agent_trial.bookings import SEATS, TIMES, Booking

FILE = Path(sys.argv[-1])
ME = "Trial"

Room = Annotated[str, Field(description="Name of the room, as returned by list_rooms.")]
Day = Annotated[str, Field(description="Date, YYYY-MM-DD.", pattern=r"^\d{4}-\d\d-\d\d$")]
Time = Annotated[str | None, Field(description="Start, such as 09:00. Omit to choose among the free times.")]
People = Annotated[int, Field(description="How many people come.", ge=1)]

server = MCPServer("booking", instructions="Meeting rooms of the office, booked by the hour from 09:00 to 17:00.")


class Chosen(BaseModel):
    """The answer to the question which time is wanted."""

    time: str = Field(description="One of the free times, such as 09:00.")


def bookings() -> list[Booking]:
    found: list[Booking] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def save(changed: list[Booking]) -> None:
    FILE.write_text(json.dumps(changed, indent=0), encoding="utf-8")


def free_times(room: str, date: str) -> list[str]:
    if room not in SEATS:
        raise ToolError(f"There is no room {room!r}. The rooms are {', '.join(SEATS)}.")
    taken = {one["time"] for one in bookings() if one["room"] == room and one["date"] == date}
    return [time for time in TIMES if time not in taken]


def check_seats(room: str, people: int) -> None:
    if SEATS.get(room, people) < people:
        larger = sorted((seats, name) for name, seats in SEATS.items() if seats >= people)
        names = ", ".join(f"{name} ({seats})" for seats, name in larger) or "none"
        raise ToolError(f"{room} seats {SEATS[room]}, not {people}. Rooms with at least {people} seats: {names}.")


async def wanted_time(room: str, date: str, people: int, time: str | None = None) -> Chosen | Elicit[Chosen]:
    """The time of a booking: the one given, the only free one, or the one that the client chooses."""
    free = free_times(room, date)
    check_seats(room, people)
    if time is None and len(free) > 1:
        return Elicit(f"{room} has {len(free)} free times on {date}: {', '.join(free)}. Which one?", Chosen)
    chosen = time or (free[0] if free else "")
    if chosen not in free:
        offered = ", ".join(free) or "none"
        raise ToolError(f"{room} is taken on {date} at {chosen or 'all times'}. Free times that day: {offered}.")
    return Chosen(time=chosen)


@server.tool()
def list_rooms() -> dict[str, Any]:
    """List the meeting rooms with their number of seats."""
    return {"rooms": [{"room": room, "seats": seats} for room, seats in SEATS.items()]}


@server.tool()
def list_free_times(room: Room, date: Day) -> dict[str, Any]:
    """List the hours at which a room is free on one day."""
    return {"room": room, "date": date, "free_times": free_times(room, date)}


@server.tool()
def list_bookings(
    room: Annotated[str | None, Field(description="Only this room.")] = None,
    date_from: Annotated[str | None, Field(description="First date, YYYY-MM-DD.")] = None,
    date_to: Annotated[str | None, Field(description="Last date, inclusive.")] = None,
    booked_by: Annotated[str | None, Field(description="Only bookings of this person, by full name.")] = None,
    limit: Annotated[int | None, Field(description="Maximum bookings to return. Default: all.", ge=1)] = None,
) -> dict[str, Any]:
    """List room bookings, oldest first. total counts all that match, whatever the limit."""
    found = [
        one
        for one in bookings()
        if room in (None, one["room"])
        and booked_by in (None, one["booked_by"])
        and (date_from or "") <= one["date"] <= (date_to or "9999")
    ]
    found.sort(key=lambda one: (one["date"], one["time"]))
    return {"total": len(found), "bookings": found[:limit]}


@server.tool()
def book_room(
    room: Room,
    date: Day,
    title: Annotated[str, Field(description="What the room is booked for.")],
    people: People,
    chosen: Annotated[Chosen, Resolve(wanted_time)],
    time: Time = None,
) -> dict[str, Any]:
    """Book a meeting room for one hour. Refused when the room has too few seats or is taken at that time."""
    del time  # `wanted_time` read it
    if chosen.time not in free_times(room, date):
        raise ToolError(f"{chosen.time} is not one of the free times: {', '.join(free_times(room, date))}.")
    known = bookings()
    number = max(int(one["booking_id"].removeprefix("B-")) for one in known) + 1
    made = {"booking_id": f"B-{number}", "room": room, "date": date, "time": chosen.time, "title": title}
    save([*known, {**made, "booked_by": ME, "people": people}])
    return {"booked": made}


@server.tool()
def cancel_booking(
    booking_id: Annotated[str, Field(description="ID of the booking, as returned by list_bookings, such as B-1001.")],
    scope: Annotated[
        Literal["this", "series"] | None,
        Field(description="Required for a booking of a series: cancel this one only, or the whole series."),
    ] = None,
) -> dict[str, Any]:
    """Cancel a room booking. This cannot be undone."""
    known = bookings()
    found = next((one for one in known if one["booking_id"] == booking_id), None)
    if found is None:
        raise ToolError(f"There is no booking {booking_id!r}. list_bookings shows the IDs.")
    series = found.get("series")
    if series and scope is None:
        raise ToolError(f"{booking_id} is part of the series {series}. Pass scope 'this' or 'series'.")
    gone = [one for one in known if one is found or (scope == "series" and series and one.get("series") == series)]
    save([one for one in known if one not in gone])
    return {"cancelled": [one["booking_id"] for one in gone]}


if __name__ == "__main__":
    server.run()
