"""The dashboard: a Dash application on the traces of one folder.

    serve("chunkscope-out", open_browser=True, say=print)

Pages are chosen by the path of the URL (see `library`); films, pictures and exports are plain
routes beside Dash, so that nothing large travels through its callbacks.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html
from flask import Flask, Response, abort, request, send_file

from ..errors import ChunkscopeError
from ..traces.files import format_of
from .library import MAX_UPLOAD_BYTES, Library, Refused
from .look import css_variables, mantine_theme
from .pages import player, start
from .pages.parts import failure, shell
from .paint.svg import face_rule
from .server import (
    ANY_ADDRESS,
    LOOPBACK,
    Guard,
    address,
    has_screen,
    listen,
    serve_on,
    ssh_hint,
)
from .theme import FONTS

_ASSETS = Path(__file__).parent / "assets"
_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{{%metas%}}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{%title%}}</title>
<link rel="preload" href="/fonts/inter.ttf" as="font" type="font/ttf" crossorigin>
<link rel="icon" href="data:image/svg+xml,{icon}">
<style>{variables}</style>
{{%css%}}
</head>
<body>{{%app_entry%}}<footer>{{%config%}}{{%scripts%}}{{%renderer%}}</footer></body>
</html>"""
_ICON = (
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' "
    "height='16' rx='3' fill='%23141a22'/%3E%3Cpath d='M4 12V9M8 12V6.5M12 12V4' stroke='%23fff' "
    "stroke-width='2.4'/%3E%3C/svg%3E"
)
STILLS = ("png", "svg")
EXPORTS = ("html", "gif", "mp4", *STILLS)


def create_app(
    path: str | os.PathLike[str] | Library, *, token: str | None = None, host: str = "127.0.0.1"
) -> Dash:
    """Return the application, ready to be served.

    Args:
        path: Folder whose traces are shown and opened, or one trace.
        token: What the address must carry; a random one by default.
        host: Address that it will listen on.

    Raises:
        TraceFormatError: There is no such file or folder.
    """
    library = path if isinstance(path, Library) else Library(path)
    server = Flask("chunkscope.dashboard", static_folder=None)
    # Base64 makes an upload a third larger.
    server.config["MAX_CONTENT_LENGTH"] = MAX_UPLOAD_BYTES * 3 // 2
    app = Dash(
        "chunkscope.dashboard",
        server=cast(Any, server),
        title="chunkscope",
        update_title="",
        assets_folder=str(_ASSETS),
        use_pages=False,
        pages_folder="",
        suppress_callback_exceptions=True,
        enable_mcp=False,
        add_log_handler=False,
        index_string=_INDEX.format(icon=_ICON, variables=css_variables()),
    )
    app.layout = dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            html.Div(id="lost", className="lost", hidden=True, role="alert"),
            html.Div(id="page"),
        ],
        theme=mantine_theme(),
        defaultColorScheme="auto",
    )
    _register_pages(app, library)
    _add_routes(server, library)
    start.register(app, library)
    player.register(app, library)
    Guard.new(host, token).protect(server, script_hashes=app.csp_hashes())
    return app


def _register_pages(app: Dash, library: Library) -> None:
    @app.callback(Output("page", "children"), Input("url", "pathname"), State("url", "search"))
    def page(pathname: str | None, search: str | None) -> Any:
        where = (pathname or "/").lstrip("/")
        if not where:
            return start.layout(library)
        try:
            return player.layout(library, where, search or "")
        except ChunkscopeError as error:
            body = failure("This cannot be opened", str(error))
            return shell("error", [dcc.Link("All traces", href="/")], [], body)


def _add_routes(server: Flask, library: Library) -> None:
    @server.get("/film/<view>/<int:call>/<path:where>")
    def film(view: str, call: int, where: str) -> Response:
        raw = _film_bytes(library, view, call, _address(where))
        return _cached(raw, "application/octet-stream")

    @server.get("/picture/<theme>/<path:where>")
    def picture(theme: str, where: str) -> Response:
        try:
            drawn = library.picture(_address(where), theme)
        except (ChunkscopeError, ValueError):
            abort(404)
        return _cached(_with_fonts(drawn).encode(), "image/svg+xml")

    @server.get("/alive")
    def alive() -> Response:
        return Response(status=204)

    @server.get("/fonts/<name>")
    def font(name: str) -> Response:
        found = _font(name)
        if found is None:
            abort(404)
        return send_file(found, mimetype="font/ttf", max_age=30 * 86400)

    @server.get("/export/<form>/<view>/<int:call>/<path:where>")
    def export(form: str, view: str, call: int, where: str) -> Response:
        if form not in EXPORTS:
            abort(404)
        return _exported(library, form, view, call, _address(where))


def _address(where: str) -> str:
    """Return an address as it stood in the URL; Flask has decoded the path that it hands over."""
    raw = str(request.environ.get("RAW_URI") or request.environ.get("REQUEST_URI") or "")
    path = raw.partition("?")[0]
    depth = request.path.count("/") - where.count("/")
    pieces = path.split("/")
    return "/".join(pieces[depth:]) if raw.startswith("/") and len(pieces) > depth else where


