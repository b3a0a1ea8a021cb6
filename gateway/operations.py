"""The operations of the interface, one row each. The gateway answers no other."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from itertools import zip_longest

from common.auth.internal_tokens import operation_of
from common.auth.roles import Permission
from common.http.bodies import FORM_LIMIT


class Access(StrEnum):
    """The callers who may use an operation."""

    OPEN = "open"  # anyone from an allowed network
    CLIENT = "client"  # a Bearer token, else a client token, else anyone unless the tenant enforces tokens
    PACKAGE_MANAGER = "package_manager"  # as `CLIENT`, with the client token in a header, where winget can send it
    ADMINISTRATOR = "administrator"  # a Bearer token: of a session, or an API token
    SESSION = "session"  # the Bearer token of a session
    SIGNED = "signed"  # anyone with the signed address; the service checks the signature
    PAGE = "page"  # a browser; each page checks its session itself
    DASHBOARD = "dashboard"  # a browser that is signed in; see `gateway.dashboard`


class CacheKind(StrEnum):
    """The cache that may answer an operation."""

    NOTHING = "nothing"
    SESSION = "session"  # no cache: the response says only that the session is valid
    RELEASE = "release"
    CATALOG = "catalog"
    PACKAGE = "package"  # a package's versions, its manifest, or the results of a winget search


@dataclass(frozen=True)
class Operation:
    """One row. `path` begins with the fixed parts, the operation's name; parts in braces are the caller's values.

    A caller with a Bearer token needs the `permission`, which `common.auth.roles` gives to roles.
    `checked_by` is the service that first checks names of its own in the form, see `gateway.forwarding.execute`.
    `timeout` is how many seconds the service may take to answer. `one_call` operations may bring their installer in the
    same multipart form, see `one_call`. The gateway writes `audited` operations to the audit log. `streamed` operations
    have bodies or responses of any length. Other bodies have at most `body_limit` bytes and are read before the service
    is called.
    """

    method: str
    path: str
    service: str
    access: Access
    permission: Permission
    timeout: float = 3.0
    audited: bool = False
    checked_by: str = ""
    one_call: bool = False
    streamed: bool = False
    body_limit: int = FORM_LIMIT
    cache: CacheKind = CacheKind.NOTHING

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))

    @cached_property
    def name(self) -> str:
        """The operation's name, between services too."""
        return operation_of(self.parts)

    @cached_property
    def is_winget(self) -> bool:
        """Whether it belongs to winget's protocol instead of ours."""
        return self.parts[0] == WINGET

    @cached_property
    def route(self) -> str:
        """The template of its addresses, as a service has it."""
        return f"/{{tenant_id}}/{self.path}"

    def matches(self, segments: Sequence[str]) -> bool:
        """Whether a path of these segments is this operation's; values may be missing or empty."""
        fixed = self.name.count("/") + 1
        return fixed <= len(segments) <= len(self.parts) and all(
            is_value(part) or part == segment for part, segment in zip(self.parts, segments, strict=False)
        )

    def missing(self, segments: Sequence[str]) -> list[str]:
        """The names of the values that a path lacks."""
        return [part.strip("{}") for part, segment in zip_longest(self.parts, segments) if not segment]


def is_value(part: str) -> bool:
    return part.startswith("{")


AUTH, CATALOG, UPLOAD, CLIENTS = "auth_service", "catalog_service", "upload_service", "client_registry"
GATEWAY, WINGET = "gateway", "winget"
CREDENTIALS_LIMIT = 64 << 10  # bytes, of bodies that are read before the caller is known
LOGO_FORM_LIMIT = 6 << 20  # bytes: a form and a logo of at most 5 MiB
INSTALLER_TIMEOUT = 120.0  # seconds: hashing and storing a large installer

_signed_in = partial(Operation, access=Access.ADMINISTRATOR)
_open = partial(Operation, permission=Permission.NONE)
_sign_in = partial(_open, access=Access.OPEN, timeout=15.0, body_limit=CREDENTIALS_LIMIT)
_read_catalog = partial(_signed_in, permission=Permission.CATALOG_READ)
_upload = partial(_signed_in, permission=Permission.CATALOG_WRITE)
_write_catalog = partial(_upload, audited=True)
_release = partial(_signed_in, permission=Permission.RELEASE_APPROVE, audited=True, timeout=10.0)
_read_clients = partial(_signed_in, permission=Permission.CLIENTS_READ)
_write_clients = partial(_signed_in, permission=Permission.CLIENTS_WRITE, audited=True)
_read_settings = partial(_signed_in, permission=Permission.SETTINGS_READ)
_write_settings = partial(_signed_in, permission=Permission.SETTINGS_WRITE, audited=True)
_read_tokens = partial(_signed_in, permission=Permission.TOKENS_WRITE)
_write_tokens = partial(_read_tokens, audited=True)
_read_users = partial(_signed_in, permission=Permission.USERS_WRITE)
_write_users = partial(_read_users, audited=True)
_client = partial(Operation, access=Access.CLIENT, permission=Permission.CATALOG_READ)
_winget = partial(
    Operation,
    access=Access.PACKAGE_MANAGER,
    permission=Permission.CATALOG_READ,
    timeout=15.0,
    cache=CacheKind.PACKAGE,
)

