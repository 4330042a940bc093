"""Mooncake's transfer engine: a client writes to the memory of a server, reads it again, and compares."""

import ctypes
import subprocess
import sys

from mooncake.engine import TransferEngine

SIZE = 1 << 20
PATTERN = bytes((place * 7 + (place >> 8)) & 255 for place in range(SIZE))


def engine():
    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "mlx5_0") == 0
    memory = ctypes.create_string_buffer(SIZE)
    assert made.register_memory(ctypes.addressof(memory), SIZE) == 0
    return made, memory


def serve():
    made, memory = engine()
    print("READY", made.get_rpc_port(), ctypes.addressof(memory), flush=True)
    sys.stdin.readline()
    assert memory.raw == PATTERN, "RDMA WRITE"
    print("SERVED", flush=True)


def main():
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port, address = next(line for line in server.stdout if line.startswith("READY")).split()[1:]
    made, memory = engine()
    own, peer = ctypes.addressof(memory), f"127.0.0.1:{port}"
    memory.raw = PATTERN
    assert made.transfer_sync_write(peer, own, int(address), SIZE) == 0
    memory.raw = bytes(SIZE)
    assert made.transfer_sync_read(peer, own, int(address), SIZE) == 0
    assert memory.raw == PATTERN, "RDMA READ"
    output, _ = server.communicate("end\n", timeout=30)
    assert "SERVED" in output and server.returncode == 0, output
    print("all data compared", flush=True)


serve() if sys.argv[1:] == ["serve"] else main()
