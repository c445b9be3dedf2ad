"""The dashboard's door: who is let in, and what may be opened."""

from __future__ import annotations

import gzip
import re
import socket
import threading
import urllib.request
from pathlib import Path

import pytest
from flask.testing import FlaskClient

import chunkscope
from chunkscope.dashboard import app as app_module
from chunkscope.dashboard import server
from chunkscope.dashboard.app import create_app
from chunkscope.dashboard.library import Library
from chunkscope.sim.spec import parse_spec

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    chunkscope.write(parse_spec("all_reduce:ring:3").trace(), folder / "ring.jsonl")
    outside = tmp_path_factory.mktemp("elsewhere")
    chunkscope.write(parse_spec("all_reduce:ring:2").trace(), outside / "secret.jsonl")
    (folder / "link.jsonl").symlink_to(outside / "secret.jsonl")
    (folder / "linked-folder").symlink_to(outside)
    return folder


@pytest.fixture(scope="module")
def app(folder: Path) -> object:
    return create_app(folder, token=TOKEN).server


@pytest.fixture
def client(app: object) -> FlaskClient:
    return app.test_client()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def guest(client: FlaskClient) -> FlaskClient:
    """A client that has come in by the printed address."""
    assert client.get("/?token=" + TOKEN).status_code == 303
    return client


