"""Two ranks of MPI exchange messages and windows, and compare all bytes."""

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()
OTHER = 1 - RANK


def pattern(seed, length):
    return bytes((seed * 31 + place * 7 + (place >> 8)) & 255 for place in range(length))


def exchange(size):
    own, received = bytearray(pattern(RANK + size, size)), bytearray(size)
    WORLD.Sendrecv([own, MPI.BYTE], OTHER, 1, [received, MPI.BYTE], OTHER, 1)
    assert received == pattern(OTHER + size, size), f"a message of {size} bytes"


def window(size):
    """RDMA WRITE, RDMA READ and an atomic, where the transport has them."""
    memory = MPI.Win.Allocate(size + 8, 1, comm=WORLD)
    counter = memory.tomemory()[size:]
    counter[:] = bytes(8)
    own, received = bytearray(pattern(RANK, size)), bytearray(size)
    memory.Fence()
    memory.Put([own, MPI.BYTE], OTHER)
    memory.Fence()
    assert bytes(memory.tomemory()[:size]) == pattern(OTHER, size), "RDMA WRITE"
    memory.Get([received, MPI.BYTE], OTHER)
    memory.Fence()
    assert received == own, "RDMA READ"
    memory.Accumulate([bytearray((RANK + 5).to_bytes(8, "little")), MPI.INT64_T], OTHER, size)
    memory.Fence()
    assert int.from_bytes(bytes(memory.tomemory()[size:]), "little") == OTHER + 5, "an atomic"
    memory.Free()


assert WORLD.Get_size() == 2
for size in [0, 1, 8, 100, 1000, 4096, 8192, 65536, 1 << 20]:
    exchange(size)
for size in [64, 65536]:
    window(size)
assert WORLD.allreduce(RANK + 1) == 3
if RANK == 0:
    print("all data compared", flush=True)
