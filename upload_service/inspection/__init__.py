"""Inspection of uploaded installers.

`inspector` schedules the files; `process` inspects each in a confined process that runs this package's `__main__`.
There `msi`, `executables`, `archives` and `signers` read the formats. `findings` is the result.
"""
