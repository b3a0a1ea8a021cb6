"""The gateway's part of winget's protocol: the client token's header, problems, and the source's description."""

import re
from hashlib import sha256
from typing import Any

import orjson
from aiohttp import web

from common.errors import Problem
from common.http.middleware import json_response
from common.tenants import EntraApp, Tenant

# Protocol versions with which all our responses are valid. The client takes the highest that it knows.
CONTRACTS = ("1.0.0", "1.1.0", "1.4.0", "1.5.0", "1.6.0", "1.7.0", "1.9.0", "1.10.0", "1.12.0", "1.28.0")
FIRST_WITH_AUTHENTICATION = "1.7.0"
HEADER = "Windows-Package-Manager"
HEADER_LIMIT = 1024  # characters, from the protocol
# Users write {'Token': '…'} with quotes of either kind, or the token alone.
_TOKEN = re.compile(
    r"""\{\s*(?P<q>['"])token(?P=q)\s*:\s*(?P<r>['"])(?P<named>[^'"]+)(?P=r)\s*\}|(?P<bare>[^\s{}'"]+)""", re.IGNORECASE
)
AGREEMENT_NAMES = {"label": "AgreementLabel", "text": "Agreement", "url": "AgreementUrl"}
INFORMATION_MAX_AGE = 300  # seconds that a client may cache the source's description


def client_token(request: web.Request) -> str:
    """The client token that a winget user passed with `--header`; "" if there is none."""
    headers = request.headers.getall(HEADER, ())
    if len(headers) != 1 or len(headers[0]) > HEADER_LIMIT or not headers[0].isascii():  # Client tokens are ASCII.
        return ""
    token = _TOKEN.fullmatch(headers[0].strip())
    return (token["named"] or token["bare"]) if token else ""


def problem(problem: Problem) -> web.Response:
    """A problem in the form of winget's protocol."""
    status, detail = problem.status, problem.detail
    body = {"code": status, "message": detail, "ErrorCode": status, "ErrorMessage": detail}
    response = json_response(body, status=status)
    response.headers.update(problem.headers)
    return response


def source_identifier(tenant: Tenant) -> str:
    return f"pkgrepo-{tenant.tenant_id}"


def information(tenant: Tenant, app: EntraApp | None = None) -> web.Response:
    """The description of a tenant as a source, where users sign in with an app of Entra ID, if any."""
    contracts = CONTRACTS[CONTRACTS.index(FIRST_WITH_AUTHENTICATION) :] if app else CONTRACTS
    data: dict[str, Any] = {"SourceIdentifier": source_identifier(tenant), "ServerSupportedVersions": contracts}
    if app:
        information = {"Resource": app.resource, "Scope": app.scope}
        data["Authentication"] = {
            "AuthenticationType": "microsoftEntraId",
            "MicrosoftEntraIdAuthenticationInfo": information,
        }
    if tenant.source_agreements:
        agreements = [
            {AGREEMENT_NAMES[name]: text for name, text in agreement.items()}
            for agreement in orjson.loads(tenant.source_agreements)
        ]
        # A new identifier makes winget ask again users who agreed to other texts.
        identifier = sha256(tenant.source_agreements.encode()).hexdigest()[:16]
        data["SourceAgreements"] = {"AgreementsIdentifier": identifier, "Agreements": agreements}
    response = json_response({"Data": data})
    response.headers["Cache-Control"] = f"private, max-age={INFORMATION_MAX_AGE}"
    if tenant.entra:
        response.headers["Vary"] = HEADER
    return response
