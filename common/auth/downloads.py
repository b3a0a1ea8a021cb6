"""Signed, expiring download addresses of installers; they work without any other token.

catalog_service and client_registry make them, upload_service checks them.
"""

import re
import time
from urllib.parse import quote

from common.auth.internal_tokens import Caller
from common.auth.signing import Keys
from common.errors import Forbidden

SITE_PERIOD = 7 * 86400  # seconds
# Seconds. Windows itself downloads a package of known signature, in many requests until it is installed.
INSTALLATION_LIFETIME = 25 * 3600
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def download_url(caller: Caller, keys: Keys, *, direct: str, server_filename: str, file_name: str, expires: int) -> str:
    """The absolute address of an installer, valid until `expires` (seconds since 1970).

    `direct` is the address of upload_service for downloads past the gateway; "" for none.
    `file_name` is the name for the browser's file; characters that file systems refuse become `-`.
    """
    name = _UNSAFE.sub("-", file_name).strip("-.") or "installer"
    base_url = f"{direct}/{caller.tenant_id}" if direct else caller.base_url
    path = f"{base_url}/download/{quote(server_filename)}/{name}"
    return f"{path}?{signed_query(keys, caller.tenant_id, server_filename, name, expires)}"


def site_address(address: str, site_url: str) -> str:
    """The same address at a site's host: the signature is of the path, so it is valid at both."""
    return f"{site_url}/{address.split('/', 3)[3]}"


def site_expiry(lifetime: int) -> int:
    """The expiry of an address at a site, as seconds since 1970; at least this lifetime or INSTALLATION_LIFETIME away.

    It is a whole number of weeks. A file has the same address for all machines in a week, so that caches have it.
    """
    return -(-(int(time.time()) + max(lifetime, INSTALLATION_LIFETIME)) // SITE_PERIOD) * SITE_PERIOD


def is_for_site(expires: str) -> bool:
    """Whether an address with this expiry may be stored by caches that several machines share."""
    return int(expires) % SITE_PERIOD == 0


def signed_query(keys: Keys, tenant_id: str, server_filename: str, file_name: str, expires: int) -> str:
    """The query of a signed address, without its `?`."""
    signature = keys.digests(_message(tenant_id, server_filename, file_name, expires))[0]
    return f"expires={expires}&signature={signature}"


def check_download(
    keys: Keys, *, tenant_id: str, server_filename: str, file_name: str, expires: str, signature: str, now: float
) -> None:
    """Check the signature and the expiry of an address. Raises Forbidden."""
    readable = re.fullmatch("[0-9]{1,12}", expires) and re.fullmatch("[0-9a-f]{64}", signature)
    if not readable or not keys.verify_digest(_message(tenant_id, server_filename, file_name, int(expires)), signature):
        raise Forbidden("This download address was altered; ask for a new one.")
    if now >= int(expires):
        raise Forbidden("This download address has expired; ask for a new one.")


def _message(tenant_id: str, server_filename: str, file_name: str, expires: int) -> str:
    return "\n".join((tenant_id, server_filename, file_name, str(expires)))
