"""Decodes logos in confined processes, a fair share for each tenant."""

import signal

from catalog_service.logos import LOGO_LIMIT, PIXELS_LIMIT, SCANS_LIMIT, Refusal
from common.concurrency.confined_process import ConfinedProcessFailed, run_confined
from common.concurrency.confinement import OUT_OF_MEMORY
from common.concurrency.limits import FairConcurrencyLimit
from common.errors import InvalidField, Overloaded
from common.telemetry import log

OUTPUT_LIMIT = 512 << 10  # bytes; 256 by 256 pixels take at most 257 KiB
PROCESSES = 2
# The sum of both is less than the time after which the gateway gives up: an answered error creates no package later.
SLOT_TIMEOUT = 5.0  # seconds
WALL_TIME = 8.0  # seconds

_PNG = b"\x89PNG\r\n\x1a\n"
_NOT_AN_IMAGE = ("is not a PNG or JPEG image", "not_an_image", 0)
_TOO_COSTLY = ("takes too much time or memory to decode", "too_costly_image", 0)
# The message, its code and its limit, by the exit status of the process that decodes.
REASONS: dict[int | None, tuple[str, str, int]] = {
    Refusal.TOO_MANY_PIXELS: (f"has more than {PIXELS_LIMIT} pixels", "too_many_pixels", PIXELS_LIMIT),
    Refusal.TOO_MANY_SCANS: (f"has more than {SCANS_LIMIT} scans", "too_many_scans", SCANS_LIMIT),
    OUT_OF_MEMORY: _TOO_COSTLY,
    -signal.SIGXCPU: _TOO_COSTLY,
}


class LogoDecoder:
    """Turns an uploaded image into a PNG of at most 256 by 256 pixels without metadata."""

    def __init__(self) -> None:
        self._limit = FairConcurrencyLimit(PROCESSES)

    async def decode(self, tenant_id: str, field: str, image: bytes) -> bytes:
        """Decode the logo of a form field.

        Raises InvalidField if it is not a PNG or JPEG image, cannot be decoded, or is larger than 5 MiB, 4 million
        pixels or 64 scans; Overloaded while other logos are decoded; Unavailable if no process can be started now.
        """
        if len(image) > LOGO_LIMIT:
            raise InvalidField(field, f"is longer than {LOGO_LIMIT} bytes", reason="too_many_bytes", limit=LOGO_LIMIT)
        async with self._limit.acquire(tenant_id, SLOT_TIMEOUT):
            try:
                logo = await run_confined(
                    "catalog_service.logos.decoder", stdin=image, wall_time=WALL_TIME, output_limit=OUTPUT_LIMIT
                )
            except TimeoutError:  # The CPU limit is shorter, so the machine is busy.
                raise Overloaded from None
            except ConfinedProcessFailed as error:
                if error.status not in set(Refusal):
                    log.warning("logo_process_failed", status=error.status, tenant_id=tenant_id)
                message, reason, most = REASONS.get(error.status, _NOT_AN_IMAGE)
                raise InvalidField(field, message, reason=reason, most=most) from None
        if not logo.startswith(_PNG):
            raise InvalidField(field, "is not a PNG or JPEG image", reason="not_an_image")
        return logo
