"""The keys of the application for the objects that its routes use."""

from aiohttp import web

from common.events import Events
from upload_service.downloads.counter import DownloadCounter
from upload_service.downloads.service import Downloads
from upload_service.downloads.store import MongoDownloadStore
from upload_service.inspection.inspector import Inspector
from upload_service.maintenance.store import MongoScrubStore
from upload_service.metrics import TransferMetrics
from upload_service.quota.store import MongoQuotaStore
from upload_service.scanning.service import InstallerChecks
from upload_service.settings import UploadSettings
from upload_service.uploads.claims import Claims
from upload_service.uploads.service import Transfers

SETTINGS = web.AppKey("settings", UploadSettings)
LOCAL_EVENTS: web.AppKey[Events | None] = web.AppKey("local_events")
TRANSFERS = web.AppKey("transfers", Transfers)
CLAIMS = web.AppKey("claims", Claims)
DOWNLOADS = web.AppKey("downloads", Downloads)
DOWNLOAD_COUNTER: web.AppKey[DownloadCounter | None] = web.AppKey("download_counter")
DOWNLOAD_STORE = web.AppKey("download_store", MongoDownloadStore)
INSPECTOR = web.AppKey("inspector", Inspector)
QUOTA = web.AppKey("quota", MongoQuotaStore)
TRANSFER_METRICS = web.AppKey("transfer_metrics", TransferMetrics)
INSTALLER_CHECKS = web.AppKey("installer_checks", InstallerChecks)
SCRUB_STORE = web.AppKey("scrub_store", MongoScrubStore)