def _film_bytes(library: Library, view: str, call: int, where: str) -> bytes:
    try:
        return library.film(where, call, view).to_bytes()
    except Refused:
        abort(404)
    except ChunkscopeError as error:
        abort(Response(str(error), 422, mimetype="text/plain"))


def _cached(raw: bytes, mimetype: str) -> Response:
    response = Response(raw, mimetype=mimetype)
    response.set_etag(hashlib.blake2b(raw, digest_size=12).hexdigest())
    response.headers["Cache-Control"] = "private, no-cache"
    response.make_conditional(request)
    return response


def _with_fonts(drawing: str) -> str:
    """Return an SVG with the fonts inside: a picture of a page may not load any."""
    head, sign, rest = drawing.partition(">")
    return f"{head}{sign}<style>{_faces()}</style>{rest}"


_making_faces = threading.Lock()


def _faces() -> str:
    """Return the fonts of small pictures; they share one subset, since making one takes long."""
    with _making_faces:
        return _made_faces()


@functools.cache
def _made_faces() -> str:
    signs = "".join(map(chr, range(32, 127))) + "·×µ→–…"
    return "".join(face_rule(font, family, signs) for font, family in FONTS.items())


def _font(name: str) -> Path | None:
    import fontpkg_inter
    import fontpkg_jetbrains_mono

    fonts = {
        "inter.ttf": Path(fontpkg_inter.ROOT) / "files" / "Inter[opsz,wght].ttf",
        "jetbrains-mono.ttf": Path(fontpkg_jetbrains_mono.ROOT)
        / "files"
        / "JetBrainsMono[wght].ttf",
    }
    return fonts.get(name)


def _exported(library: Library, form: str, view: str, call: int, where: str) -> Response:
    from .export import export

    try:
        film = library.film(where, call, view)
        theme = "dark" if request.args.get("theme") == "dark" else "light"
        asked = request.args.get("at", type=float)
        name = f"{where.rstrip('/').rpartition('/')[2].partition('.')[0] or 'film'}.{form}"
        with tempfile.TemporaryDirectory(prefix="chunkscope-") as folder:
            out = Path(folder) / f"film.{form}"
            export(film, out, theme=theme, at=asked if form in STILLS else None)
            raw = out.read_bytes()
    except Refused:
        abort(404)
    except ChunkscopeError as error:
        abort(Response(str(error), 422, mimetype="text/plain"))
    return send_file(io.BytesIO(raw), as_attachment=True, download_name=name)


def serve(
    path: str | os.PathLike[str],
    *,
    first: str | os.PathLike[str] | None = None,
    host: str = "127.0.0.1",
    port: int = 8050,
    open_browser: bool = False,
    say: Callable[[str], object] | None = None,
) -> None:
    """Serve the dashboard until it is interrupted.

    Args:
        path: Folder whose traces are shown and opened, or one trace, which is opened at once.
        first: Trace of the folder to open at once.
        host: Address to listen on.
        port: Port to listen on, or the next free one.
        open_browser: Whether to open a browser, where there is a screen.
        say: Told what a person should read, line by line.

    Raises:
        TraceFormatError: There is no such file or folder.
        OSError: No port could be had, or the host is not an address of this machine.
    """
    tell = say or (lambda line: None)
    library = Library(path)
    guard = Guard.new(host)
    app = create_app(library, token=guard.token, host=host)
    listener = listen(host, port)
    taken = listener.getsockname()[1]
    if port not in (0, taken):
        tell(f"Port {port} is in use; took {taken} instead.")
    server = serve_on(listener, app.server)
    url = address(host, taken, guard.token, "/" + _opening(library, first))
    tell(f"Dashboard of {library.title}:")
    tell(f"  {url}")
    hint = ssh_hint(taken)
    if hint is not None:
        tell("From your own machine, run this and open the address there:")
        tell(f"  {hint}")
    if host not in LOOPBACK:
        where = "every address of this machine" if host in ANY_ADDRESS else host
        tell(f"It listens on {where}, without encryption: whoever has the token can look in.")
    tell("Ctrl-C ends it.")
    threading.Thread(target=_faces, daemon=True).start()  # while the page loads
    if open_browser and has_screen():
        threading.Timer(0.3, webbrowser.open, [url]).start()
    try:
        server.serve_forever()
    finally:
        server.server_close()


def _opening(library: Library, first: str | os.PathLike[str] | None) -> str:
    """Return the address of the trace to show first; empty for the start page."""
    if library.only is not None:
        return f"trace/{quote(library.only)}"
    if first is None:
        return ""
    try:
        name = Path(first).resolve().relative_to(library.root).as_posix()
    except ValueError:
        return ""
    return f"trace/{quote(name)}" if format_of(Path(first)) is not None else ""
