"""In the program's process: lets gloo connect through the tap.

Gloo's ranks tell each other their addresses through a store. Of two ranks the one with the larger
address connects. That one is given another address when it reads: all zeros, which is the smallest
of all (who connects does not change) and reaches this host, and the port of a listener that the tap
opened for this very pair. What is written to the store stays as it is.

Whatever goes wrong here becomes one warning, and a connection that is not tapped.

Source: gloo, transport/tcp/device.cc (isInitiator) and address.h (the form of an address).
"""

from __future__ import annotations

import functools
import json
import os
import socket
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch.distributed

from ....errors import RecorderError
from ..options import VARIABLES
from ..recorder import Recorder
from ..writer import warn_once

ENV_TAP = "CHUNKSCOPE_TAP"
ANSWER_S = 20.0
_SOCKADDR_BYTES = 128


class Identity(NamedTuple):
    """What tells a group from others, equal in all its processes.

    Attributes:
        ranks: Its global ranks, in group order.
        ordinal: How many groups of the same ranks were there before.
        label: Torch's name for it.
    """

    ranks: tuple[int, ...]
    ordinal: int
    label: str


class Address(NamedTuple):
    """A rank's address as gloo wrote it.

    Attributes:
        start: Where the socket address begins in the text.
        family: Address family.
        host: Bytes of the host's address.
        port: Port.
        scope: Scope of an IPv6 address.
    """

    start: int
    family: int
    host: bytes
    port: int
    scope: int

    @property
    def order(self) -> tuple[bytes, int]:
        """What gloo compares of two addresses: the port is read without turning its bytes."""
        return self.host, int.from_bytes(self.port.to_bytes(2, "big"), "little")

    @property
    def target(self) -> list[Any]:
        """The address as `socket.connect` takes it."""
        name = socket.inet_ntop(self.family, self.host)
        return (
            [name, self.port] if self.family == socket.AF_INET else [name, self.port, 0, self.scope]
        )


def parse(blob: bytes) -> Address | None:
    """Return the address in what a rank tells of itself; None if that is another form.

    The form: u64 length and host name, u64 length and address; an address begins with a
    `sockaddr_storage`. Numbers are native, the port in network order.
    """
    if len(blob) < 8:
        return None
    (name_bytes,) = struct.unpack_from("=Q", blob)
    start = 8 + name_bytes + 8
    if len(blob) < start + _SOCKADDR_BYTES:
        return None
    (family,) = struct.unpack_from("=H", blob, start)
    (port,) = struct.unpack_from("!H", blob, start + 2)
    if family == socket.AF_INET:
        return Address(start, family, blob[start + 4 : start + 8], port, 0)
    if family == socket.AF_INET6:
        (scope,) = struct.unpack_from("=I", blob, start + 24)
        return Address(start, family, blob[start + 8 : start + 24], port, scope)
    return None


def rewritten(blob: bytes, address: Address, port: int) -> bytes:
    """Return what a rank tells of itself with this host and a port as its address."""
    at = address.start
    changed = bytearray(blob)
    struct.pack_into("!H", changed, at + 2, port)
    host = at + 4 if address.family == socket.AF_INET else at + 8
    changed[host : host + len(address.host)] = bytes(len(address.host))
    if address.family == socket.AF_INET6:
        changed[at + 24 : at + 28] = bytes(4)
    return bytes(changed)


