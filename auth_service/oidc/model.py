"""Identity providers, what they say of a user, and the errors of a sign-in with them."""

from dataclasses import dataclass

from common.auth.roles import Role
from common.errors import Forbidden, NotFound, Unavailable


@dataclass(frozen=True)
class Provider:
    """The identity provider of a tenant, as the operator set it.

    `role_map` has pairs of a value of the claim `roles_claim` and its role. `default_role` is that of users without such a value;
    None refuses them. `allowed_networks` may have private addresses of the provider. `ca_certificate` is PEM text, ""
    for the system's authorities.
    """

    tenant_id: str
    issuer: str
    client_id: str
    client_secret: str
    name: str = "Company login"
    roles_claim: str = "roles"
    role_map: tuple[tuple[str, Role], ...] = ()
    default_role: Role | None = None
    allowed_networks: tuple[str, ...] = ()
    ca_certificate: str = ""


@dataclass(frozen=True)
class Metadata:
    """What a provider publishes about itself. An empty address is one that it does not have."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    takes_secret_in_form: bool = False


@dataclass(frozen=True)
class PendingSignIn:
    """A sign-in that a browser began. `browser` is the digest of the browser's cookie."""

    tenant_id: str
    issuer: str
    nonce: str
    verifier: str
    next_url: str
    browser: str


class NoProvider(NotFound):
    code = "no_identity_provider"
    text = "This tenant has no company login."


class ProviderUnavailable(Unavailable):
    """The provider's address, or what it answers, is at fault. `problem` says which, without a secret."""

    code = "identity_provider_unavailable"
    text = "The company login does not answer as it should: {problem}. Sign in with a password, or try again later."


class SignInRefused(Forbidden):
    """The provider or its token does not allow the sign-in."""

    code = "sign_in_refused"


class SignInExpired(SignInRefused):
    code = "sign_in_expired"
    text = "This sign-in began too long ago, in another browser, or was finished already. Sign in again."


class RefusedByProvider(SignInRefused):
    code = "refused_by_provider"
    text = "The company login refused the sign-in: {error}. Ask its administrator."


class TokenRefused(SignInRefused):
    code = "id_token_refused"
    text = "The answer of the company login is not valid: {problem}. Ask your administrator."


class RoleMissing(SignInRefused):
    code = "role_missing"
    text = "Your company account has no role here: the claim {claim} has no value that is mapped to a role."


class TooManyGroups(SignInRefused):
    code = "too_many_groups"
    text = (
        "Your company account has too many groups, so the provider left out the claim {claim}. "
        "An administrator can map app roles instead."
    )
