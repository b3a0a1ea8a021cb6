"""THE TABLE: every operation of the interface, one row each. What has no row here has no entry from outside."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import zip_longest

from common.auth.callers import operation_of
from common.http.bodies import FORM_LIMIT


class Access(StrEnum):
    """Who may call an operation (section 5)."""

    OPEN = "open"  # anyone from an allowed network
    CLIENT = "client"  # a Bearer token, else a client token, else anyone where the tenant does not enforce them
    PACKAGE_MANAGER = "package_manager"  # as `CLIENT`, with the client token in a header, where winget can send it
    ADMINISTRATOR = "administrator"  # a Bearer token
    SIGNED = "signed"  # whoever has the address; the service checks its signature
    PAGE = "page"  # a browser; pages look for their session themselves
    DASHBOARD = "dashboard"  # a browser that is signed in; see `gateway.dashboard`


class CacheKind(StrEnum):
    """What the gateway may answer an operation from, and ask no service."""

    NOTHING = "nothing"
    SESSION = "session"  # There is one: that is all it says.
    RELEASE = "release"
    CATALOG = "catalog"
    LISTING = "listing"  # a package's versions, or its manifest, or what winget finds
    SOURCE = "source"  # what the tenant is as a source of winget's


@dataclass(frozen=True)
class Operation:
    """One row. `path` begins with the operation's word or words; a part in braces is a value of the caller's.

    `timeout` is how many seconds the service may take to answer. `one_call` operations take their installer in the
    same multipart form, see `one_call`. `audited` writes reach the audit log through the gateway. `streamed`
    operations have bodies or answers without bound; other bodies have at most `body_limit` bytes, as much as their
    service takes, and are read before it is asked. `known` is what the gateway may answer from.
    """

    method: str
    path: str
    service: str
    access: Access
    timeout: float = 3.0
    audited: bool = False
    one_call: bool = False
    streamed: bool = False
    body_limit: int = FORM_LIMIT
    known: CacheKind = CacheKind.NOTHING

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))

    @cached_property
    def word(self) -> str:
        """What names the operation, between services too."""
        return operation_of(self.parts)

    @cached_property
    def of_winget(self) -> bool:
        """Whether it is one of the protocol that winget speaks, and not of ours."""
        return self.parts[0] == WINGET

    @cached_property
    def route(self) -> str:
        """The template of its addresses, as a service has it."""
        return f"/{{tenant_id}}/{self.path}"

    def fits(self, segments: Sequence[str]) -> bool:
        """Whether these parts of an address are this operation's, values of it possibly missing or empty."""
        words = self.word.count("/") + 1
        return words <= len(segments) <= len(self.parts) and all(
            is_value(part) or part == segment for part, segment in zip(self.parts, segments, strict=False)
        )

    def missing(self, segments: Sequence[str]) -> list[str]:
        """The names of the parts that an address lacks."""
        return [part.strip("{}") for part, given in zip_longest(self.parts, segments) if not given]


def is_value(part: str) -> bool:
    return part.startswith("{")


def _read(method: str, path: str, service: str, *, known: CacheKind = CacheKind.NOTHING) -> Operation:
    return Operation(method, path, service, Access.ADMINISTRATOR, known=known)


def _write(
    method: str,
    path: str,
    service: str,
    *,
    timeout: float = 3.0,
    one_call: bool = False,
    body_limit: int = FORM_LIMIT,
) -> Operation:
    return Operation(
        method,
        path,
        service,
        Access.ADMINISTRATOR,
        timeout,
        audited=True,
        one_call=one_call,
        body_limit=body_limit,
    )


WINGET = "winget"
AUTH, CATALOG, UPLOAD, CLIENTS = "auth_service", "catalog_service", "upload_service", "client_registry"
GATEWAY = "gateway"
CREDENTIALS_LIMIT = 64 << 10  # bytes, of bodies that are read before it is known who sends them
WITH_LOGO = 6 << 20  # bytes: a form and a logo of at most 5 MiB
LONG = 120.0  # seconds: hashing and storing a large installer

