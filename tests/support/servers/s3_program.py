"""A real S3 server, MinIO or versitygw, as a process on this machine."""

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from deploy.local.servers import POLL_INTERVAL, START_TIMEOUT
from tests.support.servers.object_storage import BUCKET, ObjectServer
from tests.support.servers.ports import free_port

REGION = "us-east-1"


class Kind(StrEnum):
    MINIO = "minio"
    VERSITYGW = "versitygw"


@dataclass
class S3Program(ObjectServer):
    """The server, with random credentials, on a folder that survives `stop` and `kill`."""

    program: str = ""
    key_id: str = field(default_factory=lambda: f"tests{secrets.token_hex(6)}")
    secret: str = field(default_factory=lambda: secrets.token_hex(20))
    folder: Path = field(default_factory=lambda: Path(mkdtemp(prefix="pkgrepo-s3-")))
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def kind(self) -> Kind:
        version = subprocess.run([self.program, "--version"], check=True, capture_output=True, text=True).stdout
        return Kind.MINIO if version.startswith("minio") else Kind.VERSITYGW

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self.port = self.port or free_port()
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        listen = f"127.0.0.1:{self.port}"
        commands = {
            Kind.MINIO: (self.program, "server", "--quiet", "--address", listen, str(data)),
            Kind.VERSITYGW: (
                *(self.program, "--quiet", "--keep-alive", "--port", listen, "--iam-dir", str(self.folder)),
                *("posix", str(data)),
            ),
        }
        environment = {
            **os.environ,
            "MINIO_ROOT_USER": self.key_id,
            "MINIO_ROOT_PASSWORD": self.secret,
            "MINIO_BROWSER": "off",
            "ROOT_ACCESS_KEY_ID": self.key_id,
            "ROOT_SECRET_ACCESS_KEY": self.secret,
        }
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(commands[self.kind], env=environment, stdout=log, stderr=log)
        end = time.monotonic() + START_TIMEOUT
        while not self._responds():
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.program} did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(POLL_INTERVAL)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """End the server at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def remove(self) -> None:
        """Stop the server and remove its objects."""
        self.stop()
        shutil.rmtree(self.folder)

    def make_bucket(self) -> None:
        self._client("s3").create_bucket(Bucket=BUCKET)

    def credentials_with(self, *actions: str) -> Mapping[str, str]:
        """The environment of a client that may do only these actions with the bucket and its objects."""
        resources = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": resources}
        if self.kind is Kind.MINIO:
            policy = {"Version": "2012-10-17", "Statement": [statement]}
            answer = self._client("sts").assume_role(
                RoleArn=f"arn:aws:iam::{'0' * 12}:role/tests", RoleSessionName="tests", Policy=json.dumps(policy)
            )["Credentials"]
            return {
                "AWS_ACCESS_KEY_ID": answer["AccessKeyId"],
                "AWS_SECRET_ACCESS_KEY": answer["SecretAccessKey"],
                "AWS_SESSION_TOKEN": answer["SessionToken"],
            }
        user, secret = f"user{secrets.token_hex(6)}", secrets.token_hex(20)
        root = ("--access", self.key_id, "--secret", self.secret, "--endpoint-url", self.endpoint)
        new = ("--access", user, "--secret", secret, "--role", "user")
        subprocess.run([self.program, "admin", *root, "create-user", *new], check=True, capture_output=True)
        policy = {"Version": "2012-10-17", "Statement": [{**statement, "Principal": {"AWS": [user]}}]}
        self._client("s3").put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(policy))
        return {"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": secret}

    def files_of(self, name: str) -> list[Path]:
        """The server's files with the content of an object."""
        paths = (self.folder / "data" / BUCKET).rglob(f"{name}*")
        return [file for path in paths for file in (path, *path.rglob("part.*")) if file.is_file()]

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=self.key_id,
            aws_secret_access_key=self.secret,
            region_name=REGION,
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=10),
        )

    def _responds(self) -> bool:
        try:
            self._client("s3").list_buckets()
        except (BotoCoreError, ClientError):  # MinIO answers before it knows its users.
            return False
        return True
