"""Who may talk to the dashboard, and where it listens.

On a shared machine every user reaches 127.0.0.1, and every web page that the browser has open may
send requests there. So the printed address carries a random token, which becomes a cookie; requests
without it are refused, and so are those whose Host or Origin is not ours.

    guard = Guard.new("127.0.0.1")
    guard.protect(flask_app, script_hashes=[...])
    listener = listen("127.0.0.1", 8050)
    serve_on(listener, flask_app).serve_forever()
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from flask import Flask, Request, Response, request
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
# Ports that are tried after the one that was asked for.
PORTS_TO_TRY = 50
_TAKEN = (errno.EADDRINUSE, errno.EACCES)

_DOORSTEP = """<!doctype html><html lang="en"><meta charset="utf-8"><title>chunkscope</title>
<body style="font:16px/1.5 sans-serif;max-width:36em;margin:20vh auto;padding:0 1em">
<h1 style="font-size:20px">{title}</h1><p>{text}</p></body></html>"""
_ONWARD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>chunkscope</title>
<meta http-equiv="refresh" content="0;url={url}"></html>"""


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules that every request must meet.

    Attributes:
        token: What the printed address carries.
        hosts: Names and addresses, without port, that a Host header may hold.
        any_address: Whether it may hold any IP address, because the dashboard listens on all.
    """

    token: str
    hosts: frozenset[str]
    any_address: bool = False

    @staticmethod
    def new(host: str = "127.0.0.1", token: str | None = None) -> Guard:
        """Return the rules for a dashboard that listens on `host`, with a fresh token."""
        names = {name.strip("[]").lower() for name in (host,)} | LOOPBACK
        open_to_all = host in ANY_ADDRESS
        if open_to_all:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return Guard(token or secrets.token_urlsafe(24), frozenset(names - {""}), open_to_all)

    def protect(self, app: Flask, *, script_hashes: Sequence[str] = ()) -> None:
        """Refuse what breaks the rules, and tell browsers what our pages may load.

        Args:
            app: The server.
            script_hashes: Hashes of the inline scripts that its pages hold, as CSP writes them.
        """
        policy = content_policy(script_hashes)

        @app.before_request
        def check() -> Response | None:
            return self.verdict(request)

        @app.after_request
        def tell(response: Response) -> Response:
            response.headers["Content-Security-Policy"] = policy
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["Referrer-Policy"] = "same-origin"
            response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
            return response

    def verdict(self, asked: Request) -> Response | None:
        """Return the answer to a request that must not go on, or None for one that may."""
        if not self.knows_host(asked.host):
            return _refuse(
                f"{asked.host} is not an address of this dashboard.",
                "Open the address that the terminal printed.",
            )
        origin = asked.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() != asked.host.lower():
            return _refuse("This request comes from another page.", f"Its origin is {origin}.")
        given = asked.args.get("token")
        if given is not None and self._is_token(given):
            return self._admit(asked)
        if self._is_token(asked.cookies.get(cookie_name(asked.host), "")):
            return None
        return _refuse(
            "This dashboard needs its token.",
            "Open the whole address that the terminal printed, with ?token= in it.",
        )

    def knows_host(self, host: str) -> bool:
        """Return whether a Host header (any port) names this dashboard."""
        name = (urlsplit(f"//{host}").hostname or "").lower()
        return name in self.hosts or (self.any_address and _is_ip(name))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _admit(self, asked: Request) -> Response:
        """Set the cookie and go on to the same address without the token."""
        rest = [pair for pair in parse_qsl(asked.query_string.decode()) if pair[0] != "token"]
        url = "/" + quote(asked.path.lstrip("/")) + (f"?{urlencode(rest)}" if rest else "")
        if asked.headers.get("Sec-Fetch-Site") == "cross-site":
            # A strict cookie is not sent along a redirect that began on another site, such as a
            # terminal in the browser. From a page of our own it is.
            response = Response(_ONWARD.format(url=escape(url)), mimetype="text/html")
        else:
            response = Response(status=303, headers={"Location": url})
        response.headers["Cache-Control"] = "no-store"
        response.set_cookie(
            cookie_name(asked.host), self.token, httponly=True, samesite="Strict", path="/"
        )
        return response


def content_policy(script_hashes: Sequence[str] = ()) -> str:
    """Return the Content-Security-Policy: everything from this server, nothing from elsewhere.

    Styles may be inline, because Mantine sets them so; scripts may not.
    """
    rules = {
        "default-src": "'self'",
        "script-src": " ".join(["'self'", *script_hashes]),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def cookie_name(host: str) -> str:
    """Return the cookie's name; it holds the port, since cookies of all ports lie together."""
    return f"chunkscope-{urlsplit(f'//{host}').port or 80}"


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refuse(title: str, text: str) -> Response:
    body = _DOORSTEP.format(title=escape(title), text=escape(text))
    return Response(body, status=403, mimetype="text/html", headers={"Cache-Control": "no-store"})


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket on the port, or on the next free one above it.

    Args:
        host: Address or name to listen on.
        port: Port to begin with; 0 for any free one.

    Raises:
        OSError: No port could be had, or the host is not an address of this machine.
    """
    family, _, _, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
    last: OSError | None = None
    for candidate in range(port, min(port + PORTS_TO_TRY, 65536)):
        listener = socket.socket(family, socket.SOCK_STREAM)
        # After a restart the port is free again at once, although old connections linger.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address[0], candidate))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno not in _TAKEN:
                raise
            last = error
        else:
            return listener
    assert last is not None
    raise last


class _Quiet(WSGIRequestHandler):
    """Answers requests without a line on the terminal for each."""

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


def serve_on(listener: socket.socket, app: Flask) -> BaseWSGIServer:
    """Return a server that answers on the socket once `serve_forever` is called."""
    host, port = listener.getsockname()[:2]
    server = make_server(
        host, port, app, threaded=True, request_handler=_Quiet, fd=listener.fileno()
    )
    listener.close()  # the server has its own copy
    return server


def address(host: str, port: int, token: str, path: str = "/") -> str:
    """Return the address to open, token included."""
    name = "127.0.0.1" if host in ANY_ADDRESS else host
    if ":" in name:
        name = f"[{name}]"
    mark = "&" if "?" in path else "?"
    return f"http://{name}:{port}{path}{mark}token={token}"


def ssh_hint(port: int, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the line that brings the dashboard to the user's own machine, or None without ssh.

    Example:
        >>> ssh_hint(8050, {"SSH_CONNECTION": "10.0.0.2 50000 10.0.0.9 22", "USER": "ada"})
        'ssh -L 8050:127.0.0.1:8050 ada@10.0.0.9'
    """
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:
        return None
    user = environ.get("USER") or environ.get("LOGNAME")
    where = f"{user}@{words[2]}" if user else words[2]
    own_port = "" if words[3] == "22" else f"-p {words[3]} "
    return f"ssh {own_port}-L {port}:127.0.0.1:{port} {where}"


def has_screen(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a browser could open a window here (never over ssh)."""
    if environ.get("SSH_CONNECTION"):
        return False
    if os.name == "posix" and os.uname().sysname != "Darwin":
        return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
    return True
