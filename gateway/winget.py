"""What is particular to winget's protocol: where its token stands, how problems are told, and what is asked first."""

import re
from hashlib import sha256
from typing import Any

import orjson
from aiohttp import web

from common.errors import Problem
from common.http.middleware import BytesResponse
from common.tenants import Tenant

# Contracts in which the client, too, knows what an answer may say; it takes the highest that it knows.
CONTRACTS = ("1.0.0", "1.1.0", "1.4.0", "1.5.0", "1.6.0", "1.7.0", "1.9.0", "1.10.0", "1.12.0", "1.28.0")
HEADER = "Windows-Package-Manager"
HEADER_LIMIT = 1024  # characters, as the protocol has it
# What its users write: {'Token': '…'}, with quotes of either kind, or the token alone.
_TOKEN = re.compile(
    r"""\{\s*(?P<q>['"])token(?P=q)\s*:\s*(?P<r>['"])(?P<named>[^'"]+)(?P=r)\s*\}|(?P<bare>[^\s{}'"]+)""", re.IGNORECASE
)
AGREEMENT_NAMES = {"label": "AgreementLabel", "text": "Agreement", "url": "AgreementUrl"}
COUNTS = 300  # seconds for which a client need not ask again what the source is


def client_token(request: web.Request) -> str:
    """The client token that a user of winget gave with `--header`; "" where there is none."""
    given = request.headers.getall(HEADER, ())
    if len(given) != 1 or len(given[0]) > HEADER_LIMIT:
        return ""
    found = _TOKEN.fullmatch(given[0].strip()) if given[0].isascii() else None  # as every client token is
    return (found["named"] or found["bare"]) if found else ""


def problem(problem: Problem) -> web.Response:
    """A problem as the protocol tells it."""
    number, text = problem.status, problem.detail
    body = {"code": number, "message": text, "ErrorCode": number, "ErrorMessage": text}
    response = BytesResponse(body=orjson.dumps(body), status=number, content_type="application/json")
    response.headers.update(problem.headers)
    return response


def information(tenant: Tenant) -> web.Response:
    """What a tenant is as a source."""
    data: dict[str, Any] = {"SourceIdentifier": f"pkgrepo-{tenant.tenant_id}", "ServerSupportedVersions": CONTRACTS}
    if tenant.source_agreements:
        agreements = [
            {AGREEMENT_NAMES[name]: text for name, text in agreement.items()}
            for agreement in orjson.loads(tenant.source_agreements)
        ]
        # Who agreed to others is asked again.
        identifier = sha256(tenant.source_agreements.encode()).hexdigest()[:16]
        data["SourceAgreements"] = {"AgreementsIdentifier": identifier, "Agreements": agreements}
    response = BytesResponse(body=orjson.dumps({"Data": data}), content_type="application/json")
    response.headers["Cache-Control"] = f"private, max-age={COUNTS}"
    return response