PATHS = ["/", "/_dash-layout", "/_dash-dependencies", "/film/simple/0/trace/ring.jsonl",
         "/fonts/inter.ttf", "/assets/player.js", "/trace/ring.jsonl"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_without_token_or_cookie_nothing_is_served(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code == 403
    assert client.get(path, query_string={"token": "guess"}).status_code == 403


def test_callbacks_need_the_cookie(client: FlaskClient) -> None:
    assert client.post("/_dash-update-component", json={}).status_code == 403


def test_token_becomes_a_strict_cookie_and_leaves_the_address(client: FlaskClient) -> None:
    answer = client.get(f"/trace/ring.jsonl?t=2.5&token={TOKEN}&m=7")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/trace/ring.jsonl?t=2.5&m=7"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/trace/ring.jsonl?t=2.5&m=7").status_code == 200


def test_from_another_site_the_token_leads_on_by_a_page_of_our_own(client: FlaskClient) -> None:
    # Along a redirect that another site began, browsers would leave the strict cookie out.
    answer = client.get(
        f"/trace/ring.jsonl?t=2&m=7&token={TOKEN}", headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert answer.status_code == 200
    assert "url=/trace/ring.jsonl?t=2&amp;m=7" in answer.text


@pytest.mark.parametrize("path", ["//elsewhere.example", "/\\elsewhere.example"])
def test_redirect_stays_on_this_server(client: FlaskClient, path: str) -> None:
    answer = client.get(path, query_string={"token": TOKEN})
    location = answer.headers.get("Location", "/")
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1:8050", "[::1]:8050"])
def test_any_port_of_this_machine_is_a_good_host(client: FlaskClient, host: str) -> None:
    # Through `ssh -L` the browser's port is another one than the server's.
    answer = client.get("/?token=" + TOKEN, headers={"Host": host})
    assert answer.status_code == 303


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", "10.0.0.1:8050"]
)
def test_another_name_is_refused_even_with_the_token(client: FlaskClient, host: str) -> None:
    answer = client.get("/?token=" + TOKEN, headers={"Host": host})
    assert answer.status_code == 403
    assert "not an address of this dashboard" in answer.text


def test_given_host_and_on_all_addresses_any_number_is_good() -> None:
    assert server.Guard.new("box.example").knows_host("box.example:8050")
    everywhere = server.Guard.new("0.0.0.0")
    assert everywhere.knows_host("192.168.1.7:8050")
    assert everywhere.knows_host(socket.gethostname())
    assert not everywhere.knows_host("evil.example")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1"])
def test_another_origin_is_refused(guest: FlaskClient, origin: str) -> None:
    answer = guest.post("/_dash-update-component", json={}, headers={"Origin": origin})
    assert answer.status_code == 403
    assert guest.get("/", headers={"Origin": origin}).status_code == 403
    assert guest.get("/", headers={"Origin": "http://localhost"}).status_code == 200


def test_cookies_of_two_dashboards_do_not_overwrite_each_other() -> None:
    assert server.cookie_name("localhost:8050") != server.cookie_name("localhost:8051")


def test_pages_may_load_nothing_from_elsewhere(guest: FlaskClient) -> None:
    answer = guest.get("/")
    policy = dict(
        rule.strip().split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'self'"
    assert "unsafe" not in policy["script-src"]
    assert not re.findall(r"(?:src|href)=.https?:[^ >]*", answer.text)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_film_is_served_and_cached_by_its_content(guest: FlaskClient) -> None:
    answer = guest.get("/film/simple/0/trace/ring.jsonl")
    assert answer.status_code == 200
    assert gzip.decompress(answer.data).startswith(b"CSFILM1\n")
    again = guest.get(
        "/film/simple/0/trace/ring.jsonl", headers={"If-None-Match": answer.headers["ETag"]}
    )
    assert again.status_code == 304


@pytest.mark.parametrize(
    "address",
    [
        "trace/../elsewhere/secret.jsonl",
        "trace/%2e%2e/elsewhere/secret.jsonl",
        "trace/..%2f..%2fetc%2fpasswd",
        "trace//etc/passwd",
        "trace/%00",
        "trace/",
        "trace/link.jsonl",
        "trace/linked-folder/secret.jsonl",
        "upload/1/ring.jsonl",
        "how/ring/0/trace/link.jsonl",
        "how/ring/0/how/ring/0/trace/ring.jsonl",
        "nonsense",
    ],
)
def test_what_lies_outside_of_the_folder_is_not_there(guest: FlaskClient, address: str) -> None:
    assert guest.get("/film/simple/0/" + address).status_code == 404
    assert guest.get("/picture/light/" + address).status_code == 404


@pytest.mark.parametrize(
    "spec", ["all_reduce:evil.py:run:4", "all_reduce:os:system:4", "all_reduce:schedule.txt:4"]
)
def test_simulation_by_address_runs_no_code_and_reads_no_file(
    guest: FlaskClient, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    (tmp_path / "schedule.txt").write_text("no schedule")
    monkeypatch.chdir(tmp_path)
    answer = guest.get(f"/film/simple/0/sim/{spec}")
    assert answer.status_code == 422
    assert "unknown algorithm" in answer.text
    assert not ran.exists()


@pytest.mark.parametrize("spec", ["all_reduce:ring:100000", "all_reduce:ring:0"])
def test_simulation_by_address_is_of_bearable_size(guest: FlaskClient, spec: str) -> None:
    answer = guest.get(f"/film/simple/0/sim/{spec}")
    assert answer.status_code == 422
    assert "1 to 64" in answer.text


def test_library_of_one_trace_has_no_neighbours(folder: Path) -> None:
    library = Library(folder / "ring.jsonl")
    assert [entry.name for entry in library.entries()] == ["ring.jsonl"]
    chunkscope.write(parse_spec("broadcast:tree:2").trace(), folder / "neighbour.jsonl")
    assert library.entry("neighbour.jsonl") is None


def test_folder_lists_traces_but_not_what_links_lead_out(folder: Path) -> None:
    names = [entry.name for entry in Library(folder).entries()]
    assert "ring.jsonl" in names
    assert not [name for name in names if "link" in name]


def test_upload_is_opened_as_a_trace_only(folder: Path) -> None:
    library = Library(folder)
    address = library.add_upload("../../ring.jsonl", (folder / "ring.jsonl").read_bytes())
    assert len(library.trace(address).calls()) == 1
    with pytest.raises(chunkscope.ChunkscopeError, match=r"^evil\.py: "):
        library.add_upload("evil.py", b"import os\n")
    assert not list(folder.parent.glob("evil*"))


def test_upload_has_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkscope.dashboard.library.MAX_UPLOAD_BYTES", 10)
    with pytest.raises(chunkscope.ChunkscopeError, match=r"big\.jsonl has 11 B; up to 10 B"):
        Library(folder).add_upload("big.jsonl", b"x" * 11)


def test_port_in_use_takes_the_next_one() -> None:
    first = server.listen("127.0.0.1", 0)
    port = first.getsockname()[1]
    second = server.listen("127.0.0.1", port)
    assert port < second.getsockname()[1] < port + server.PORTS_TO_TRY
    first.close()
    second.close()


def test_host_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(OSError, match=r"."):
        server.listen("192.0.2.1", 0)


def test_serving_says_the_address_and_the_ssh_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.2 50000 10.0.0.9 2222")
    monkeypatch.setenv("USER", "ada")
    taken = server.listen("127.0.0.1", 0)
    port = taken.getsockname()[1]
    said: list[str] = []
    kept: list[object] = []
    real = app_module.serve_on

    def serve_on(*args: object) -> object:
        kept.append(real(*args))  # type: ignore[arg-type]
        return kept[0]

    monkeypatch.setattr(app_module, "serve_on", serve_on)
    ready = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("Ctrl-C"):
            ready.set()

    thread = threading.Thread(
        target=app_module.serve,
        args=(folder,),
        kwargs={"first": folder / "ring.jsonl", "port": port, "say": say},
    )
    thread.start()
    assert ready.wait(30)
    url = next(line.strip() for line in said if "http://" in line)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(url, timeout=10) as answer:
        assert answer.status == 200
    kept[0].shutdown()  # type: ignore[attr-defined]
    thread.join(10)
    taken.close()
    assert not thread.is_alive()
    assert said[0] == f"Port {port} is in use; took {port + 1} instead."
    assert f"http://127.0.0.1:{port + 1}/trace/ring.jsonl?token=" in url
    assert f"ssh -p 2222 -L {port + 1}:127.0.0.1:{port + 1} ada@10.0.0.9" in "\n".join(said)


def test_a_screen_is_needed_for_a_browser() -> None:
    assert not server.has_screen({})
    assert not server.has_screen({"DISPLAY": ":0", "SSH_CONNECTION": "a 1 b 22"})
    assert server.has_screen({"DISPLAY": ":0"})
