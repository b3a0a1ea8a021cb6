from catalog_service.app import SERVICE
from common.http.server import run

run(SERVICE)
