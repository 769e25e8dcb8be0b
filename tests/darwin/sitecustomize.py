"""Takes from Python what macOS lacks, before anything is loaded: a process with this folder in PYTHONPATH believes that
it runs there.
"""

import os
import select
import signal
import socket
import sys
import sysconfig
import types

_MISSING = {
    os: (
        "memfd_create MFD_CLOEXEC pipe2 eventfd pidfd_open copy_file_range splice posix_fadvise posix_fallocate "
        "fdatasync sched_getaffinity sched_setaffinity getrandom O_PATH O_TMPFILE"
    ),
    select: "epoll EPOLLIN EPOLLOUT",
    signal: "SIGPWR SIGSTKFLT SIGRTMIN SIGRTMAX sigtimedwait sigwaitinfo pidfd_send_signal",
    socket: "SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK MSG_CMSG_CLOEXEC AF_NETLINK SO_BINDTODEVICE",
}

for _module, _names in _MISSING.items():
    for _name in _names.split():
        if hasattr(_module, _name):
            delattr(_module, _name)

# urllib asks it for the system's proxies.
_proxies = types.ModuleType("_scproxy")
vars(_proxies).update(_get_proxies=dict, _get_proxy_settings=dict)
sys.modules["_scproxy"] = _proxies
# Kept from now on: it looks for a file that is named after the platform.
sysconfig.get_config_vars()
sys.platform = "darwin"
