"""Who may connect to addresses that other machines could send packets to."""

from __future__ import annotations

from shoal.node.proxy.model import Admission, ListenAddress

SHARED = ListenAddress("TCP", "10.60.128.1", 443)
LOOPBACK = ListenAddress("TCP", "127.9.128.1", 443)


def test_only_this_machine_and_the_clusters_containers_may_connect() -> None:
    admission = Admission(("10.60.0.0/16", "10.89.3.0/24"))
    admitted = {each: admission.admits(each, SHARED) for each in ("10.60.128.1", "10.89.3.7", "127.0.0.1")}
    assert all(admitted.values()), admitted
    assert not any(admission.admits(each, SHARED) for each in ("10.89.4.7", "192.168.1.9", "8.8.8.8"))
    assert admission.admits("192.168.1.9", LOOPBACK), "the kernel lets nobody else there"


def test_the_networks_may_change() -> None:
    admission = Admission()
    assert admission.admits("192.168.1.9", SHARED)
    admission.only(("10.60.0.0/16",))
    assert not admission.admits("192.168.1.9", SHARED)
