"""A stand-in for a Windows machine that runs the roll-out script: it sends the script's requests as they are written.

No PowerShell runs here. The requests are read from the text of the script; the steps between them are this module's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession

_SETTING = re.compile(r"^\$(\w+) = (?:'((?:[^']|'')*)'|\$(\w+))$", re.MULTILINE)
_ENROLL = re.compile(
    r'Invoke-RestMethod -Method (?P<method>\w+) -Uri "(?P<url>[^"]+)"'
    r' -Headers @\{ (?P<header>\w+) = "(?P<value>[^"]+)" \} -Body \$form'
)
_FORM = re.compile(r"\$form = @\{ (\w+) = \[Net\.Dns\]::GetHostName\(\) \}")
_STATUS = re.compile(r'Invoke-WebRequest -UseBasicParsing -Uri "(?P<url>[^"]+?)" -TimeoutSec')
_SECRET = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ScriptEnded(Exception):
    """The script ended with exit code 1 and this text."""


def settings_of(script: str) -> dict[str, str]:
    """The values of the script's first lines, by the names of their variables."""
    return {name: word or text.replace("''", "'") for name, text, word in _SETTING.findall(script)}


def only(pattern: re.Pattern[str], script: str) -> re.Match[str]:
    """The only match of a pattern in the script."""
    (match,) = pattern.finditer(script)
    return match


@dataclass
class WindowsMachine:
    """A machine with the source that winget has, "" for none. `transcript` has its requests without secrets."""

    session: ClientSession
    host_name: str
    source: str = ""
    transcript: list[str] = field(default_factory=list)

    async def run(self, script: str) -> bool:
        """Run the script. Returns whether it changed the source. Raises ScriptEnded."""
        values = settings_of(script)
        if self.source.startswith(f"{values['address']}/source/"):
            status = await self._status(script)
            if status == 200:
                return False
            if status != 401:
                raise ScriptEnded(f"The server answers {status}.")
        enrolled = await self._enroll(script, values)
        if not enrolled["source_url"]:
            raise ScriptEnded("The tenant does not offer personal addresses.")
        self.source = enrolled["source_url"]
        return True

    async def _status(self, script: str) -> int:
        text = only(_STATUS, script)["url"]
        url = text.replace("$($personal.TrimEnd('/'))", self.source.rstrip("/"))
        return (await self._send("GET", url))[0]

    async def _enroll(self, script: str, values: Mapping[str, str]) -> Any:
        request, (name,) = only(_ENROLL, script), _FORM.findall(script)

        def expand(text: str) -> str:
            return re.sub(r"\$(\w+)", lambda match: values[match[1]], text)

        headers = {expand(request["header"]): expand(request["value"])}
        url, form = expand(request["url"]), {name: self.host_name}
        status, body = await self._send(request["method"].upper(), url, headers=headers, data=form)
        if status not in {200, 201}:
            raise ScriptEnded(f"The server did not enroll this machine: {body['detail']}")
        return body

    async def _send(self, method: str, url: str, **request: Any) -> tuple[int, Any]:
        async with self.session.request(method, url, **request) as response:
            body = await response.json(content_type=None)
        form = "".join(f" {name}={value}" for name, value in request.get("data", {}).items())
        self.transcript.append(_SECRET.sub("<client token>", f"{method} {url}{form} -> {response.status}"))
        return response.status, body
