"""upload_service, put together."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial

from aiohttp import web

from common.concurrency.background import repeating
from common.errors import Unavailable
from common.events import Events
from common.events.broker import open_events
from common.http.readiness import READINESS
from common.http.server import Service, service_app
from common.mongo import open_database
from common.mongo.migration import migrate
from common.mongo.schema import tell_version
from common.telemetry.metrics import METRICS
from upload_service.app_keys import (
    CLAIMS,
    DOWNLOADS,
    INSPECTOR,
    LOCAL_EVENTS,
    QUOTA,
    SCRUB_STORE,
    SETTINGS,
    SINGLE_REQUESTS,
    TRANSFER_METRICS,
    TRANSFERS,
)
from upload_service.downloads.service import Downloads
from upload_service.inspection.inspector import Inspector
from upload_service.inspection.installer_files import InstallerFiles
from upload_service.inspection.process import read_installer
from upload_service.inspection.store import MongoInspectionStore
from upload_service.maintenance.metrics_store import MongoMetricsStore
from upload_service.maintenance.orphans import OrphanCollector
from upload_service.maintenance.purge import Collector
from upload_service.maintenance.schedule import upkeep
from upload_service.maintenance.scrub import Scrub
from upload_service.maintenance.store import MongoFileIndex, MongoScrubStore
from upload_service.metrics import TransferMetrics, register_metrics
from upload_service.migrations import SCHEMA
from upload_service.model import StorageKind
from upload_service.quota.ledger_store import MongoLedgerStore
from upload_service.quota.reconciliation import Reconciliation
from upload_service.quota.store import MongoQuotaStore
from upload_service.routes import routes
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.migration import Mover
from upload_service.storage.migration_store import MongoMoveStore
from upload_service.storage.ownership import StorageOwnership
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.storage.staging import Staging
from upload_service.uploads.chunk import ResendCheck
from upload_service.uploads.claims import Claims
from upload_service.uploads.outbox import Outbox
from upload_service.uploads.outbox_store import MongoOutboxStore
from upload_service.uploads.part_files import PartFiles
from upload_service.uploads.removal import Removal
from upload_service.uploads.service import Transfers
from upload_service.uploads.session import UploadSessions
from upload_service.uploads.single_request import SingleRequestUploads
from upload_service.uploads.store import MongoUploadStore

RELAY_PAUSE = 1  # seconds
COLLECTION_PAUSE = 60  # seconds
MOVING_PAUSE = 5  # seconds
INSPECTION_PAUSE = 1  # seconds
AWAY = 1  # seconds without an answer after which a storage is away; all readiness has two
READERS = 2  # files read again at once


def create_app(settings: UploadSettings, events: Events | None = None) -> web.Application:
    """The service; `events` is given where all services share a process, else they travel over RabbitMQ."""
    app = service_app(
        "upload_service",
        settings.upload_service_key,
        routes,
        connect,
        access_log=settings.access_log,
        open_operations=frozenset({"download"}),
    )
    app[SETTINGS] = settings
    app[LOCAL_EVENTS] = events
    return app


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Open what upload_service talks to; closed in reverse when the app stops."""
    settings, readiness = app[SETTINGS], app[READINESS]
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            open_database(settings.mongo_url, settings.database, "upload_service")
        )
        readiness.check("mongodb", lambda: database.command("ping"))
        tell_version(app[METRICS], database)
        await stack.enter_async_context(readiness.preparing("schema", partial(migrate, database, SCHEMA)))
        await asyncio.to_thread(settings.installers.mkdir, parents=True, exist_ok=True)
        readiness.check("installers", lambda: asyncio.to_thread(settings.installers.stat))
        begin = partial(repeating, after=readiness.prepared)
        events = app[LOCAL_EVENTS]
        if events is None:
            events = await stack.enter_async_context(open_events(settings.rabbitmq_url))

        store, quota = MongoUploadStore(database), MongoQuotaStore(database)
        parts = PartFiles(settings.installers)
        installers = FolderStorage(settings.installers, parts)
        objects = S3Storage(settings.object_storage) if settings.object_storage else None
        homes = storage_backends(installers, objects)
        removal = Removal(store, quota, parts, homes)
        outbox = Outbox(MongoOutboxStore(database), events, installers)
        app[QUOTA] = quota
        # Threads of their own: a large file takes minutes, and all other work of the process shares a few threads.
        readers = ThreadPoolExecutor(READERS, "reader")
        stack.callback(readers.shutdown, wait=False, cancel_futures=True)
        transferred = app[TRANSFER_METRICS] = TransferMetrics(app[METRICS])
        register_metrics(app[METRICS], MongoMetricsStore(database), settings.installers)

        def announce() -> None:
            transferred.finished()
            outbox.wake()

        sessions = UploadSessions(store, quota, parts, installers, removal, announce, readers)
        app[TRANSFERS] = Transfers(store, quota, sessions, ResendCheck(store, parts, homes), removal)
        app[SINGLE_REQUESTS] = SingleRequestUploads(sessions, quota)
        app[CLAIMS] = Claims(store, quota, removal)
        app[DOWNLOADS] = Downloads(
            store,
            homes,
            installers,
            settings.download_key,
            signer=objects if settings.s3_redirect else None,
        )
        inspector = app[INSPECTOR] = Inspector(
            MongoInspectionStore(database), InstallerFiles(homes, installers, settings.installers), read_installer
        )
        known = MongoFileIndex(database)
        identity = StorageOwnership(known, homes, settings.installers)
        readiness.check("storage", lambda: identity.check(StorageKind.FOLDER), prepared=True)
        if objects is not None:
            readiness.check("object_storage", lambda: _check_unless_away(identity, StorageKind.S3), prepared=True)
            staging = Staging(installers, parts)
            mover = Mover(MongoMoveStore(database), homes, staging, settings.installer_storage, identity)
            await stack.enter_async_context(begin("mover", mover.run, lambda: asyncio.sleep(MOVING_PAUSE)))
        collector = Collector(
            store,
            quota,
            removal,
            transfer_idle=settings.transfer_idle,
            unclaimed_age=settings.unclaimed_age,
        )
        damaged = app[SCRUB_STORE] = MongoScrubStore(database)
        age = settings.unclaimed_age
        await stack.enter_async_context(
            upkeep(
                Scrub(damaged, homes, identity),
                OrphanCollector(known, homes, installers, settings.installers, identity, age=age),
                Reconciliation(MongoLedgerStore(database)),
                scrub_interval=settings.scrub_interval,
                after=readiness.prepared,
            )
        )
        await stack.enter_async_context(
            begin("inspector", inspector.inspect_due, lambda: asyncio.sleep(INSPECTION_PAUSE))
        )
        await stack.enter_async_context(begin("relay", outbox.relay, lambda: outbox.wait(RELAY_PAUSE)))
        await stack.enter_async_context(begin("collector", collector.collect, lambda: asyncio.sleep(COLLECTION_PAUSE)))
        yield


async def _check_unless_away(identity: StorageOwnership, home: StorageKind) -> None:
    """Raise StorageIsNotOurs. Storage that is away is no reason to be sent no uploads: they wait in the folder."""
    with suppress(Unavailable, TimeoutError):
        async with asyncio.timeout(AWAY):
            await identity.check(home)


SERVICE = Service("upload_service", UploadSettings, create_app, uvloop=False)
