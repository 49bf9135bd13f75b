"""The Kubernetes edge against a small real HTTP server: paths, verbs, headers, errors, watches of any line length."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_core.kube import ConflictError, GoneError, Kube, KubeError, NotFoundError, path

LEASES = path("coordination.k8s.io/v1", "leases", "ns")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[Kube]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    opened: list[Any] = []

    async def start(handler: Handler) -> Kube:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handler)
        server = TestServer(app)
        await server.start_server()
        kube = await Kube(str(server.make_url("")), ssl_context=None, token="t0k").__aenter__()
        opened.extend([kube, server])
        return kube

    yield start
    for thing in opened:
        await (thing.__aexit__(None, None, None) if isinstance(thing, Kube) else thing.close())


def status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": message}, status=code)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("v1", "pods", "ns", "p", "log"), "/api/v1/namespaces/ns/pods/p/log"),
        (("apps/v1", "deployments", "ns", "d"), "/apis/apps/v1/namespaces/ns/deployments/d"),
        (
            ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        ),
    ],
)
def test_path_of_core_and_grouped_kinds(arguments: tuple[str, ...], expected: str) -> None:
    assert path(*arguments) == expected


async def test_apply_sends_owner_force_and_the_apply_content_type(serve: Serve) -> None:
    seen: dict[str, Any] = {}

    async def handler(request: web.Request) -> web.Response:
        seen.update(method=request.method, path=request.path, query=dict(request.query), body=await request.json())
        seen.update(kind=request.content_type, token=request.headers["Authorization"])
        return web.json_response({"ok": True})

    kube = await serve(handler)
    assert await kube.apply(f"{LEASES}/x", {"spec": {}}, field_manager="me") == {"ok": True}
    assert seen == {
        "method": "PATCH",
        "path": "/apis/coordination.k8s.io/v1/namespaces/ns/leases/x",
        "query": {"fieldManager": "me", "force": "true"},
        "body": {"spec": {}},
        "kind": "application/apply-patch+yaml",
        "token": "Bearer t0k",
    }


@pytest.mark.parametrize(
    ("code", "kind"), [(404, NotFoundError), (409, ConflictError), (410, GoneError), (403, KubeError)]
)
async def test_refusal_keeps_status_reason_and_message(serve: Serve, code: int, kind: type[KubeError]) -> None:
    async def handler(request: web.Request) -> web.Response:
        return status(code, "Why", f"{request.method} refused")

    kube = await serve(handler)
    with pytest.raises(kind, match=f"{code} Why: GET refused") as caught:
        await kube.get(f"{LEASES}/x")
    assert type(caught.value) is kind


async def test_refusal_that_is_no_status_object_is_still_an_error(serve: Serve) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>bad gateway</html>")

    with pytest.raises(KubeError, match=r"502 .*bad gateway"):
        await (await serve(handler)).get(f"{LEASES}/x")


async def test_delete_of_an_absent_object_is_fine(serve: Serve) -> None:
    async def handler(_: web.Request) -> web.Response:
        return status(404, "NotFound", "no such lease")

    await (await serve(handler)).delete(f"{LEASES}/x", uid="u1")


async def test_watch_survives_lines_longer_than_any_buffer_and_split_chunks(serve: Serve) -> None:
    events = [
        {"type": "ADDED", "object": {"metadata": {"annotations": {"big": "x" * 300_000}}}},
        {"type": "MODIFIED", "object": {"metadata": {"name": "ü\u2028"}}},
    ]

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.query["watch"] == "true"
        response = web.StreamResponse()
        await response.prepare(request)
        data = b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events)
        for start in range(0, len(data), 7001):
            await response.write(data[start : start + 7001])
        return response

    kube = await serve(handler)
    assert [event async for event in kube.watch(LEASES)] == [(e["type"], e["object"]) for e in events]


async def test_watch_with_a_version_too_old_asks_for_a_relist(serve: Serve) -> None:
    async def handler(_: web.Request) -> web.Response:
        error = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
        return web.Response(text=json.dumps(error) + "\n")

    kube = await serve(handler)
    with pytest.raises(GoneError, match="too old"):
        [event async for event in kube.watch(LEASES, resource_version="1")]


async def test_metadata_only_asks_for_partial_objects(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"accept": request.headers["Accept"]})

    kube = await serve(handler)
    reply = await kube.get("/api/v1/namespaces/ns/secrets/s", metadata_only=True)
    assert reply["accept"] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