class TappedStore(torch.distributed.Store):  # type: ignore[misc,name-defined]
    """A store as another one, save the addresses of ranks that this one connects to.

    Args:
        store: The other store.
        rank: This rank in the group.
        listen: Asks the tap for a port to connect to in the stead of a rank's address.
    """

    def __init__(self, store: Any, rank: int, listen: Callable[[int, Address], int]) -> None:
        super().__init__()
        self.set_timeout(store.timeout)
        self._store = store
        self._rank = rank
        self._listen = listen
        self._own: dict[str, Address | None] = {}

    def get(self, key: str) -> bytes:
        """Return a value."""
        value: bytes = self._store.get(key)
        return self._read(key, value)

    def set(self, key: str, value: bytes) -> None:
        """Set a value."""
        self._note(key, value)
        self._store.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return several values."""
        values = self._store.multi_get(keys)
        return [self._read(key, value) for key, value in zip(keys, values, strict=True)]

    def multi_set(self, keys: list[str], values: list[bytes]) -> None:
        """Set several values."""
        for key, value in zip(keys, values, strict=True):
            self._note(key, value)
        self._store.multi_set(keys, values)

    def wait(self, *args: Any) -> None:
        """Wait for keys."""
        self._store.wait(*args)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there."""
        return bool(self._store.check(keys))

    def add(self, key: str, value: int) -> int:
        """Add to a counter."""
        return int(self._store.add(key, value))

    def append(self, key: str, value: bytes) -> None:
        """Append to a value."""
        self._store.append(key, value)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Set a value where it is the expected one."""
        found: bytes = self._store.compare_set(key, expected, desired)
        return found

    def delete_key(self, key: str) -> bool:
        """Delete a key."""
        return bool(self._store.delete_key(key))

    def num_keys(self) -> int:
        """Return the number of keys."""
        return int(self._store.num_keys())

    deleteKey = delete_key  # the names that C++ looks for
    getNumKeys = num_keys

    def has_extended_api(self) -> bool:
        """Return whether there are append, multi_get and multi_set."""
        return bool(self._store.has_extended_api())

    def clone(self) -> Any:
        """Return a copy of the store below: what is made of it is not tapped."""
        return self._store.clone()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _note(self, key: str, value: bytes) -> None:
        context, _, rank = key.rpartition("/")
        if rank == str(self._rank):
            self._own[context] = parse(bytes(value))

    def _read(self, key: str, value: bytes) -> bytes:
        context, _, name = key.rpartition("/")
        own = self._own.get(context)
        if own is None or not name.isdigit() or int(name) == self._rank:
            return value
        try:
            peer = parse(bytes(value))
            if peer is None or peer.family != own.family or peer.order > own.order:
                return value
            return rewritten(bytes(value), peer, self._listen(int(name), peer))
        except Exception as error:
            warn_once(f"chunkscope: a connection is not tapped: {error}")
            return value


class WireHooks:
    """Has the groups of gloo that this process makes go through the tap that the environment names.

    Args:
        active: Recorders, the last of which records; empty for none.
    """

    def __init__(self, active: list[Recorder]) -> None:
        self._active = active
        self._local = threading.local()
        self._stores: set[TappedStore] = set()
        self._replaced: list[tuple[Any, str, Any]] = []

    def patch(self) -> None:
        """Put the replacements in place."""
        c10d: Any = torch.distributed.distributed_c10d
        if not torch.distributed.is_gloo_available():
            return
        if os.environ.get(VARIABLES["wire"]) and not os.environ.get(ENV_TAP):
            warn_once(
                f"chunkscope: {VARIABLES['wire']} is set, but no tap runs: messages inside gloo "
                "are recorded where `chunkscope record --wire` starts the program"
            )
        for owner, name, wrap in (
            (c10d.ProcessGroupGloo, "__init__", self._wrap_init),
            (c10d, "_new_process_group_helper", self._wrap_helper),
            (c10d, "_create_process_group_wrapper", self._wrap_wrapper),
        ):
            original = getattr(owner, name)
            self._replaced.append((owner, name, original))
            setattr(owner, name, wrap(original))

    def unpatch(self) -> None:
        """Give the functions back; groups that are tapped stay so."""
        while self._replaced:
            setattr(*self._replaced.pop())

    def _wrap_helper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
            names = ("group_size", "group_rank", "global_ranks_in_group", "", "", "group_name")
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            try:
                self._local.identity = self._identity(given)
            except Exception as error:
                warn_once(f"chunkscope: a group is not tapped: {error}")
            self._local.stores = []
            try:
                result = original(*args, **kwargs)
            finally:
                self._local.identity = None
            self._keep(result)
            return result

        return _new_process_group_helper

    def _wrap_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Leave alone the helper groups by which torch checks collectives in debug mode."""

        @functools.wraps(original)
        def _create_process_group_wrapper(*args: Any, **kwargs: Any) -> Any:
            self._local.identity = None
            return original(*args, **kwargs)

        return _create_process_group_wrapper

    def _wrap_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __init__(group: Any, *args: Any, **kwargs: Any) -> None:
            identity = getattr(self._local, "identity", None)
            if identity is not None:
                try:
                    args, kwargs = self._tapped(identity, args, kwargs)
                except Exception as error:
                    warn_once(f"chunkscope: a group is not tapped: {error}")
            original(group, *args, **kwargs)

        return __init__

    def _tapped(
        self, identity: Identity, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a group of gloo with its store replaced."""
        given = {**dict(zip(("store", "rank", "size"), args, strict=False)), **kwargs}
        rank, control = int(given["rank"]), os.environ[ENV_TAP]

        def listen(peer: int, address: Address) -> int:
            return ask(control, identity, rank, peer, address)

        store = TappedStore(given["store"], rank, listen)
        self._local.stores.append(store)
        if args:
            return (store, *args[1:]), kwargs
        return args, {**kwargs, "store": store}

    def _keep(self, result: Any) -> None:
        """Keep the stores of a group for as long as torch has it: C++ calls them by name."""
        group = result[0] if isinstance(result, tuple) else result
        for store in self._local.stores:
            self._stores.add(store)
            weakref.finalize(group, self._stores.discard, store)
        self._local.stores = []

    def _identity(self, given: dict[str, Any]) -> Identity | None:
        if not self._active or not os.environ.get(ENV_TAP):
            return None
        ranks = tuple(given.get("global_ranks_in_group") or range(int(given["group_size"])))
        ordinal = self._active[-1].groups.ordinal(ranks)
        label = str(given.get("group_name", ""))
        return None if ordinal is None else Identity(ranks, ordinal, label)


def ask(control: str, identity: Identity, rank: int, peer: int, address: Address) -> int:
    """Return the port where the tap listens for a pair.

    Args:
        control: Path of the tap's unix socket.
        identity: The pair's group.
        rank: The rank in it that will connect.
        peer: The rank that it means.
        address: That rank's address.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    request = {
        "ranks": identity.ranks,
        "ordinal": identity.ordinal,
        "label": identity.label,
        "attempt": int(attempt) if attempt.isdigit() else 0,
        "me": rank,
        "peer": peer,
        "family": address.family,
        "address": address.target,
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(control)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as file:
            answer = json.loads(file.readline())
    if "port" not in answer:
        raise RecorderError(f"the wire tap cannot listen: {answer.get('trouble')}")
    return int(answer["port"])
