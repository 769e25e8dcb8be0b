"""The composition root: settings in, a running `Optimizer` out. The only room that knows concrete parts.

`parts` builds, `life` starts and stops, `endpoints` and `dashboard` serve, `servers` and `options` read the settings.
"""
