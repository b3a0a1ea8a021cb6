"""Why a manifest, or an installer that it names, is not published."""

from common.errors import Problem


class ManifestRefused(Problem):
    """A file is no manifest that can be published; the text says where and why."""

    status = 400
    code = "manifest_refused"


class InstallerMissing(Problem):
    """The installer is nowhere that it is looked for."""

    status = 404
    code = "installer_missing"
