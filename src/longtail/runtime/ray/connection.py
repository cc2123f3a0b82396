"""Connection to a Ray cluster: joining one, or starting one on this machine for this program alone."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

from longtail.errors import InputError, Interrupted, LongtailError, ParameterError
from longtail.runtime.memory import machine_memory
from longtail.runtime.signals import held_signals

_STORE = 2_000_000_000  # maximum bytes of a local object store; Ray spills more to disk
_CONNECTING = 10.0  # seconds
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1", "[::1]")
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # despite its name it restricts any system to one machine


@contextmanager
def connected(address: str | None, cores: int) -> Iterator[bool]:
    """Join a cluster, or start one on this machine, unless this process is in one; yield whether one was started."""
    if address is not None:
        address = _reachable(address)
    is_here = address is None or address.rpartition(":")[0] in _LOOPBACK_HOSTS
    with _environment(_QUIET | (_LOOPBACK if is_here else {})):
        import ray

        is_ours = not ray.is_initialized()
        if is_ours:
            _join(ray, address, cores, is_here)
    try:
        yield is_ours and address is None
    finally:
        if is_ours:
            ray.shutdown()


def _join(ray: Any, address: str | None, cores: int, is_here: bool) -> None:
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        store = max(min(_STORE, machine_memory() // 5), 80_000_000)
        how |= {"address": "local", "num_cpus": cores, "object_store_memory": store, "include_dashboard": False}
    else:
        how["address"] = address
    try:
        with _own_signals(), _loopback_alone() if is_here else nullcontext():
            ray.init(**how, **({"_node_ip_address": "127.0.0.1"} if is_here else {}))
    except KeyboardInterrupt:
        ray.shutdown()
        raise Interrupted(f"Stopped while {'starting Ray' if address is None else 'joining the cluster'}.") from None
    except Exception as error:
        raise _unreachable(address, error) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM while Ray starts, and keep Ray from installing its own handler of SIGTERM."""
    utils: Any = import_module("ray._private.utils")
    setting = getattr(utils, "set_sigterm_handler", None)
    with held_signals():
        ours = signal.getsignal(signal.SIGTERM)
        utils.set_sigterm_handler = lambda handler: None
        try:
            yield
        finally:
            utils.set_sigterm_handler = setting
            is_first = threading.current_thread() is threading.main_thread()
            if is_first and signal.getsignal(signal.SIGTERM) not in (ours, signal.SIG_IGN):
                signal.signal(signal.SIGTERM, ours)  # a version of Ray that sets it in another way


@contextmanager
def _loopback_alone() -> Iterator[None]:
    """Make Ray use 127.0.0.1 as the address of this machine, even if Ray was imported before the variable was set.

    Otherwise Ray replaces it by an address that other machines can reach, and listens there.
    """
    from ray._private import ray_constants

    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set unset environment variables inside, for the processes that are started there."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def check_address(address: object, name: str = "address", wanted: str = "must be auto or host:port") -> None:
    """Raise an error for an invalid address of a cluster."""
    if address in ("auto", "local") and (address == "auto" or "local" in wanted):
        return
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or "/" in host or not port.isdecimal() or int(port) >= 2**16:
        raise ParameterError(name, address, wanted)


def _reachable(address: str) -> str:
    """Return host and port of a cluster; raise an error if nothing answers, because Ray would wait for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "") or _running_here()
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECTING) as connection:
            is_cluster = _speaks_http2(connection)
    except (OSError, ValueError):
        is_cluster = False
    if not is_cluster:
        raise InputError(f"No Ray cluster answers at {address}: ray start --head starts one.")
    return address


def _speaks_http2(connection: socket.socket) -> bool:
    """Return whether the peer speaks gRPC, as Ray does: it answers with an HTTP/2 SETTINGS frame."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("", "0", "false"):
        return True  # encrypted
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    answer = b""
    while len(answer) < 4:
        part = connection.recv(9)
        if not part:
            return False
        answer += part
    return answer[3] == 4


def _running_here() -> str:
    """Return the address of the cluster that was last started on this machine."""
    from ray._private.utils import read_ray_address

    found = read_ray_address()
    if not found:
        raise InputError("No Ray cluster runs on this machine: ray start --head starts one.")
    return str(found)


def _unreachable(address: str | None, error: BaseException) -> LongtailError:
    """Return the error for a cluster that can't be joined, in one sentence."""
    if isinstance(error, LongtailError):
        return error
    reason = " ".join(str(error).split())
    if address is None:
        return InputError(f"Ray could not be started on this machine: {reason[:200]}")
    if "ersion mismatch" in reason:
        return InputError(f"The cluster at {address} has another version of Ray or Python: {reason[:300]}")
    return InputError(
        f"The cluster at {address} can't be joined: run this on one of its nodes (ray start --address={address} adds "
        f"this machine), with the RAY_AUTH_MODE of the cluster ({reason[:200]})."
    )
