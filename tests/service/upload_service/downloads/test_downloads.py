"""Downloads: a signed URL returns its file, whole or in part, and nothing else."""

from dataclasses import dataclass

import pytest
from yarl import URL

from common.auth.downloads import site_expiry
from common.auth.internal_tokens import Caller
from common.auth.signing import Keys
from tests.support.services.upload import UploadApi, make_uploader, sha256
from tests.support.tables import each

FILE = bytes(range(256)) * 20
ETAG = f'"{sha256(FILE)}"'


@dataclass(frozen=True)
class Linked:
    """A file that is linked to a version."""

    api: UploadApi
    caller: Caller
    server_filename: str

    @property
    def address(self) -> str:
        return self.api.address(self.caller, self.server_filename)


@pytest.fixture(scope="module")
async def linked(api: UploadApi) -> Linked:
    caller = make_uploader()
    name = await api.upload(caller, FILE, name="setup.exe")
    await api.claim(caller, name)
    return Linked(api, caller, name)


async def test_a_signed_address_gives_the_file_without_any_token(linked: Linked) -> None:
    answer = await linked.api.get(linked.address)
    assert (answer.status, answer.body) == (200, FILE)
    headers = {name: answer.headers.get(name) for name in ("Content-Length", "Content-Type", "ETag", "Accept-Ranges")}
    assert headers == {
        "Content-Length": str(len(FILE)),
        "Content-Type": "application/octet-stream",
        "ETag": ETAG,
        "Accept-Ranges": "bytes",
    }
    assert answer.headers["Content-Disposition"] == 'attachment; filename="setup.exe"'
    assert answer.headers["Cache-Control"] == "private"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_shared_caches_may_store_the_file_of_a_site_for_an_hour(linked: Linked) -> None:
    address = linked.api.address(linked.caller, linked.server_filename, expires=site_expiry(60))
    for headers, status in [({}, 200), ({"Range": "bytes=0-9"}, 206), ({"If-None-Match": ETAG}, 304)]:
        answer = await linked.api.get(address, **headers)
        assert (answer.status, answer.headers["Cache-Control"]) == (status, "public, max-age=3600, must-revalidate")