OPERATIONS: tuple[Operation, ...] = (
    # Session (4.1). A login may wait for a slot: few password hashes run at once.
    _sign_in("POST", "login", AUTH),
    _open("POST", "logout", AUTH, access=Access.OPEN, body_limit=CREDENTIALS_LIMIT),
    _signed_in("GET", "test", GATEWAY, permission=Permission.NONE, cache=CacheKind.SESSION),
    # Client-facing (4.2)
    _client("POST", "client_version", CLIENTS, cache=CacheKind.RELEASE),
    _client("POST", "get_packages", CATALOG, streamed=True, cache=CacheKind.CATALOG),
    # Packages (4.3)
    _write_catalog("POST", "add_package", CATALOG, timeout=15.0, body_limit=LOGO_FORM_LIMIT),
    _write_catalog("PATCH", "edit_package/{package_id}", CATALOG, timeout=15.0, body_limit=LOGO_FORM_LIMIT),
    _write_catalog("DELETE", "delete_package/{package_id}", CATALOG, timeout=30.0),
    _write_catalog("PATCH", "set_package_active/{package_id}", CATALOG),
    _read_catalog("GET", "find_packages", CATALOG),
    _read_catalog("GET", "get_package_details/{package_id}", CATALOG),
    _read_catalog("GET", "get_package_logo/{package_id}", CATALOG),
    # Package versions (4.4, 4.5)
    _read_catalog("GET", "get_package_versions/{package_id}", CATALOG, cache=CacheKind.PACKAGE),
    _read_catalog("GET", "get_specific_package_version/{version_uid}", CATALOG),
    _read_catalog("GET", "get_version_details/{version_uid}", CATALOG),
    _read_catalog("GET", "find_versions/{package_id}", CATALOG),
    _read_catalog("GET", "check_version", CATALOG),
    _write_catalog("PATCH", "edit_package_version/{version_uid}", CATALOG, timeout=15.0),
    _write_catalog("DELETE", "delete_package_version/{package_id}", CATALOG, timeout=30.0),
    _write_catalog("POST", "add_package_version/{package_id}", CATALOG, timeout=INSTALLER_TIMEOUT, one_call=True),
    # Release control
    _read_catalog("GET", "find_releases", CATALOG),
    _read_catalog("GET", "get_release/{version_uid}", CATALOG),
    _release("POST", "approve_version/{version_uid}", CATALOG),
    _release("POST", "promote_version/{version_uid}", CATALOG),
    _release("POST", "pause_version/{version_uid}", CATALOG),
    _release("POST", "resume_version/{version_uid}", CATALOG),
    _release("POST", "hold_version/{version_uid}", CATALOG),
    _release("POST", "roll_back_version/{version_uid}", CATALOG),
    _write_catalog("PATCH", "pin_version/{version_uid}", CATALOG),
    _read_catalog("GET", "preview_retention", CATALOG, timeout=15.0),
    # Uploads (4.5, step 1)
    _upload("POST", "upload_package_version", UPLOAD, timeout=INSTALLER_TIMEOUT, streamed=True),
    _upload("GET", "upload_package_version", UPLOAD),
    _write_catalog("DELETE", "upload_package_version", UPLOAD, timeout=30.0),  # It waits for a running chunk.
    _read_catalog("GET", "get_finished_uploads", CATALOG),
    _read_catalog("GET", "inspect_upload/{server_filename}", UPLOAD),
    _write_catalog("DELETE", "delete_upload/{server_filename}", UPLOAD, timeout=30.0),
    _read_catalog("GET", "get_damaged_installers", CATALOG),
    _read_catalog("GET", "get_statistics", CATALOG, timeout=15.0),
    _read_catalog("GET", "search", GATEWAY),
    # Clients (4.6). Adding one may wait for a host name to be resolved.
    _read_clients("GET", "get_clients", CLIENTS),
    _read_clients("GET", "find_clients", CLIENTS),
    _write_clients("POST", "add_client", CLIENTS, timeout=10.0),
    _write_clients("POST", "import_clients", GATEWAY, timeout=30.0),
    _write_clients("POST", "enroll_client", CLIENTS, permission=Permission.CLIENTS_ENROLL),
    _write_clients("DELETE", "delete_client/{client_id}/{auth_token}", CLIENTS),
    _write_clients("PATCH", "edit_client/{client_id}", CLIENTS, checked_by=CATALOG),
    _write_clients("POST", "rotate_client_token/{client_id}", CLIENTS),
    # Blacklist (5.2)
    _read_clients("GET", "get_blacklist", CLIENTS),
    _write_clients("POST", "add_blacklist_entry", CLIENTS, checked_by=CATALOG),
    _write_clients("DELETE", "delete_blacklist_entry/{entry_id}", CLIENTS),
    _read_clients("GET", "get_blacklist_groups", CLIENTS),
    _write_clients("POST", "add_blacklist_group", CLIENTS, checked_by=CATALOG),
    _write_clients("DELETE", "delete_blacklist_group/{group_id}", CLIENTS),
    # Client releases, tenant, users, API tokens, audit
    _write_settings("POST", "publish_client", CLIENTS, timeout=INSTALLER_TIMEOUT, one_call=True),
    _read_settings("GET", "server_information", GATEWAY),
    _write_settings("PATCH", "edit_settings", GATEWAY, timeout=15.0),
    _read_users("GET", "get_users", AUTH),
    _write_users("POST", "add_user", AUTH, timeout=15.0),
    _write_users("PATCH", "edit_user/{username}", AUTH),
    _write_users("POST", "reset_password/{username}", AUTH, timeout=15.0),
    _write_users("DELETE", "delete_user/{username}", AUTH),
    _read_users("GET", "get_company_login", AUTH),
    _write_users("PATCH", "edit_company_login", AUTH, timeout=25.0),  # The provider has 5 seconds for each answer.
    _write_users("POST", "test_company_login", AUTH, timeout=25.0),
    _write_users("DELETE", "delete_company_login", AUTH),
    _open("POST", "change_password", AUTH, access=Access.SESSION, audited=True, timeout=15.0),
    _read_tokens("GET", "get_tokens", AUTH),
    _write_tokens("POST", "add_token", AUTH),
    _write_tokens("POST", "rotate_token/{token_id}", AUTH),
    _write_tokens("DELETE", "delete_token/{token_id}", AUTH),
    _signed_in("GET", "get_audit_log", AUTH, permission=Permission.AUDIT_READ, timeout=30.0, streamed=True),
    # The targets of INSTALLER_URL, and of IconUrl in manifests of winget
    _open("GET", "download/{server_filename}/{file_name}", UPLOAD, access=Access.SIGNED, timeout=30.0, streamed=True),
    _open("GET", "icon/{package_id}/{file_name}", CATALOG, access=Access.SIGNED),
    # The source for Windows' own winget, with its protocol's paths. The first search waits for the whole catalog.
    _open("GET", f"{WINGET}/information", GATEWAY, access=Access.OPEN),
    _winget("POST", f"{WINGET}/manifestSearch", CATALOG, body_limit=CREDENTIALS_LIMIT),
    _winget("GET", f"{WINGET}/packageManifests/{{package_id}}", CATALOG, streamed=True),
    # Pages
    _open("GET", "docs", GATEWAY, access=Access.PAGE),
    _open("GET", "openapi.json", GATEWAY, access=Access.PAGE),
    _open("GET", "docs/assets/{asset}", GATEWAY, access=Access.PAGE),
    _open("GET", "sign_in", GATEWAY, access=Access.PAGE),
    _open("POST", "sign_in", GATEWAY, access=Access.PAGE),
    _open("GET", "sign_in/oidc", GATEWAY, access=Access.PAGE),
    _open("GET", "sign_in/oidc/callback", GATEWAY, access=Access.PAGE),
    # The logout of an identity provider: it calls this address itself, with a token that it signed.
    _sign_in("POST", "sign_in/oidc/backchannel_logout", AUTH),
)

# The dashboard has its own table of pages below this path. They are no operations of the interface.
DASHBOARD: tuple[Operation, ...] = tuple(
    Operation(method, "dashboard/{page}/{first}/{second}/{third}", GATEWAY, Access.DASHBOARD, Permission.NONE)
    for method in ("GET", "POST", "PATCH", "DELETE")
)
