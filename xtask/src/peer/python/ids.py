"""Calls librdmacm as few programs do: lists the devices, and moves an identifier to another channel.

The arguments are the expected number of devices and an address of this machine.
"""

import ctypes
import sys

POINTER = ctypes.c_void_p
ADDR_RESOLVED = 0
PORT_SPACE_TCP = 0x106


class Event(ctypes.Structure):
    """The first fields of `struct rdma_cm_event`."""

    _fields_ = [("id", POINTER), ("listen_id", POINTER), ("event", ctypes.c_int), ("status", ctypes.c_int)]


class Address(ctypes.Structure):
    """`struct sockaddr_in`."""

    _fields_ = [("family", ctypes.c_uint16), ("port", ctypes.c_uint16), ("address", ctypes.c_uint8 * 4),
                ("zero", ctypes.c_uint8 * 8)]


def done(status, call):
    """Ends the program if a call has failed."""
    if status != 0:
        sys.exit(f"{call}: errno {ctypes.get_errno()}")


library = ctypes.CDLL("librdmacm.so.1", use_errno=True)
for name in ("rdma_create_event_channel", "rdma_get_devices"):
    getattr(library, name).restype = POINTER
wanted, address = int(sys.argv[1]), [int(part) for part in sys.argv[2].split(".")]

count = ctypes.c_int()
devices = library.rdma_get_devices(ctypes.byref(count))
if not devices or count.value != wanted:
    sys.exit(f"rdma_get_devices finds {count.value} devices, not {wanted}")
library.rdma_free_devices(POINTER(devices))

first, second = (POINTER(library.rdma_create_event_channel()) for _ in range(2))
identifier = POINTER()
done(library.rdma_create_id(first, ctypes.byref(identifier), None, PORT_SPACE_TCP), "rdma_create_id")
done(library.rdma_migrate_id(identifier, second), "rdma_migrate_id")
target = Address(2, 0, (ctypes.c_uint8 * 4)(*address))
done(library.rdma_resolve_addr(identifier, None, ctypes.byref(target), 2000), "rdma_resolve_addr")
event = ctypes.POINTER(Event)()
# This call waits on the second channel. An event on the first one would let it wait until the time limit.
done(library.rdma_get_cm_event(second, ctypes.byref(event)), "rdma_get_cm_event")
told = event.contents
if (told.id, told.event, told.status) != (identifier.value, ADDR_RESOLVED, 0):
    sys.exit(f"event {told.event} with status {told.status}")
done(library.rdma_ack_cm_event(event), "rdma_ack_cm_event")
done(library.rdma_destroy_id(identifier), "rdma_destroy_id")
for channel in (first, second):
    library.rdma_destroy_event_channel(channel)
