"""Identity providers, what they say of a user, and the errors of a sign-in with them."""

from dataclasses import dataclass

from common.auth.roles import Role
from common.errors import Conflict, Forbidden, InvalidField, InvalidRequest, NotFound, Problem, Unavailable


@dataclass(frozen=True)
class Provider:
    """The identity provider of a tenant, as the operator or an administrator of the tenant set it.

    `role_map` has pairs of a value of the claim `roles_claim` and its role. `default_role` is the role of users without
    such a value; None refuses them. The provider's address may be in `allowed_networks` if it is not public.
    `ca_certificate` is PEM text; "" trusts the authorities of the system. `by_tenant`: an administrator of the tenant
    set it, so the operator's settings say which private networks it may be in.
    """

    tenant_id: str
    issuer: str
    client_id: str
    client_secret: str
    roles_claim: str = "roles"
    role_map: tuple[tuple[str, Role], ...] = ()
    default_role: Role | None = None
    allowed_networks: tuple[str, ...] = ()
    ca_certificate: str = ""
    by_tenant: bool = False


@dataclass(frozen=True)
class Metadata:
    """The addresses and abilities that a provider publishes; an address that it does not publish is "".

    `sends_issuer`: its callbacks have the parameter `iss`.
    """

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    jwks_uri: str = ""
    end_session_endpoint: str = ""
    takes_secret_in_form: bool = False
    sends_issuer: bool = False


@dataclass(frozen=True)
class PendingSignIn:
    """A sign-in that a browser began. `browser` is the digest of the browser's cookie."""

    issuer: str
    nonce: str
    verifier: str
    next_url: str
    browser: str


class NoProvider(NotFound):
    code = "no_identity_provider"
    text = "This tenant has no company login."


class NoBreakGlass(Conflict):
    code = "no_break_glass"
    text = "Without passwords, the tenant needs an administrator with --break-glass."


class SetByOperator(Forbidden):
    code = "company_login_of_operator"
    text = "Only the operator of this server changes the company login of this tenant."


class ProviderChanged(Problem):
    """`If-Match` names an earlier state."""

    status = 412
    code = "company_login_changed"
    text = "Somebody else changed the company login meanwhile. Load it again."


class SecretRefused(InvalidField):
    def __init__(self, error: str) -> None:
        message = f"the provider refuses the client id with this secret ({error})"
        super().__init__("client_secret", message, reason="secret_refused", error=error)


class ProviderUnavailable(Unavailable):
    """The provider's address, or what it answers, is at fault. `problem` says how; `reason` selects the translation."""

    status = 503  # Nothing of the product is broken.
    code = "identity_provider_unavailable"
    text = "The company login cannot be used now: {problem}."


class SignInExpired(Forbidden):
    code = "sign_in_expired"
    text = "This sign-in began too long ago, in another browser, or was finished already. Sign in again."


class RefusedByProvider(Forbidden):
    code = "refused_by_provider"
    text = "The company login refused the sign-in: {error}. Ask its administrator."


class TokenRefused(Forbidden):
    code = "id_token_refused"
    text = "The answer of the company login is not valid: {problem}. Ask your administrator."


class ClocksDiffer(TokenRefused):
    code = "clocks_differ"
    text = "The clocks of the company login and of this server differ. Ask your administrator to set them."


class RoleMissing(Forbidden):
    code = "role_missing"
    text = "Your company account has no role here: the claim {claim} has no value that is mapped to a role."


class TooManyGroups(Forbidden):
    code = "too_many_groups"
    text = (
        "Your company account has too many groups, so the company login left out the claim {claim}. "
        "Ask your administrator to use app roles instead."
    )


class LogoutRefused(InvalidRequest):
    """The standard wants 400 for every logout token that is not valid, or was used before."""

    code = "logout_token_refused"
    text = "This logout token is not valid: {problem}."
