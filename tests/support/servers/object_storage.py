"""An S3-compatible object storage for tests: moto's server, in this process."""

from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

KEY_ID = "key-id-of-tests"
SECRET = "a secret of tests that no log may hold"
BUCKET = "installers"


@dataclass
class ObjectServer:
    """The server. Objects survive `stop`, as in a storage that is unreachable for a while."""

    port: int = 0
    key_id: str = KEY_ID
    secret: str = SECRET
    _server: ThreadedMotoServer | None = None

    def start(self) -> None:
        """Start the server. A restart uses the same port."""
        self._server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        """Stop the server. Its objects stay."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def remove(self) -> None:
        """Stop the server and remove its objects."""
        self.stop()

    def make_bucket(self) -> None:
        with urlopen(Request(f"{self.endpoint}/{BUCKET}", method="PUT")):  # noqa: S310  a local server
            pass

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self, prefix: str) -> dict[str, Any]:
        """The settings of upload_service for this storage, with a prefix."""
        return {
            "s3_url": f"s3://{BUCKET}/{prefix}",
            "s3_endpoint": self.endpoint,
            "s3_region": "us-east-1",
            "s3_access_key_id": self.key_id,
            "s3_secret_access_key": self.secret,
        }
