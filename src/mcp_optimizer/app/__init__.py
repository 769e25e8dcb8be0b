"""The composition root: settings in, a running `Optimizer` out. The only room that knows concrete parts.

`parts` builds, `life` starts and stops, `endpoints` and `dashboard` serve, `servers` and `part_options` read the
settings. Importing this package loads nothing, because commands import `control` from it.
"""
