"""What upload_service is told."""

from pathlib import Path

from pydantic import Field

from common.settings import Key, Listen, MongoUrl, RabbitUrl, ServiceSettings


class UploadSettings(ServiceSettings):
    """`installers` is the folder that all replicas share; ages are seconds."""

    listen: Listen = "127.0.0.1:8083"
    mongo_url: MongoUrl = "mongodb://127.0.0.1:27017"
    rabbitmq_url: RabbitUrl = "amqp://guest:guest@127.0.0.1:5672/"
    database: str = "upload"
    installers: Path
    download_key: Key
    transfer_idle: int = Field(default=24 * 3600, ge=1)
    unclaimed_age: int = Field(default=24 * 3600, ge=1)