async def test_head_gives_the_headers_only(linked: Linked) -> None:
    answer = await linked.api.get(linked.address, method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert (answer.headers["Content-Length"], answer.headers["ETag"]) == (str(len(FILE)), ETAG)


@each(
    ("range_header", "start", "end"),
    [("bytes=0-99", 0, 99), ("bytes=5000-", 5000, 5119), ("bytes=-10", 5110, 5119), ("bytes=5100-9999", 5100, 5119)],
)
async def test_a_range_returns_the_requested_bytes(linked: Linked, range_header: str, start: int, end: int) -> None:
    answer = await linked.api.get(linked.address, Range=range_header)
    assert (answer.status, answer.body) == (206, FILE[start : end + 1])
    assert answer.headers["Content-Range"] == f"bytes {start}-{end}/{len(FILE)}"
    assert answer.headers["ETag"] == ETAG


@each("range_header", ["bytes=5120-", "bytes=9999-10000", "bytes=-0"])
async def test_a_range_past_the_end_is_refused(linked: Linked, range_header: str) -> None:
    answer = await linked.api.get(linked.address, Range=range_header)
    assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{len(FILE)}")
    assert (answer.body["code"], answer.body["detail"]) == ("range_not_satisfiable", f"The file has {len(FILE)} bytes.")


@each(
    "range_header", ["", "bytes=", "bytes=-", "bytes=a-b", "bytes=9-5", "bytes=0-1,5-6", "items=0-1", "bytes=\uff11-2"]
)
async def test_a_malformed_or_multiple_range_returns_the_whole_file(linked: Linked, range_header: str) -> None:
    answer = await linked.api.get(linked.address, Range=range_header)
    assert (answer.status, answer.body) == (200, FILE)


@each(
    ("name", "value", "status", "body"),
    [
        ("If_Range", ETAG, 206, FILE[:10]),
        ("If_Range", '"other"', 200, FILE),
        ("If_Range", f"W/{ETAG}", 200, FILE),
        ("If_Range", "Fri, 20 Nov 2026 00:00:00 GMT", 200, FILE),
        ("If_Range", "nonsense", 200, FILE),
        ("If_None_Match", ETAG, 304, b""),
        ("If_None_Match", f"W/{ETAG}", 304, b""),
        ("If_None_Match", f'"other", {ETAG}', 304, b""),
        ("If_None_Match", "*", 304, b""),
        ("If_None_Match", '"other"', 200, FILE),
        ("If_Match", ETAG, 200, FILE),
        ("If_Match", '"other"', 412, None),
    ],
)
async def test_a_condition_compares_the_etag(
    linked: Linked, name: str, value: str, status: int, body: bytes | None
) -> None:
    headers = {"Range": "bytes=0-9"} if name == "If_Range" else {}
    answer = await linked.api.get(linked.address, **headers, **{name: value})
    assert answer.status == status
    if body is not None:
        assert (answer.body, answer.headers["ETag"]) == (body, ETAG)


@each(
    ("part", "value"),
    [
        ("expires", None),
        ("expires", "32503680001"),
        ("expires", "-1"),
        ("expires", "1e9"),
        ("expires", "\uff11"),
        ("signature", None),
        ("signature", "0" * 64),
        ("signature", ""),
        ("signature", "\ud83d\ude00"),
        ("signature", "\u00ff" * 64),
    ],
)
async def test_an_altered_query_is_refused(linked: Linked, part: str, value: str | None) -> None:
    address = URL(linked.address)
    altered = address.without_query_params(part) if value is None else address.update_query({part: value})
    answer = await linked.api.get(str(altered))
    assert (answer.status, answer.body["code"]) == (403, "forbidden")


async def test_an_expired_address_and_one_of_another_key_are_refused(linked: Linked) -> None:
    expired = await linked.api.get(linked.api.address(linked.caller, linked.server_filename, expires=1_000_000_000))
    assert (expired.status, "expired" in expired.body["detail"]) == (403, True)
    keys = Keys("another-key-just-as-long-as-the-first")
    foreign = await linked.api.get(linked.api.address(linked.caller, linked.server_filename, keys=keys))
    assert foreign.status == 403


@each(
    "path",
    [
        "{tenant}/download/{name}/other.exe",
        "{tenant}/download/{other}/setup.exe",
        "{tenant}/download/..%2F..%2Fetc%2Fpasswd/setup.exe",
        "{tenant}/download/upload_f.part/setup.exe",
        "{tenant}/download/{name}%00/setup.exe",
        "{tenant}/download/{name}/setup.exe%0d%0aX-Evil:%20yes",
        "{tenant}/download/{name}/%22;x=%22",
        "{tenant}/download/{name}/%FF%FE",
        "{tenant}/download/{name}/..%5C..%5Cx",
        "another/download/{name}/setup.exe",
    ],
)
async def test_an_altered_path_is_refused(linked: Linked, path: str) -> None:
    parts = {"tenant": linked.caller.tenant_id, "name": linked.server_filename, "other": "0" * 32}
    address = URL(f"{linked.api.service.address}/{path.format(**parts)}", encoded=True)
    signed = URL(linked.address)
    answer = await linked.api.get(str(URL(f"{address}?{signed.raw_query_string}", encoded=True)))
    assert answer.status == 403
    assert "X-Evil" not in answer.headers


@each("file_name", ['a".exe', "a\r\nX-Evil: yes", "../../x", "\u00fcber\u202eexe.txt", "CON", "", "a;b"])
async def test_a_hostile_file_name_is_made_harmless(linked: Linked, file_name: str) -> None:
    answer = await linked.api.get(linked.api.address(linked.caller, linked.server_filename, file_name=file_name))
    assert answer.status == 200
    name = answer.headers["Content-Disposition"].removeprefix('attachment; filename="').removesuffix('"')
    assert name
    assert not set(name) & set('"\\/\r\n;')


async def test_a_file_of_another_tenant_is_unknown(linked: Linked) -> None:
    answer = await linked.api.get(linked.api.address(make_uploader(), linked.server_filename))
    assert (answer.status, answer.body["code"]) == (404, "installer_not_found")


async def test_a_file_without_a_version_is_unknown(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, FILE)
    assert (await api.get(api.address(caller, name))).status == 404
    await api.claim(caller, name)
    assert (await api.get(api.address(caller, name))).status == 200
    await api.post(caller, "release_installers", version_uids=["v1"])
    assert (await api.get(api.address(caller, name))).status == 404


@each("content", [None, b"", FILE + b"x"], ids=["gone", "empty", "longer"])
async def test_a_missing_or_truncated_file_is_not_served(api: UploadApi, content: bytes | None) -> None:
    caller = make_uploader()
    name = await api.upload(caller, FILE)
    await api.claim(caller, name)
    path = api.folder / caller.tenant_id / name
    path.unlink() if content is None else path.write_bytes(content)
    answer = await api.get(api.address(caller, name))
    assert (answer.status, answer.body["code"]) == (404, "installer_missing")


async def test_the_other_operations_stay_closed_without_a_token(api: UploadApi) -> None:
    for operation in ("storage_usage", "claim_installer", "store_installer", "download2"):
        async with api.service.session.post(f"{api.service.address}/acme/{operation}/download") as response:
            assert response.status in {401, 404}
        async with api.service.session.post(f"{api.service.address}/acme/{operation}") as response:
            assert response.status == 401
