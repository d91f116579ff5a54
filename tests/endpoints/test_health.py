"""Whether the proxy says truly that it lives and can work, and what it says on paths it does not have."""

import errno

import pytest
from running_proxy import StartProxy
from scripted_engine import ScriptedEngine, refused_port
from stored_calls import FaultyFilesystem


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/health", "/healthz", "/livez"])
async def test_it_lives(proxy: StartProxy, engine: ScriptedEngine, path: str, method: str) -> None:
    running = await proxy()
    await engine.stop()
    response = await running.client.request(method, path)
    assert response.status_code == 200
    assert response.content == (b"" if method == "HEAD" else b'{"status":"ok"}')


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_root_answers_those_who_look_before_they_call(proxy: StartProxy, method: str) -> None:
    running = await proxy()
    response = await running.client.request(method, "/")
    assert response.status_code == 200
    assert (response.content == b"") is (method == "HEAD")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_it_is_ready_with_a_store_that_takes_files_and_an_engine_that_answers(
    proxy: StartProxy, method: str
) -> None:
    running = await proxy()
    response = await running.client.request(method, "/readyz")
    assert response.status_code == 200
    if method == "GET":
        assert response.json() == {"status": "ok", "checks": ["store", "engines"]}


async def test_it_is_not_ready_without_an_engine_and_says_which(proxy: StartProxy) -> None:
    with refused_port() as port:
        running = await proxy(target={"base_url": f"http://127.0.0.1:{port}/v1"})
        response = await running.client.get("/readyz")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "2"
    assert list(response.json()["failing"]) == ["engines"]
    assert f"actual-model@127.0.0.1:{port}" in response.json()["failing"]["engines"]


async def test_it_is_not_ready_without_its_directory(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    moved = running.directory.with_name("moved")
    running.directory.rename(moved)
    response = await running.client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["failing"] == {"store": "the capture directory takes no files: No such file or directory"}
    moved.rename(running.directory)
    assert (await running.client.get("/readyz")).status_code == 200


async def test_it_is_not_ready_before_the_disk_is_full_and_says_how_full(proxy: StartProxy) -> None:
    running = await proxy(capture={"min_free_bytes": "999999999GiB"})
    response = await running.client.get("/readyz")
    assert response.status_code == 503
    fault = response.json()["failing"]["store"]
    assert fault.startswith("the capture directory is nearly full: ")
    assert fault.endswith(f" bytes are free, and capture.min_free_bytes is {999999999 << 30}")


@pytest.mark.parametrize(
    ("number", "named"), [(errno.EROFS, "Read-only file system"), (errno.EMFILE, "Too many open files")]
)
async def test_it_names_what_the_store_suffers_from(proxy: StartProxy, number: int, named: str) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    filesystem.errors = {"create": number}
    response = await running.client.get("/readyz")
    assert response.json()["failing"] == {"store": f"the capture directory takes no files: {named}"}
    filesystem.heal()
    assert (await running.client.get("/readyz")).status_code == 200


async def test_without_capture_the_store_does_not_count(proxy: StartProxy) -> None:
    running = await proxy(captures=False)
    assert (await running.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nope"),
        ("POST", "/v1/embeddings"),
        ("POST", "/chat/completions"),
        ("POST", "//v1/chat/completions"),
        ("GET", "/v1/sessions/a/b/c/d"),
        ("GET", "/v1%2Fmodels"),
        ("GET", "/s/x"),
        ("GET", "/s/x/health"),
        ("GET", "/s//v1/nope"),
    ],
)
async def test_an_unknown_path_is_404_with_detail_and_code(proxy: StartProxy, method: str, path: str) -> None:
    running = await proxy()
    response = await running.client.request(method, running.url + path)
    assert response.status_code == 404
    assert response.json() == {"detail": "Not Found", "code": "not_found"}
    assert response.headers["x-switchyard-error-source"] == "switchyard"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/sessions/s", "DELETE"),
        ("GET", "/v1/sessions/s/seal", "POST"),
        ("POST", "/v1/sessions/s/completions", "GET"),
        ("POST", "/v1/models", "GET"),
        ("POST", "/health", "GET"),
    ],
)
async def test_a_wrong_method_is_405_with_detail_code_and_the_right_one(
    proxy: StartProxy, method: str, path: str, allowed: str
) -> None:
    running = await proxy()
    response = await running.client.request(method, path)
    assert response.status_code == 405
    assert response.json() == {"detail": "Method Not Allowed", "code": "method_not_allowed"}
    assert allowed in response.headers["allow"]


async def test_counts_of_the_process(proxy: StartProxy) -> None:
    running = await proxy()
    await running.chat(b"[]", "s")
    counts = await running.stats()
    assert (counts["calls"], counts["errors_told"], counts["captured"], counts["resent"]) == (1, 1, 0, 0)
    assert counts["ledger"]["begun"] == counts["faulty_files"] == 0
