"""What is taken for the proxy's base URL, and why the rest is refused."""

import pytest

from switchyard_py.gym.address import BaseURLRefused, ProxyAddress, proxy_address


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://10.0.0.5:4000", "10.0.0.5", 4000),
        ("http://10.0.0.5:4000/", "10.0.0.5", 4000),
        ("http://proxy-1.cluster_a.local:80//", "proxy-1.cluster_a.local", 80),
        ("http://Proxy:65535", "Proxy", 65535),
        ("http://localhost:1", "localhost", 1),
        ("http://localhost:04000", "localhost", 4000),
        ("http://[::1]:4000", "[::1]", 4000),
    ],
)
def test_a_host_and_a_port_are_read(url: str, host: str, port: int) -> None:
    address = proxy_address(url)
    assert address == ProxyAddress(host, port)
    assert str(address) == f"http://{host}:{port}"
    assert proxy_address(str(address)) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "http://"),
        ("10.0.0.5:4000", "http://"),
        ("https://10.0.0.5:4000", "http://"),
        ("HTTP://10.0.0.5:4000", "http://"),
        (" http://10.0.0.5:4000", "blanks"),
        ("http://10.0.0.5:4000\n", "blanks"),
        ("http://10.0.0.5: 4000", "blanks"),
        ("http://10.0.0.5:40\x0000", "control"),
        ("http://10.0.0.5", "no port"),
        ("http://[::1]", "no port"),
        ("http://:4000", "no host"),
        ("http://10.0.0.5:", "port that is not"),
        ("http://10.0.0.5:0", "port that is not"),
        ("http://10.0.0.5:000", "port that is not"),
        ("http://10.0.0.5:65536", "port that is not"),
        ("http://10.0.0.5:" + "9" * 5000, "port that is not"),
        ("http://10.0.0.5:+400", "port that is not"),
        ("http://10.0.0.5:٤٠٠٠", "port that is not"),
        ("http://10.0.0.5:4000/v1", "a path"),
        ("http://10.0.0.5:4000//v1/", "a path"),
        ("http://10.0.0.5:4000?a=b", "a query"),
        ("http://10.0.0.5:4000/?", "a query"),
        ("http://10.0.0.5:4000#part", "a fragment"),
        ("http://user:hunter2@10.0.0.5:4000", "a user"),
        ("http://@10.0.0.5:4000", "a user"),
        ("http://::1:4000", "in brackets"),
        ("http://[::g]:4000", "in brackets"),
        ("http://[::1:4000", "in brackets"),
        ("http://a%20b:4000", "neither a name"),
        ("http://-a:4000", "neither a name"),
    ],
)
def test_anything_else_is_refused_with_its_reason(url: str, reason: str) -> None:
    with pytest.raises(BaseURLRefused, match=reason) as refused:
        proxy_address(url)
    assert "write http://<host>:<port>" in str(refused.value)


def test_a_refusal_repeats_no_secret() -> None:
    with pytest.raises(BaseURLRefused) as refused:
        proxy_address("http://user:hunter2@10.0.0.5:4000")
    assert "hunter2" not in str(refused.value)
