"""Tests of `upload_service/downloads`."""
