"""The application: opens the connections of upload_service and builds its objects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial

from aiohttp import web

from common.concurrency.background import repeating
from common.errors import Unavailable
from common.events import Events
from common.events.broker import open_events
from common.http.server import READINESS, Readiness, Service, service_app
from common.mongo import MongoDatabase, MongoError, open_database
from common.mongo.schema import migrate, register_version
from common.telemetry.metrics import METRICS
from common.work import Worker
from upload_service import routes
from upload_service.downloads import routes as download_routes
from upload_service.downloads.routes import DOWNLOAD_COUNTER, DOWNLOAD_STORE, DOWNLOADS
from upload_service.downloads.service import DownloadCounter, Downloads
from upload_service.downloads.store import MongoDownloadStore
from upload_service.inspection.inspector import Inspector
from upload_service.inspection.process import InstallerFiles, Verifier, read_installer
from upload_service.inspection.store import MongoInspectionStore
from upload_service.maintenance.orphans import OrphanCollector
from upload_service.maintenance.scrub import Scrub, limit_rate
from upload_service.maintenance.store import MongoScrubStore, register_metrics
from upload_service.model import StorageKind, Upload
from upload_service.outgoing.scanners import scanner_at
from upload_service.quota.reconciliation import Reconciliation
from upload_service.quota.store import MongoQuotaStore
from upload_service.routes import CLAIMS, INSPECTOR, INSTALLER_CHECKS, QUOTA, SCRUB_STORE
from upload_service.scanning.model import Scanner
from upload_service.scanning.service import InstallerChecks, ScanMetrics, Scans, register_scan_metrics
from upload_service.scanning.store import MongoScanStore
from upload_service.settings import UploadSettings
from upload_service.storage.filesystem import FolderStorage, StorageBackends
from upload_service.storage.integrity import IntegrityCheck, StorageOwnership
from upload_service.storage.migration import Mover, Staging
from upload_service.storage.part_files import PartFiles
from upload_service.storage.s3 import S3Storage, storage_backends
from upload_service.storage.store import MongoFileIndex, MongoMoveStore
from upload_service.store import SCHEMA
from upload_service.uploads import routes as upload_routes
from upload_service.uploads.claims import Claims, Collector, Removal
from upload_service.uploads.outbox import PUBLISHERS, Outbox
from upload_service.uploads.routes import TRANSFER_METRICS, TRANSFERS, TransferMetrics
from upload_service.uploads.service import Transfers
from upload_service.uploads.session import UploadSessions
from upload_service.uploads.store import MongoUploadStore

# Seconds between two rounds of background work.
RELAY_PAUSE = 1
COUNTING_PAUSE = 2
MOVING_PAUSE = 5
COLLECTION_PAUSE = SCRUB_PAUSE = 60
ORPHANS_PAUSE = RECONCILIATION_PAUSE = 3600

STORAGE_TIMEOUT = 1  # seconds for the object storage in a readiness check; all checks together have two
SCANNERS = 2  # files that a replica scans at once
READERS = 2  # files read again at once

SETTINGS = web.AppKey("settings", UploadSettings)
LOCAL_EVENTS: web.AppKey[Events | None] = web.AppKey("local_events")


def create_app(settings: UploadSettings, events: Events | None = None) -> web.Application:
    """The service; `events` is given where all services share a process, else they travel over RabbitMQ."""
    app = service_app(
        "upload_service",
        settings.upload_service_key,
        [*upload_routes.routes, *download_routes.routes, *routes.routes],
        connect,
        access_log=settings.access_log,
        open_operations=frozenset({"download"}),
    )
    app[SETTINGS] = settings
    app[LOCAL_EVENTS] = events
    return app


async def connect(app: web.Application) -> AsyncIterator[None]:
    """Open the connections of upload_service; closed in reverse when the app stops."""
    settings, readiness = app[SETTINGS], app[READINESS]
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(
            open_database(settings.mongo_url, settings.database, "upload_service")
        )
        readiness.check("mongodb", lambda: database.command("ping"))
        register_version(app[METRICS], database)
        await stack.enter_async_context(readiness.preparing("schema", partial(migrate, database, SCHEMA)))
        await asyncio.to_thread(settings.installers.mkdir, parents=True, exist_ok=True)
        readiness.check("installers", lambda: asyncio.to_thread(settings.installers.stat))
        events = app[LOCAL_EVENTS]
        if events is None:
            events = await stack.enter_async_context(open_events(settings.rabbitmq_url))
        # Threads of their own: a large file takes minutes, and all other work of the process shares a few threads.
        readers = ThreadPoolExecutor(READERS, "reader")
        stack.callback(readers.shutdown, wait=False, cancel_futures=True)
        verifier = await asyncio.to_thread(Verifier.load, settings.signature_trust)
        work = build(app, database, events, readers, verifier)
        if counter := app[DOWNLOAD_COUNTER]:
            stack.push_async_callback(_write_last_downloads, counter)
        stack.push_async_callback(app[TRANSFERS].sessions.leases.give_all_back)
        for each in work:
            await stack.enter_async_context(each)
        yield


def build(
    app: web.Application, database: MongoDatabase, events: Events, readers: Executor, verifier: Verifier
) -> list[AbstractAsyncContextManager[None]]:
    """Build the objects that the routes use; returns the background work."""
    settings, readiness = app[SETTINGS], app[READINESS]
    every = partial(_repeating, readiness)
    scanner = scanner_at(settings.scanner_url) if settings.scanner_url else None
    store = MongoUploadStore(database, scans=scanner is not None)
    quota, index, scan_store = MongoQuotaStore(database), MongoFileIndex(database), MongoScanStore(database)
    parts = PartFiles(settings.installers)
    folder = FolderStorage(settings.installers, parts)
    s3 = S3Storage(settings.object_storage) if settings.object_storage else None
    backends = storage_backends(folder, s3)
    ownership = StorageOwnership(index, backends, settings.installers)
    removal = Removal(store, quota, parts, backends)
    announcements = store.announcements
    announcer = Worker(
        announcements, Outbox(announcements, events, folder).announce, limit=PUBLISHERS, pause=RELAY_PAUSE
    )
    metrics = app[TRANSFER_METRICS] = TransferMetrics(app[METRICS])
    register_metrics(app[METRICS], database, announcements, settings.installers)

    def announce() -> None:
        metrics.finished.inc()
        announcer.wake()

    app[TRANSFERS] = Transfers(UploadSessions(removal, folder, announce, readers))
    app[CLAIMS] = Claims(store, quota, removal)
    app[QUOTA] = quota
    app[DOWNLOADS] = Downloads(
        store, backends, folder, settings.download_key, redirects=s3 if settings.s3_redirect else None
    )
    app[DOWNLOAD_STORE] = MongoDownloadStore(database)
    counter = DownloadCounter(app[DOWNLOAD_STORE], metrics.downloads) if settings.download_counts else None
    app[DOWNLOAD_COUNTER] = counter
    count = counter.begin if counter else app[DOWNLOAD_STORE].end_counting
    inspector = app[INSPECTOR] = Inspector(
        MongoInspectionStore(database, verifier.version),
        InstallerFiles(backends, folder, settings.installers),
        read_installer,
        verifier.verify,
    )
    app[INSTALLER_CHECKS] = InstallerChecks(scan_store, inspector, scanner is not None)
    app[SCRUB_STORE] = MongoScrubStore(database, settings.scrub_interval)
    scrub = Scrub(app[SCRUB_STORE], IntegrityCheck(backends, ownership, after_block=limit_rate))
    orphans = OrphanCollector(index, backends, folder, settings.installers, ownership, settings.unclaimed_age)
    collector = Collector(removal, settings.transfer_idle, settings.unclaimed_age)

    readiness.check("storage", lambda: ownership.check(StorageKind.FOLDER), prepared=True)
    workers = [announcer, inspector.worker()]
    work = [
        every(COLLECTION_PAUSE, "collector", collector.collect),
        every(ORPHANS_PAUSE, "orphans", orphans.collect),
        every(RECONCILIATION_PAUSE, "reconciliation", Reconciliation(quota).check_due),
        every(RECONCILIATION_PAUSE, "counting", count),
    ]
    if counter is not None:
        work.append(every(COUNTING_PAUSE, "downloads", counter.flush))
    if scanner is not None:
        workers.append(scan_worker(app, scan_store, backends, scanner))
    if settings.scrub_interval:
        workers.append(Worker(app[SCRUB_STORE].queue, scrub.check_leased, pause=SCRUB_PAUSE))
    if s3 is not None:
        readiness.check("object_storage", lambda: _check_object_storage(ownership), prepared=True)
        move_store, staging = MongoMoveStore(database), Staging(folder, parts)
        integrity = IntegrityCheck(backends, ownership)
        mover = Mover(move_store, backends, staging, settings.installer_storage, integrity)
        work.append(every(MOVING_PAUSE, "mover", mover.run))
    return [*work, *(worker.running(readiness.prepared) for worker in workers)]


def scan_worker(
    app: web.Application, store: MongoScanStore, backends: StorageBackends, scanner: Scanner
) -> Worker[Upload]:
    settings = app[SETTINGS]
    limits = settings.scanner_limit, settings.scanner_timeout
    scans = Scans(store, backends, scanner, *limits, ScanMetrics(app[METRICS]))
    register_scan_metrics(app[METRICS], store, scanner)
    return Worker(store.queue, scans.scan, limit=SCANNERS, one_per_tenant=True)


def _repeating(
    readiness: Readiness, pause: float, name: str, step: Callable[[], Awaitable[None]]
) -> AbstractAsyncContextManager[None]:
    """Repeat a step every `pause` seconds, once the service is prepared."""
    return repeating(name, step, partial(asyncio.sleep, pause), after=readiness.prepared)


async def _check_object_storage(ownership: StorageOwnership) -> None:
    """Raise StorageIsNotOurs. A service whose object storage does not respond is ready: uploads wait in the folder."""
    with suppress(Unavailable, TimeoutError):
        async with asyncio.timeout(STORAGE_TIMEOUT):
            await ownership.check(StorageKind.S3)


async def _write_last_downloads(counter: DownloadCounter) -> None:
    """Write what is not written yet when the service stops; a database that is gone does not hinder that."""
    with suppress(MongoError):
        await counter.flush()


SERVICE = Service("upload_service", UploadSettings, create_app, uvloop=False)
