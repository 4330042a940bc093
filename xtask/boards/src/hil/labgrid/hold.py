"""Holds a place of a labgrid coordinator while a board is used: `hold.py COORDINATOR SECONDS TAG=VALUE...`.

Reserves a place with these tags, waits for SECONDS at most, and acquires the place. Gives it back when
standard input ends. A line of standard input switches the place off and on. Answers are lines of JSON,
which `mod.rs` beside this file reads.
"""

import json
import os
import select
import sys
import time
from argparse import Namespace

import logging
from labgrid.remote.client import start_session
from labgrid.remote.generated import labgrid_coordinator_pb2 as messages

# labgrid prints for people. Failures are exceptions as well, so its output is dropped.
ANSWERS, sys.stdout = sys.stdout, open(os.devnull, "w")
logging.disable()


def answer(value):
    print(json.dumps(value), file=ANSWERS, flush=True)


def words(error):
    # An error of gRPC has the coordinator's message in its details, an error of labgrid in its arguments.
    text = error.details() if hasattr(error, "details") else " ".join(map(str, error.args))
    return " ".join(text.split()) or repr(error)


class Unreachable(Exception):
    """No place is available."""


class Session:
    def __init__(self, coordinator):
        self.labgrid = start_session(coordinator)
        self.run = self.labgrid.loop.run_until_complete

    def call(self, name, **fields):
        request = getattr(messages, f"{name}Request")(**fields)
        return self.run(getattr(self.labgrid.stub, name)(request))

    def reserve(self, tags):
        """Makes a reservation and returns its token."""
        # In a reservation, the name of a place counts as a tag.
        places = ({**place.tags, "name": name} for name, place in self.labgrid.places.items())
        if not any(tags.items() <= place.items() for place in places):
            raise Unreachable(f"no place has the tags {', '.join(map('='.join, tags.items()))}")
        filters = {"main": messages.Reservation.Filter(filter=tags)}
        return self.call("CreateReservation", filters=filters, prio=0.0).reservation.token

    def wait(self, token, seconds):
        """Waits until the coordinator has allocated a place."""
        end = time.monotonic() + seconds
        while not self.call("PollReservation", token=token).reservation.allocations:
            if time.monotonic() > end:
                raise Unreachable(f"no place was free for {seconds} s")
            answer("waiting")
            if select.select([sys.stdin], [], [], 0.5)[0]:
                raise Unreachable("the runner has ended")
        self.run(self.labgrid.sync_with_coordinator())

    def use(self, token):
        """Holds the reserved place until standard input ends."""
        self.labgrid.args = Namespace(
            place=f"+{token}", allow_unmatched=False, kick=False, action="cycle", delay=None, name=None
        )
        place = self.labgrid.get_place()
        # From here on the place is named, because an acquired place may lose its reservation.
        self.labgrid.args.place = place.name
        self.run(self.labgrid.acquire())
        try:
            answer({"held": {"place": place.name, **self.service(place)}})
            # A thread reads, so that the event loop can serve the session.
            while self.run(self.labgrid.loop.run_in_executor(None, sys.stdin.readline)):
                try:
                    self.labgrid.power()
                    answer("done")
                except Exception as error:
                    answer({"broken": words(error)})
        finally:
            self.run(self.labgrid.release())

    def service(self, place):
        """Returns user, address and port of the place's SSH server."""
        resources = self.labgrid.get_target_resources(place)
        services = [entry for (_, kind), entry in resources.items() if kind == "NetworkService"]
        if len(services) != 1:
            raise ValueError(f"place {place.name} has {len(services)} resources NetworkService, not one")
        if services[0].extra.get("proxy_required"):
            raise ValueError(f"place {place.name} is reached through its exporter only")
        service = services[0].args
        return {"address": f"{service['username']}@{service['address']}", "port": service.get("port", 22)}


def main(coordinator, seconds, *tags):
    try:
        session = Session(coordinator)
    except Exception as error:
        raise Unreachable(f"coordinator {coordinator}: {words(error)}") from error
    token = session.reserve(dict(tag.split("=", 1) for tag in tags))
    try:
        session.wait(token, int(seconds))
        session.use(token)
    finally:
        session.call("CancelReservation", token=token)


try:
    main(*sys.argv[1:])
except Unreachable as error:
    answer({"unreachable": words(error)})
except Exception as error:
    answer({"broken": words(error)})