OPERATIONS: tuple[Operation, ...] = (
    # Session (4.1). A login waits its turn for one of the few password hashes at once.
    Operation("POST", "login", AUTH, Access.OPEN, timeout=15.0, body_limit=CREDENTIALS_LIMIT),
    Operation("POST", "logout", AUTH, Access.OPEN, body_limit=CREDENTIALS_LIMIT),
    _read("GET", "test", GATEWAY, known=CacheKind.SESSION),
    # Client-facing (4.2)
    Operation("POST", "client_version", CLIENTS, Access.CLIENT, known=CacheKind.RELEASE),
    Operation("POST", "get_packages", CATALOG, Access.CLIENT, streamed=True, known=CacheKind.CATALOG),
    # Packages (4.3)
    _write("POST", "add_package", CATALOG, timeout=15.0, body_limit=WITH_LOGO),
    _write("PATCH", "edit_package/{package_id}", CATALOG, timeout=15.0, body_limit=WITH_LOGO),
    _write("DELETE", "delete_package/{package_id}", CATALOG, timeout=30.0),
    _write("PATCH", "set_package_active/{package_id}", CATALOG),
    _read("GET", "find_packages", CATALOG),
    _read("GET", "get_package_details/{package_id}", CATALOG),
    _read("GET", "get_package_logo/{package_id}", CATALOG),
    # Package versions (4.4, 4.5)
    _read("GET", "get_package_versions/{package_id}", CATALOG, known=CacheKind.LISTING),
    _read("GET", "get_specific_package_version/{version_uid}", CATALOG),
    _read("GET", "get_version_details/{version_uid}", CATALOG),
    _write("DELETE", "delete_package_version/{package_id}", CATALOG, timeout=30.0),
    _write("POST", "add_package_version/{package_id}", CATALOG, timeout=LONG, one_call=True),
    # Uploads (4.5, step 1)
    Operation("POST", "upload_package_version", UPLOAD, Access.ADMINISTRATOR, timeout=LONG, streamed=True),
    _read("GET", "upload_package_version", UPLOAD),
    _write("DELETE", "upload_package_version", UPLOAD, timeout=30.0),  # It waits for a chunk that is on its way.
    _read("GET", "get_finished_uploads", CATALOG),
    _read("GET", "inspect_upload/{server_filename}", UPLOAD),
    _read("GET", "get_damaged_installers", CATALOG),
    # Clients (4.6). Adding one may wait for a host name to be resolved.
    _read("GET", "get_clients", CLIENTS),
    _read("GET", "find_clients", CLIENTS),
    _write("POST", "add_client", CLIENTS, timeout=10.0),
    _write("DELETE", "delete_client/{client_id}/{auth_token}", CLIENTS),
    _write("PATCH", "edit_client/{client_id}", CLIENTS),
    _write("POST", "rotate_client_token/{client_id}", CLIENTS),
    # Blacklist (5.2)
    _read("GET", "get_blacklist", CLIENTS),
    _write("POST", "add_blacklist_entry", CLIENTS),
    _write("DELETE", "delete_blacklist_entry/{entry_id}", CLIENTS),
    _read("GET", "get_blacklist_groups", CLIENTS),
    _write("POST", "add_blacklist_group", CLIENTS),
    _write("DELETE", "delete_blacklist_group/{group_id}", CLIENTS),
    # Client releases
    _write("POST", "publish_client", CLIENTS, timeout=LONG, one_call=True),
    # Tenant, users, audit
    _read("GET", "server_information", AUTH),
    _write("PATCH", "edit_settings", AUTH),
    _read("GET", "get_users", AUTH),
    _write("POST", "add_user", AUTH, timeout=15.0),
    _write("DELETE", "delete_user/{username}", AUTH),
    _write("POST", "change_password", AUTH, timeout=15.0),
    Operation("GET", "get_audit_log", AUTH, Access.ADMINISTRATOR, timeout=30.0, streamed=True),
    # Downloads: what INSTALLER_URL points at
    Operation("GET", "download/{server_filename}/{file_name}", UPLOAD, Access.SIGNED, timeout=30.0, streamed=True),
    # The package's logo, for winget clients: what IconUrl points at
    Operation("GET", "icon/{package_id}/{file_name}", CATALOG, Access.SIGNED),
    # The source that Windows' own winget asks; the rest of each path is its protocol's. The first search waits until
    # all of a catalog is read.
    Operation("GET", f"{WINGET}/information", GATEWAY, Access.OPEN, known=CacheKind.SOURCE),
    Operation(
        "POST",
        f"{WINGET}/manifestSearch",
        CATALOG,
        Access.PACKAGE_MANAGER,
        timeout=15.0,
        body_limit=CREDENTIALS_LIMIT,
        known=CacheKind.LISTING,
    ),
    Operation(
        "GET",
        f"{WINGET}/packageManifests/{{package_id}}",
        CATALOG,
        Access.PACKAGE_MANAGER,
        timeout=15.0,
        streamed=True,
        known=CacheKind.LISTING,
    ),
    # Pages
    Operation("GET", "docs", GATEWAY, Access.PAGE),
    Operation("GET", "openapi.json", GATEWAY, Access.PAGE),
    Operation("GET", "docs/assets/{asset}", GATEWAY, Access.PAGE),
    Operation("GET", "sign_in", GATEWAY, Access.PAGE),
    Operation("POST", "sign_in", GATEWAY, Access.PAGE),
)

# The dashboard's pages have a table of their own, behind this door: they are no operations of the interface.
DASHBOARD: tuple[Operation, ...] = tuple(
    Operation(method, "dashboard/{page}/{first}/{second}/{third}", GATEWAY, Access.DASHBOARD)
    for method in ("GET", "POST", "PATCH", "DELETE")
)
