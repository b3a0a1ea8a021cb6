"""A private RabbitMQ node from Debian's package: its own ports, folder and port mapper, all gone afterwards."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.cluster.rights import RABBITMQ, rabbitmq_definitions
from deploy.local.processes import NotStarted, run_server
from tests.support.servers.ports import free_port, wait_for_answer
from tests.support.servers.users import credentials

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # The script on PATH insists on the machine's own settings.
CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
AMQP_HEADER, METHOD_ON_CHANNEL_0 = b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"
NAMES_REQUEST = b"\x00\x01n"  # The port mapper answers with its own port in four bytes, then the names.


@dataclass(frozen=True)
class Node:
    """A running broker."""

    url: str
    environment: Sequence[str]

    async def control(self, *words: str) -> None:
        """Have `rabbitmqctl` do something to it."""
        command = [*_as_rabbitmq(), "env", *self.environment, CONTROL, *words]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
        told, _ = await process.communicate()
        assert process.returncode == 0, told.decode(errors="replace")


@asynccontextmanager
async def run_rabbitmq() -> AsyncIterator[str]:
    """Run a broker; yields its URL once it takes connections. Raises NotStarted."""
    async with run_node() as running_node:
        yield running_node.url


def is_installed() -> bool:
    return shutil.which(SERVER) is not None and shutil.which("epmd") is not None


@asynccontextmanager
async def run_node(port: int | None = None, virtual_hosts: Sequence[str] = ("/",)) -> AsyncIterator[Node]:
    """The same, with control over it. All users have their rights in each virtual host."""
    mapper = shutil.which("epmd")
    if mapper is None or not is_installed():
        raise NotStarted("is not installed")
    port, mapper_port = port or free_port(), free_port()
    with TemporaryDirectory(prefix="pkgrepo-") as place:
        folder = Path(place)
        _write_configuration(folder, port, definitions_with_guest(virtual_hosts))
        environment = _environment(folder, port, mapper_port)
        # Started by us, or the node would start one that outlives it.
        async with (
            run_server(
                [*_as_rabbitmq(), mapper, "-address", "127.0.0.1", "-port", str(mapper_port)],
                folder / "epmd",
                lambda: wait_for_answer(mapper_port, NAMES_REQUEST, mapper_port.to_bytes(4)),
            ),
            run_server(
                [*_as_rabbitmq(), "env", *environment, SERVER],
                folder / "rabbitmq",
                lambda: wait_for_answer(port, AMQP_HEADER, METHOD_ON_CHANNEL_0),
            ),
        ):
            yield Node(url_of(port), environment)


def url_of(port: int, virtual_host: str = "") -> str:
    return f"amqp://guest:guest@127.0.0.1:{port}/{virtual_host}"


def _write_configuration(folder: Path, port: int, definitions: str) -> None:
    data = folder / "rabbitmq" / "data"
    data.mkdir(parents=True)
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nload_definitions = {folder}/definitions.json\n"
    )
    (folder / "definitions.json").write_text(definitions)
    (folder / "plugins").write_text("[].\n")
    if os.geteuid() == 0:
        for owned in (folder, data.parent, data):
            shutil.chown(owned, "rabbitmq", "rabbitmq")


def definitions_with_guest(virtual_hosts: Sequence[str] = ("/",)) -> str:
    """The users of the services, and `guest`, who may do everything; RabbitMQ makes none where it is given others."""
    definitions = json.loads(rabbitmq_definitions(credentials(RABBITMQ)))
    definitions["users"].append({"name": "guest", "password": "guest", "tags": "administrator"})
    every = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
    rights = [*definitions["permissions"], every]
    definitions["vhosts"] = [{"name": host} for host in virtual_hosts]
    definitions["permissions"] = [{**right, "vhost": host} for right in rights for host in virtual_hosts]
    return json.dumps(definitions)


def _as_rabbitmq() -> list[str]:
    """What to put before a command so that root runs it as the package's own user, and it still ends with us."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--init-groups", "--pdeathsig=TERM"]


def _environment(folder: Path, port: int, mapper_port: int) -> list[str]:
    return [
        f"HOME={folder}/rabbitmq/data",  # for the Erlang cookie
        f"ERL_EPMD_PORT={mapper_port}",
        "ERL_EPMD_ADDRESS=127.0.0.1",
        f"RABBITMQ_NODENAME=tests-{port}@localhost",
        f"RABBITMQ_DIST_PORT={free_port()}",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
        f"RABBITMQ_MNESIA_BASE={folder}/rabbitmq/data",
        f"RABBITMQ_CONFIG_FILE={folder}/rabbitmq.conf",
        f"RABBITMQ_ENABLED_PLUGINS_FILE={folder}/plugins",
        f"RABBITMQ_CONF_ENV_FILE={folder}/none",
        "RABBITMQ_LOGS=-",
        "RUNNING_UNDER_SYSTEMD=true",  # The script becomes the server, which then takes our signals itself.
    ]
