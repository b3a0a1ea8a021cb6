"""A private RabbitMQ node of Debian's package with its own ports, folder and port mapper."""

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
from deploy.local.servers import NotStarted, run_server
from tests.support.servers.ports import free_port, wait_for_answer
from tests.support.servers.users import credentials

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # The script on PATH uses the machine's settings.
CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
AMQP_HEADER, METHOD_ON_CHANNEL_0 = b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"
NAMES_REQUEST = b"\x00\x01n"  # The port mapper answers with its own port in four bytes, then the names.


@dataclass(frozen=True)
class Node:
    """A running broker."""

    url: str
    environment: Sequence[str]

    async def control(self, *words: str) -> None:
        """Run a command of `rabbitmqctl`."""
        command = [*_as_rabbitmq(), "env", *self.environment, CONTROL, *words]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode(errors="replace")


@asynccontextmanager
async def run_rabbitmq() -> AsyncIterator[str]:
    """Run a broker. Yields its URL when it accepts connections; raises NotStarted."""
    async with run_node() as running_node:
        yield running_node.url


def is_installed() -> bool:
    return shutil.which(SERVER) is not None and shutil.which("epmd") is not None


@asynccontextmanager
async def run_node(port: int | None = None, virtual_hosts: Sequence[str] = ("/",)) -> AsyncIterator[Node]:
    """Run a broker that a test can control. All users have their rights in each virtual host."""
    mapper = shutil.which("epmd")
    if mapper is None or not is_installed():
        raise NotStarted("is not installed")
    port, mapper_port = port or free_port(), free_port()
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folder = Path(name)
        _write_configuration(folder, port, definitions_with_guest(virtual_hosts))
        environment = _environment(folder, port, mapper_port)
        # Started here, because the node would start a port mapper that outlives it.
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
    """The users of the services, and `guest` with all rights, which RabbitMQ does not add to other users."""
    definitions = json.loads(rabbitmq_definitions(credentials(RABBITMQ)))
    definitions["users"].append({"name": "guest", "password": "guest", "tags": "administrator"})
    all_rights = {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
    rights = [*definitions["permissions"], all_rights]
    definitions["vhosts"] = [{"name": host} for host in virtual_hosts]
    definitions["permissions"] = [{**right, "vhost": host} for right in rights for host in virtual_hosts]
    return json.dumps(definitions)


def _as_rabbitmq() -> list[str]:
    """A command prefix that runs the command as the package's user, and stops it with this process."""
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
